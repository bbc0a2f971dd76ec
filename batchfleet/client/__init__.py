"""The Python client of a fleet's HTTP interface.

Example::

    from batchfleet.client import Client

    with Client("http://127.0.0.1:8080") as client:
        job = client.submit("all-minilm-l6-v2", ["full batches, short queues"], wait_s=30)
        vectors = client.result(job.id)
"""

from batchfleet.client.client import Client
from batchfleet.client.errors import (
    ApiError,
    ClientConfigError,
    ConflictError,
    ConnectionFailedError,
    GoneError,
    InvalidError,
    NotFoundError,
    NotReadyError,
    OverloadedError,
    TooLargeError,
    UnavailableError,
    WaitTimeoutError,
)
from batchfleet.client.values import Job, JobFailure, JobPage, JobRequest, Model, Submission

__all__ = [
    "ApiError",
    "Client",
    "ClientConfigError",
    "ConflictError",
    "ConnectionFailedError",
    "GoneError",
    "InvalidError",
    "Job",
    "JobFailure",
    "JobPage",
    "JobRequest",
    "Model",
    "NotFoundError",
    "NotReadyError",
    "OverloadedError",
    "Submission",
    "TooLargeError",
    "UnavailableError",
    "WaitTimeoutError",
]

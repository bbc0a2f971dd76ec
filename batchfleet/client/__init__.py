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
    ForbiddenError,
    GoneError,
    InternalError,
    InvalidError,
    NotFoundError,
    NotReadyError,
    OverloadedError,
    PartialResultError,
    TooLargeError,
    UnauthenticatedError,
    UnavailableError,
    WaitTimeoutError,
)
from batchfleet.client.transport import RetryPolicy
from batchfleet.client.values import (
    ItemError,
    ItemResults,
    Job,
    JobFailure,
    JobOptions,
    JobPage,
    JobRequest,
    Model,
    Submission,
)
from batchfleet.client.webhooks import Delivery, DeliveryAttempt, DeliveryPage, SigningSecret, Webhooks
from batchfleet.outbox.signature import WebhookVerificationError, verify_webhook

__all__ = [
    "ApiError",
    "Client",
    "ClientConfigError",
    "ConflictError",
    "ConnectionFailedError",
    "Delivery",
    "DeliveryAttempt",
    "DeliveryPage",
    "ForbiddenError",
    "GoneError",
    "InternalError",
    "InvalidError",
    "ItemError",
    "ItemResults",
    "Job",
    "JobFailure",
    "JobOptions",
    "JobPage",
    "JobRequest",
    "Model",
    "NotFoundError",
    "NotReadyError",
    "OverloadedError",
    "PartialResultError",
    "RetryPolicy",
    "SigningSecret",
    "Submission",
    "TooLargeError",
    "UnauthenticatedError",
    "UnavailableError",
    "WaitTimeoutError",
    "WebhookVerificationError",
    "Webhooks",
    "verify_webhook",
]

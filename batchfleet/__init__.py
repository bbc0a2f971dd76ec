"""Batchfleet: a message-queue-driven, asynchronous inference worker fleet.

The folders are the flow of a job, in this order:

1. `jobs`       what was asked: states, admission, retries, the store (the truth)
2. `broker`     how it is announced: hints (a doorbell) and the ring
3. `models`     what will answer: configuration, manifest, repository
4. `batching`   what runs together: items, buckets, the window, the batch
5. `inference`  the forward pass: tasks, runtimes, executors
6. `results`    what came back: codecs and blobs
7. `outbox`     who is told: webhooks and output objects

Under the flow lie `database` (transactions), `access` (keys and tenants), `objects` (callers' own objects) and
`profiles` (what the fleet has learned); beside it stand `build` (make models), `client` (call the API), `embedded` and
`cli` (start the parts). The services `api`, `workers` and `scheduler` are top-level packages.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from batchfleet.client import Client

__all__ = ["Client", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Loads the client when it is asked for: the services import this package, and none of them needs it."""
    if name == "Client":
        return import_module("batchfleet.client").Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Batchfleet: a message-queue-driven, asynchronous inference worker fleet.

The folders are the flow of a job, in this order:

1. `jobs`       what was asked: states, admission, retries, the store (the truth)
2. `broker`     how it is announced: hints (a doorbell) and the ring
3. `models`     what will answer: configuration, manifest, repository
4. `batching`   what runs together: items, buckets, the window, the batch
5. `inference`  the forward pass: tasks, runtimes, executors
6. `results`    what came back: codecs and blobs

Beside the flow stand `build` (make models), `client` (call the API), `embedded` and `cli`
(start the parts). The services `api`, `workers` and `scheduler` are top-level packages.
"""

__version__ = "0.1.0"

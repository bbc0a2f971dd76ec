"""Code as users of the client write it: `make check` type-checks it, nothing runs it.

`warn_unused_ignores` (of mypy's strict mode) makes each `type: ignore` below an assertion: the line must not pass.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, assert_type

from numpy.typing import NDArray

from batchfleet.client import (
    ApiError,
    Client,
    ConflictError,
    Delivery,
    ItemResults,
    Job,
    JobFailure,
    JobOptions,
    JobRequest,
    OverloadedError,
    PartialResultError,
    RetryPolicy,
    Submission,
    WaitTimeoutError,
    verify_webhook,
)


def submits(client: Client) -> None:
    job = client.submit("m", ["a"], lane="online", wait_s=1, run_at=datetime.now(UTC), parameters={"normalize": True})
    assert_type(job, Job)
    assert_type(job.ended, bool)
    client.submit("m", input_uri="s3://bucket/key", output_uri="s3://bucket/out", callback_url="https://example.com")
    client.submit("m", ["a"], lane="fast")  # type: ignore[arg-type]
    client.submit("m", ["a"], prority=1)  # type: ignore[call-arg]
    shared = JobOptions(lane="bulk", metadata={"run": 7})
    client.submit("m", ["a"], **shared)


def submits_many(client: Client) -> list[str]:
    requests = (JobRequest(model="m", inputs=[str(number)], lane="bulk") for number in range(10))
    assert_type(client.submit_each(requests), Iterator[Submission])
    return [taken.id for taken in client.submit_many(requests, chunk=100, progress=print) if taken.id is not None]


def waits(client: Client, ids: list[str]) -> None:
    assert_type(client.wait_many(ids, timeout_s=1), dict[str, str])
    try:
        for job in client.as_completed(ids, timeout_s=60):
            assert_type(job, Job)
    except WaitTimeoutError as error:
        assert_type(error.pending, tuple[str, ...])


def results(client: Client, job_id: str) -> None:
    assert_type(client.result(job_id), NDArray[Any])
    try:
        client.result(job_id)
    except PartialResultError as error:
        assert_type(error.items, ItemResults)
    client.download(job_id, "msgpack")
    client.download(job_id, "xml")  # type: ignore[arg-type]


def refusals(client: Client) -> None:
    try:
        client.models()
    except ConflictError as error:
        assert_type(error.job_error, JobFailure | None)
    except OverloadedError as error:
        assert_type(error.retry_after_s, float | None)
    except ApiError as error:
        assert_type(error.code, str)
        assert_type(error.field, str | None)
        assert_type(error.request_id, str | None)


def webhooks() -> None:
    with Client("http://fleet", "key", policy=RetryPolicy(total_s=5)) as client:
        assert_type(client.webhooks.deliveries(state=["failed", "pending"]), Iterator[Delivery])
        for secret in client.webhooks.secrets():
            verify_webhook(secret.secret, {"webhook-id": "msg_1"}, b"{}")

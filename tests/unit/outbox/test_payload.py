"""The body of a webhook shows a job as the API does."""

import msgspec
import numpy as np
import pytest

from api.views import encode, view_of
from batchfleet.jobs.job import JobError, JobLinks, JobRecord, Lane, StoredResult, new_job_id
from batchfleet.jobs.states import JobState
from batchfleet.outbox.delivery import Delivery, DeliveryKind, DeliveryState
from batchfleet.outbox.payload import INLINE_BYTES, event_body
from batchfleet.results import codec

FULL_LINKS = JobLinks(input_uri="s3://b/in", output_uri="s3://b/out", callback_url="https://x.example/")


def job(state: JobState, **changes: object) -> JobRecord:
    fields: dict[str, object] = {
        "id": new_job_id(),
        "tenant": "default",
        "model": "m",
        "version": "1",
        "adapter": "",
        "lane": Lane.BULK,
        "state": state,
        "item_count": 2,
        "epoch": 3,
        "attempts": 1,
        "crashes": 0,
        "max_attempts": 3,
        "submitted_at": 1_700_000_000.25,
        "run_at": 1_700_000_000.25,
        "started_at": 1_700_000_001.0,
        "finished_at": 1_700_000_002.125,
        "expires_at": None,
    }
    return JobRecord(**(fields | changes))  # type: ignore[arg-type]


def result(floats: int) -> StoredResult:
    described, data = codec.encode_tensors([np.arange(floats, dtype=np.float32)])
    return StoredResult(format=described, data=data)


def delivery(of: JobRecord) -> Delivery:
    return Delivery(
        id=new_job_id(),
        kind=DeliveryKind.WEBHOOK,
        tenant="default",
        job_id=of.id,
        target="https://x.example/",
        event=f"job.{of.state.value}",
        state=DeliveryState.PENDING,
        attempts=1,
        epoch=1,
        created_at=1_700_000_002.125,
        due_at=1_700_000_032.0,
    )


JOBS = [
    job(JobState.SUCCEEDED, result=result(3), provenance='{"worker":"w"}', metadata=b'{"a": [1, null]}'),
    job(JobState.SUCCEEDED, adapter="a", retry_of=new_job_id(), expires_at=1_800_000_000.0, links=FULL_LINKS),
    job(JobState.SUCCEEDED, result=StoredResult(format="{}", data=None, blob_key="x/1")),
    job(JobState.FAILED, error=JobError("input_too_long", "too long", 1)),
    job(JobState.FAILED, error=JobError("pass_failed", "no")),
    job(JobState.CANCELLED, started_at=None),
    job(JobState.EXPIRED, started_at=None, links=JobLinks(callback_url="https://x.example/")),
]


@pytest.mark.parametrize("shown", JOBS, ids=lambda each: each.state.value)
def test_the_data_of_an_event_is_the_job_as_the_api_shows_it(shown: JobRecord) -> None:
    event = msgspec.json.decode(event_body(delivery(shown), shown))

    assert event["data"] == msgspec.json.decode(encode(view_of(shown, inline_bytes=INLINE_BYTES)))
    assert event["type"] == f"job.{shown.state.value}"
    assert event["timestamp"] == "2023-11-14T22:13:22.125000Z"
    assert set(event) == {"type", "timestamp", "data"}


def test_large_results_stay_where_they_are() -> None:
    small, large = (job(JobState.SUCCEEDED, result=result(INLINE_BYTES // 4 + more)) for more in (0, 1))

    assert "result" in msgspec.json.decode(event_body(delivery(small), small))["data"]
    told = msgspec.json.decode(event_body(delivery(large), large))["data"]
    assert "result" not in told
    assert told["result_url"] == f"/v1/jobs/job_{large.id}/result"


def test_a_deleted_job_is_named_with_how_it_ended() -> None:
    gone = JOBS[0]

    event = msgspec.json.decode(event_body(delivery(gone), None))

    assert event["data"] == {"id": f"job_{gone.id}", "status": "succeeded"}


def test_the_body_is_the_same_at_each_attempt() -> None:
    owed = delivery(JOBS[0])

    assert event_body(owed, JOBS[0]) == event_body(owed, JOBS[0])

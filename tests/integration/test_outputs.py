"""Results written to their `output_uri`, on real S3 servers."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from batchfleet.jobs.job import JobError, JobId, JobLinks, format_job_id
from batchfleet.jobs.states import JobState
from batchfleet.outbox.delivery import Delivery, DeliveryKind, DeliveryState
from batchfleet.results import codec
from batchfleet.results.blobs import result_key
from batchfleet.results.connect import connect_blobs
from tests.support.control import DELAYS_S, Fleet, fleet, running_control
from tests.support.s3servers import Bucket, S3Server
from tests.support.stores import new_job, sqlite_url

ROWS = [np.array([0.5, 1.0], dtype=np.float32), np.array([2.0, 3.0], dtype=np.float32)]
OUTPUT = DeliveryKind.OUTPUT


@pytest.fixture
def made(bucket: Bucket, tmp_path: Path) -> Iterator[Fleet]:
    with fleet(sqlite_url(tmp_path), tmp_path, **bucket.settings) as opened:
        yield opened


def submit(made: Fleet, uri: str, items: int = 2) -> JobId:
    job = new_job(item_count=items, links=JobLinks(output_uri=uri))
    made.jobs.submit([job])
    return job.id


def written(made: Fleet, job: JobId, state: DeliveryState = DeliveryState.DELIVERED) -> Delivery:
    with running_control(made):
        return made.await_state(job, state, OUTPUT)


@pytest.mark.parametrize(
    ("key", "content_type"),
    [
        ("out/a.json", "application/json"),
        ("out/a", "application/json"),
        ("out/a.npy", "application/x-npy"),
        ("out/a.msgpack", "application/msgpack"),
        ("out/ein Ergebnis+ü.json", "application/json"),
    ],
)
def test_a_result_is_written_in_the_form_that_its_key_asks_for(
    made: Fleet, bucket: Bucket, key: str, content_type: str
) -> None:
    job = submit(made, f"s3://{bucket.name}/{key}")
    made.succeed(job, ROWS)

    written(made, job)

    assert bucket.head(key)["ContentType"] == content_type
    assert np.array_equal(read(bucket.get(key), content_type), np.stack(ROWS))


def outputs(bucket: Bucket) -> list[str]:
    """Returns the keys of what was written for callers."""
    keys = bucket.keys()
    return [key for key in keys if not key.startswith("results/")]


def read(data: bytes, content_type: str) -> Any:
    if content_type == "application/x-npy":
        return np.load(io.BytesIO(data))
    if content_type == "application/msgpack":
        values = msgspec.msgpack.decode(data)["values"]
        return np.frombuffer(values["data"], values["dtype"]).reshape(values["shape"])
    return np.array(msgspec.json.decode(data)["values"], dtype=np.float32)


def test_a_large_result_comes_from_its_blob(made: Fleet, bucket: Bucket) -> None:
    job = submit(made, f"s3://{bucket.name}/large.json")
    claimed = made.worker.claim(format_job_id(job))
    described, data = codec.encode_tensors(ROWS)
    key = result_key(job, claimed.epoch)
    blobs = connect_blobs(made.settings)
    blobs.put(key, data)
    made.worker.settle(claimed, JobState.SUCCEEDED, format=described, blob_key=key)

    written(made, job)

    assert msgspec.json.decode(bucket.get("large.json")) == {"values": [[0.5, 1.0], [2.0, 3.0]]}


def test_why_there_is_no_result_is_written_beside_it(made: Fleet, bucket: Bucket) -> None:
    failed, cancelled = (submit(made, f"s3://{bucket.name}/{name}.npy") for name in ("failed", "cancelled"))
    made.worker.fail(format_job_id(failed), JobError("input_too_long", "300 tokens; 256 are allowed", 1))
    made.cancel(cancelled)

    written(made, failed)
    written(made, cancelled)

    assert outputs(bucket) == ["cancelled.npy.error.json", "failed.npy.error.json"]
    told = msgspec.json.decode(bucket.get("failed.npy.error.json"))
    assert told == {
        "type": "urn:batchfleet:error:job_failed",
        "title": "The job failed: it has no result",
        "status": 409,
        "detail": "300 tokens; 256 are allowed",
        "code": "job_failed",
        "job_id": format_job_id(failed),
        "job_error": {
            "code": "input_too_long",
            "message": "300 tokens; 256 are allowed",
            "item": 1,
            "field": "inputs[1]",
        },
    }
    assert msgspec.json.decode(bucket.get("cancelled.npy.error.json"))["code"] == "job_cancelled"
    assert bucket.head("failed.npy.error.json")["ContentType"] == "application/problem+json"


def test_a_bucket_that_is_not_there_is_tried_on_the_schedule_and_told_of(made: Fleet) -> None:
    job = submit(made, "s3://there-is-no-such-bucket-of-ours/x.json")
    made.succeed(job, ROWS)

    delivery = written(made, job, DeliveryState.FAILED)

    assert delivery.attempts == len(DELAYS_S)
    first = made.outbox.log_of(delivery.id)[0].outcome
    assert first is not None
    assert first.error == (
        "object_not_found: there is no bucket 'there-is-no-such-bucket-of-ours' "
        "(s3://there-is-no-such-bucket-of-ours/x.json)"
    )


def test_a_form_that_the_result_cannot_have_is_given_up_at_once(made: Fleet, bucket: Bucket) -> None:
    job = submit(made, f"s3://{bucket.name}/ragged.npy")
    made.succeed(job, [ROWS[0], ROWS[1][:1]])

    delivery = written(made, job, DeliveryState.FAILED)

    assert delivery.attempts == 1
    assert delivery.last_error is not None
    assert "ask for JSON" in delivery.last_error
    assert outputs(bucket) == []


def test_a_job_cannot_be_deleted_before_its_output_is_written(made: Fleet, bucket: Bucket) -> None:
    job = submit(made, f"s3://{bucket.name}/owed.json")
    made.succeed(job, ROWS)

    assert [each.owed for each in made.jobs.delete([job])] == [True]
    assert made.jobs.purge_jobs(-60.0, 100) == []
    assert written(made, job).attempts == 1

    assert [each.owed for each in made.jobs.delete([job])] == [False]
    assert made.jobs.look_up([job]) == []


def test_the_output_of_a_deleted_job_that_is_replayed_is_given_up(made: Fleet, bucket: Bucket) -> None:
    job = submit(made, f"s3://{bucket.name}/gone.json")
    made.succeed(job, ROWS)
    delivery = written(made, job)
    made.jobs.delete([job])
    made.outbox.replay(delivery.id)

    assert written(made, job, DeliveryState.FAILED).attempts == 1


def test_a_result_that_is_owed_outlives_its_retention(made: Fleet, bucket: Bucket) -> None:
    job = submit(made, f"s3://{bucket.name}/owed.json")
    made.succeed(job, ROWS)
    made.jobs.purge_results(0.0, 100)

    written(made, job)

    assert outputs(bucket) == ["owed.json"]
    assert [gone for gone, _ in made.jobs.purge_results(0.0, 100)] == [job]


def test_an_outage_of_the_object_store_is_waited_for(own_nanio: S3Server, tmp_path: Path) -> None:
    settings = {"s3_endpoint_url": own_nanio.url}
    with fleet(sqlite_url(tmp_path), tmp_path, **settings) as made:
        bucket = own_nanio.make_bucket()
        job = submit(made, f"s3://{bucket.name}/late.json")
        made.succeed(job, ROWS)
        own_nanio.stop()
        with running_control(made, delays_s=(0.0, *[0.05] * 50)):
            made.await_attempts(job, 1, OUTPUT)
            own_nanio.start()
            delivery = made.await_state(job, DeliveryState.DELIVERED, OUTPUT)

        assert delivery.attempts > 1
        assert outputs(bucket) == ["late.json"]

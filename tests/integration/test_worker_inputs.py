"""Jobs whose inputs lie in an object: fetched beside all other work, and judged as inputs of a request are."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batchfleet.errors import InvalidRequestError
from batchfleet.inference.task import Array
from batchfleet.jobs.job import JobError, JobErrorCode, JobRecord, OnItemError
from batchfleet.jobs.memory import MemoryStore
from batchfleet.jobs.states import JobState
from batchfleet.objects.s3_client import S3Terms
from tests.support.pipeline import Pipeline
from tests.support.s3proxy import FaultyProxy, Trouble
from tests.support.s3servers import Bucket, S3Server
from tests.support.sessions import NumberTask, StubSession

ONE_TRY = S3Terms(connect_s=2.0, read_s=20.0, attempts=1)


@contextmanager
def running(pipeline: Pipeline) -> Iterator[Pipeline]:
    pipeline.start()
    try:
        yield pipeline
    finally:
        pipeline.close()


def worker_over(bucket: Bucket, folder: Path, endpoint: str | None = None, **options: Any) -> Pipeline:
    return Pipeline(folder, s3_endpoint_url=endpoint or bucket.server.url, s3_terms=ONE_TRY, **options)


def error_of(record: JobRecord) -> JobError:
    assert record.state is JobState.FAILED, record
    assert record.error is not None
    return record.error


def test_all_forms_of_objects_give_the_results_of_their_inputs(bucket: Bucket, tmp_path: Path) -> None:
    numbers = [float(n) for n in range(300)]
    lines = "\r\n".join(str(n) for n in numbers).encode()
    uris = [
        bucket.put("array.json", msgspec.json.encode(numbers)),
        bucket.put("object.json", msgspec.json.encode({"inputs": numbers})),
        bucket.put("lines.jsonl", lines),
        bucket.put("by-form", b"\xef\xbb\xbf" + lines),
        bucket.put("one.jsonl", b"7"),
    ]
    with running(worker_over(bucket, tmp_path)) as worker:
        ids = worker.submit(*uris, [1.0, 2.0])
        *whole, one, inline = worker.finish(ids)

        assert [worker.values(record) for record in whole] == [[2 * n for n in numbers]] * 4
        assert worker.values(one) == [14.0]
        assert worker.values(inline) == [2.0, 4.0]
        assert b"batchfleet_window_items 0.0" in worker.metrics.render()


def test_a_bad_item_of_an_object_fails_the_job_by_name_or_leaves_a_partial_result(
    bucket: Bucket, tmp_path: Path
) -> None:
    def behave(values: list[float]) -> Array | None:
        if 5.0 in values:
            raise RuntimeError("no 5")
        return None

    uri = bucket.put("in.json", b"[4, 5, 6]")
    with running(worker_over(bucket, tmp_path, session=StubSession(behave))) as worker:
        (strict,) = worker.submit(uri)
        (partial,) = worker.submit(uri, on_item_error=OnItemError.PARTIAL)
        failed, succeeded = worker.finish([strict, partial])

        assert error_of(failed).item == 1
        assert worker.values(succeeded) == [8.0, None, 12.0]


class StrictTask(NumberTask):
    """Takes nothing over 100."""

    def check_inputs(self, inputs: Sequence[object]) -> None:
        for index, value in enumerate(inputs):
            if not isinstance(value, int | float) or value > 100:
                raise InvalidRequestError("must be a number up to 100", field=f"inputs[{index}].value")


@pytest.mark.parametrize(
    ("key", "body", "item", "says"),
    [
        ("in.json", b"[1, 2, 300]", 2, "inputs[2].value: must be a number up to 100"),
        ("in.jsonl", b"1\n2\n{\n", 2, "inputs[2]: its line is not JSON"),
        ("in.json", b'[1, "\\u0000"]', 1, "inputs[1]: holds a NUL"),
        ("in.json", b'[1, "' + b"x" * 2_000 + b'"]', 1, "inputs[1]: an input may have 1000 bytes"),
        ("in.json", b"[]", None, "inputs: a job needs at least one input"),
        ("in.json", b"{", None, "inputs: is not JSON"),
        ("in.json", msgspec.json.encode([1] * 1_025), None, "inputs: a job takes at most 1,024 inputs, not 1,025"),
        ("in.json", b" " * 10_001, None, "has 10001 bytes; 10000 are allowed"),
    ],
)
def test_what_is_wrong_with_an_object_is_named_and_not_tried_again(
    nanio_bucket: Bucket, tmp_path: Path, key: str, body: bytes, item: int | None, says: str
) -> None:
    uri = nanio_bucket.put(key, body)
    limits: dict[str, Any] = {"max_body_bytes": 10_000, "max_item_bytes": 1_000}
    with running(worker_over(nanio_bucket, tmp_path, task=StrictTask(), **limits)) as worker:
        (record,) = worker.finish(worker.submit(uri, max_attempts=3))

    error = error_of(record)
    assert (error.code, error.item) == (JobErrorCode.INPUT_INVALID, item)
    assert says in error.message
    assert uri in error.message
    assert record.attempts == 1


def test_a_missing_object_or_bucket_fails_for_good(bucket: Bucket, tmp_path: Path) -> None:
    with running(worker_over(bucket, tmp_path)) as worker:
        ids = worker.submit(f"{bucket.url}/nothing.json", "s3://no-such-bucket-here/x.json", max_attempts=3)
        records = worker.finish(ids)

    assert [error_of(record).code for record in records] == [JobErrorCode.INPUT_NOT_FOUND] * 2
    assert "no object" in error_of(records[0]).message
    assert "no bucket" in error_of(records[1]).message


def test_an_object_that_may_not_be_read_says_so(bucket: Bucket, tmp_path: Path) -> None:
    uri = bucket.put("in.json", b"[1]")
    with FaultyProxy(bucket.server) as proxy, running(worker_over(bucket, tmp_path, proxy.url)) as worker:
        proxy.fail(Trouble.DENIED)
        (record,) = worker.finish(worker.submit(uri, max_attempts=3))

    assert error_of(record).code == JobErrorCode.INPUT_NOT_FOUND
    assert "may not be read" in error_of(record).message


def test_an_object_that_cannot_be_had_now_is_tried_again(bucket: Bucket, tmp_path: Path) -> None:
    """The job goes back with a delay, free; its worker finds it in the database once that is over."""
    uri = bucket.put("in.json", b"[1, 2]")
    store = MemoryStore(chance=lambda: 0.0)
    with FaultyProxy(bucket.server) as proxy, running(worker_over(bucket, tmp_path, proxy.url, store=store)) as worker:
        proxy.fail(Trouble.SLOW_DOWN, times=1)
        (record,) = worker.finish(worker.submit(uri))

        assert worker.values(record) == [2.0, 4.0]
        assert (record.attempts, record.crashes) == (0, 0)


def test_an_object_store_that_is_away_is_waited_for_without_charging_an_attempt(
    own_nanio: S3Server, tmp_path: Path
) -> None:
    bucket = own_nanio.make_bucket()
    uris = [bucket.put(f"{n}.json", b"[1]") for n in range(20)]
    own_nanio.kill()
    with running(worker_over(bucket, tmp_path)) as worker:
        ids = worker.submit(*uris, max_attempts=1)
        worker.wait_for_epoch(ids[0], 2)
        own_nanio.start()
        records = worker.finish(ids)

        assert [worker.values(record) for record in records] == [[2.0]] * 20
        assert {(record.attempts, record.crashes) for record in records} == {(0, 0)}


def test_a_name_that_the_object_store_refuses_is_not_waited_for(bucket: Bucket, tmp_path: Path) -> None:
    with FaultyProxy(bucket.server) as proxy, running(worker_over(bucket, tmp_path, proxy.url)) as worker:
        proxy.fail(Trouble.BAD_NAME)
        (record,) = worker.finish(worker.submit(f"{bucket.url}/in.json", max_attempts=3))

        assert error_of(record).code == JobErrorCode.INPUT_NOT_FOUND
        assert "refuses it" in error_of(record).message
        assert (record.attempts, proxy.failed) == (1, 1)


def test_a_slow_object_stalls_no_other_job(bucket: Bucket, tmp_path: Path) -> None:
    uris = [bucket.put(f"{n}.json", b"[1, 2]") for n in range(10)]
    with FaultyProxy(bucket.server) as proxy, running(worker_over(bucket, tmp_path, proxy.url)) as worker:
        gate = proxy.hold()
        slow = worker.submit(*uris)
        proxy.wait_seen(1)
        quick = worker.submit(*[[float(n)] for n in range(20)])
        assert [worker.values(record) for record in worker.finish(quick)] == [[2.0 * n] for n in range(20)]
        gate.set()

        assert [worker.values(record) for record in worker.finish(slow)] == [[2.0, 4.0]] * 10


def test_a_job_that_is_cancelled_while_its_object_is_read_does_not_run(bucket: Bucket, tmp_path: Path) -> None:
    uri = bucket.put("in.json", b"[5]")
    with FaultyProxy(bucket.server) as proxy:
        worker = worker_over(bucket, tmp_path, proxy.url)
        with running(worker):
            gate = proxy.hold()
            ids = worker.submit(uri)
            proxy.wait_seen(1)
            assert worker.store.cancel(ids) == [(ids[0], JobState.CANCELLED, True)]
            gate.set()
            worker.finish(worker.submit([1.0], f"{uri}-other"))

        assert worker.records(ids)[0].state is JobState.CANCELLED


def test_a_job_expires_in_time_although_its_object_hangs(bucket: Bucket, tmp_path: Path) -> None:
    uri = bucket.put("in.json", b"[5]")
    with FaultyProxy(bucket.server) as proxy, running(worker_over(bucket, tmp_path, proxy.url)) as worker:
        gate = proxy.hold()
        (record,) = worker.finish(worker.submit(uri, ttl_s=0.3))
        gate.set()
        worker.finish(worker.submit([1.0]))

        assert record.state is JobState.EXPIRED
        assert [5.0] not in worker.session.item_runs  # type: ignore[attr-defined]


def test_a_drain_hands_back_what_is_being_read_free(bucket: Bucket, tmp_path: Path) -> None:
    uris = [bucket.put(f"{n}.json", b"[5]") for n in range(8)]
    with FaultyProxy(bucket.server) as proxy:
        worker = worker_over(bucket, tmp_path, proxy.url).start()
        proxy.hold()
        ids = worker.submit(*uris)
        proxy.wait_seen(1)
        drained = threading.Thread(target=worker.close)
        drained.start()
        drained.join(60)
        assert not drained.is_alive()

    for record in worker.records(ids):
        assert (record.state, record.attempts, record.crashes) == (JobState.QUEUED, 0, 0)
    assert worker.store.workers() == []


def test_objects_that_hold_more_than_the_window_come_one_after_the_other(bucket: Bucket, tmp_path: Path) -> None:
    """A worker does not claim hours of work: what would overfill its window goes back, free."""
    numbers = [float(n) for n in range(500)]
    uris = [bucket.put(f"{n}.json", msgspec.json.encode(numbers)) for n in range(4)]
    with running(worker_over(bucket, tmp_path, window_items=100)) as worker:
        records = worker.finish(worker.submit(*uris))

        assert [worker.values(record) for record in records] == [[2 * n for n in numbers]] * 4
        assert {(record.attempts, record.crashes) for record in records} == {(0, 0)}

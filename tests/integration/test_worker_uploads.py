"""Results too large for a row go to the blob store, and an outage of it costs no job an attempt and stalls no other."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from batchfleet.jobs.job import JobErrorCode, Settlement, SettleOutcome
from batchfleet.jobs.memory import MemoryStore
from batchfleet.jobs.states import JobState
from batchfleet.objects.s3_client import S3Terms
from tests.support.pipeline import Pipeline
from tests.support.s3proxy import FaultyProxy, Trouble
from tests.support.s3servers import Bucket, S3Server
from tests.support.sessions import StubSession
from workers.uploads import UploadTerms

SHORT = S3Terms(connect_s=1.0, read_s=0.5, attempts=1)
QUICK = UploadTerms(backoff_s=(0.05, 0.2))
LARGE = [float(n) for n in range(50)]
DOUBLED = [2.0 * n for n in range(50)]


@contextmanager
def running(pipeline: Pipeline) -> Iterator[Pipeline]:
    pipeline.start()
    try:
        yield pipeline
    finally:
        pipeline.close()


def worker_over(bucket: Bucket, folder: Path, endpoint: str | None = None, **options: Any) -> Pipeline:
    settings = bucket.settings | {"s3_endpoint_url": endpoint or bucket.server.url}
    defaults: dict[str, Any] = {"result_row_bytes": 100, "s3_terms": SHORT, "upload_terms": QUICK}
    return Pipeline(folder, **(defaults | settings | options))


class CountingStore(MemoryStore):
    """Counts what settles."""

    def __init__(self) -> None:
        super().__init__(chance=lambda: 0.0)
        self.settled: list[str] = []

    def settle(self, boot: str, rows: Sequence[Settlement], block: bytes) -> SettleOutcome:
        outcome = super().settle(boot, rows, block)
        self.settled += [job_id for job_id, _ in outcome.applied]
        return outcome


def test_large_results_lie_in_the_bucket_and_small_ones_in_the_row(bucket: Bucket, tmp_path: Path) -> None:
    with running(worker_over(bucket, tmp_path)) as worker:
        (large, small) = worker.finish(worker.submit(LARGE, [1.0]))
        assert large.result is not None
        assert small.result is not None

        assert large.result.blob_key == f"{large.id}/{large.epoch}"
        assert bucket.keys() == [f"results/{large.result.blob_key}"]
        assert small.result.blob_key is None
        assert worker.values(large) == DOUBLED


@pytest.mark.parametrize("how", ["killed", "hangs"])
def test_an_outage_costs_no_attempt_and_stalls_no_other_job(own_nanio: S3Server, tmp_path: Path, how: str) -> None:
    """Results wait beside the settler: small ones go on, and the window stays open."""
    bucket = own_nanio.make_bucket()
    store = CountingStore()
    with running(worker_over(bucket, tmp_path, store=store, window_items=100)) as worker:
        own_nanio.kill() if how == "killed" else own_nanio.pause()
        large = worker.submit(*[LARGE] * 6)
        for _ in range(3):
            small = worker.finish(worker.submit(*[[float(n)] for n in range(40)]))
            assert [worker.values(record) for record in small] == [[2.0 * n] for n in range(40)]
        assert {record.state for record in worker.records(large)} <= {JobState.RUNNING, JobState.QUEUED}
        own_nanio.start() if how == "killed" else own_nanio.resume()
        records = worker.finish(large)

        assert [worker.values(record) for record in records] == [DOUBLED] * 6
        assert {(record.attempts, record.crashes) for record in records} == {(0, 0)}
    assert sorted(set(store.settled)) == sorted(store.settled), "each job settles once"


@pytest.mark.parametrize("trouble", [Trouble.SLOW_DOWN, Trouble.INTERNAL, Trouble.DENIED])
def test_a_store_that_is_busy_or_closed_to_us_is_asked_again(bucket: Bucket, tmp_path: Path, trouble: Trouble) -> None:
    """A wrong policy is the operator's to mend; no job must pay for it."""
    store = CountingStore()
    session = StubSession()
    with FaultyProxy(bucket.server) as proxy:
        with running(worker_over(bucket, tmp_path, proxy.url, store=store, session=session)) as worker:
            proxy.fail(trouble, times=3)
            (record,) = worker.finish(worker.submit(LARGE))
            assert worker.values(record) == DOUBLED

        assert proxy.failed == 3
    assert (record.attempts, store.settled) == (0, [record.id])
    assert len(session.item_runs) == 1, "the pass is not repeated"


def test_after_a_while_the_job_goes_back_free_and_runs_again(bucket: Bucket, tmp_path: Path) -> None:
    """Its worker is not held for ever: somebody, perhaps somewhere else, will run it again."""
    patience = UploadTerms(patience_s=0.2, backoff_s=(0.05, 0.1))
    with (
        FaultyProxy(bucket.server) as proxy,
        running(worker_over(bucket, tmp_path, proxy.url, upload_terms=patience)) as worker,
    ):
        proxy.fail(Trouble.SLOW_DOWN)
        ids = worker.submit(LARGE)
        worker.wait_for_epoch(ids[0], 2)
        proxy.heal()
        (record,) = worker.finish(ids)

        assert worker.values(record) == DOUBLED
    assert (record.attempts, record.crashes) == (0, 0)


def test_a_job_goes_back_before_its_run_counts_as_wedged(bucket: Bucket, tmp_path: Path) -> None:
    """A run timeout would cost an attempt."""
    with FaultyProxy(bucket.server) as proxy, running(worker_over(bucket, tmp_path, proxy.url)) as worker:
        proxy.fail(Trouble.SLOW_DOWN)
        ids = worker.submit(LARGE, run_timeout_s=QUICK.spare_s + 0.3)
        worker.wait_for_epoch(ids[0], 2)
        proxy.heal()
        (record,) = worker.finish(ids)

        assert worker.values(record) == DOUBLED
    assert record.attempts == 0


def test_a_result_that_the_store_will_never_take_is_the_jobs_own_error(bucket: Bucket, tmp_path: Path) -> None:
    with FaultyProxy(bucket.server) as proxy, running(worker_over(bucket, tmp_path, proxy.url)) as worker:
        proxy.fail(Trouble.TOO_LARGE)
        (record,) = worker.finish(worker.submit(LARGE))

    assert record.state is JobState.FAILED
    assert record.error is not None
    assert record.error.code == JobErrorCode.RESULT_UNWRITABLE
    assert record.attempts == 1


def test_a_drain_waits_for_uploads(bucket: Bucket, tmp_path: Path) -> None:
    with FaultyProxy(bucket.server) as proxy:
        worker = worker_over(bucket, tmp_path, proxy.url, s3_terms=S3Terms(attempts=1)).start()
        gate = proxy.hold()
        ids = worker.submit(LARGE, LARGE)
        proxy.wait_seen(2)
        drained = threading.Thread(target=worker.close)
        drained.start()
        gate.set()
        drained.join(30)
        assert not drained.is_alive()

    assert [record.state for record in worker.records(ids)] == [JobState.SUCCEEDED] * 2
    assert bucket.keys() == sorted(f"results/{job_id}/1" for job_id in ids)


def test_a_drain_during_an_outage_hands_back_free(bucket: Bucket, tmp_path: Path) -> None:
    with FaultyProxy(bucket.server) as proxy:
        worker = worker_over(bucket, tmp_path, proxy.url, drain_s=1.0).start()
        proxy.fail(Trouble.SLOW_DOWN)
        ids = worker.submit(LARGE, LARGE)
        proxy.wait_failed(3)
        worker.close()

    for record in worker.records(ids):
        assert (record.state, record.attempts, record.crashes) == (JobState.QUEUED, 0, 0)
    assert worker.store.workers() == []


def test_a_job_that_is_cancelled_during_an_outage_stays_so(bucket: Bucket, tmp_path: Path) -> None:
    with FaultyProxy(bucket.server) as proxy, running(worker_over(bucket, tmp_path, proxy.url)) as worker:
        proxy.fail(Trouble.SLOW_DOWN)
        ids = worker.submit(LARGE)
        proxy.wait_failed(1)
        worker.store.cancel(ids)
        proxy.heal()
        worker.finish(worker.submit(LARGE))

        assert worker.records(ids)[0].state is JobState.CANCELLED

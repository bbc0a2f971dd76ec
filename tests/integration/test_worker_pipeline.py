"""The stages of a worker together: what becomes of jobs, whatever happens on the way."""

import threading
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from batchfleet.errors import StoreUnavailableError
from batchfleet.inference.task import Array, ItemFault, PreparedItem
from batchfleet.jobs.job import JobErrorCode, Lane, NewJob, OnItemError, Settlement, SettleOutcome, new_job_id
from batchfleet.jobs.memory import MemoryStore
from batchfleet.jobs.states import JobState
from batchfleet.models.config import Limits
from tests.support.pipeline import WAIT_S, Gate, Pipeline
from tests.support.sessions import SAMPLE, NumberTask, StubSession
from workers.journal import read_journal


@contextmanager
def running(pipeline: Pipeline) -> Iterator[Pipeline]:
    pipeline.start()
    try:
        yield pipeline
    finally:
        pipeline.close()


def refuses(bad: float) -> StubSession:
    def behave(values: list[float]) -> Array | None:
        if bad in values:
            raise RuntimeError(f"no {bad}")
        return None

    return StubSession(behave)


def test_jobs_come_back_with_their_own_results(tmp_path: Path) -> None:
    with running(Pipeline(tmp_path)) as worker:
        ids = worker.submit(*[[float(n)] for n in range(200)])
        records = worker.finish(ids)

    assert [worker.values(record) for record in records] == [[2.0 * n] for n in range(200)]
    assert all(record.provenance and '"batch_items"' in record.provenance for record in records)


def test_a_job_of_more_items_than_a_batch_comes_back_whole_and_in_order(tmp_path: Path) -> None:
    with running(Pipeline(tmp_path, limits=Limits(max_batch_items=7, max_item_tokens=100))) as worker:
        ids = worker.submit([float(n) for n in range(100)])
        (record,) = worker.finish(ids)

    assert worker.values(record) == [2.0 * n for n in range(100)]


def test_one_bad_item_costs_its_own_job_only(tmp_path: Path) -> None:
    """B6: eight jobs, the fifth fails in the pass: seven succeed, one carries its own error."""
    session = refuses(5.0)
    gate = threading.Event()
    with running(Pipeline(tmp_path, session)) as worker:
        ids = worker.submit(*[[float(n)] for n in range(1, 9)])
        gate.set()
        records = worker.finish(ids)

    assert [record.state for record in records].count(JobState.SUCCEEDED) == 7
    assert records[4].state is JobState.FAILED
    assert records[4].error is not None
    assert records[4].error.code == JobErrorCode.PASS_FAILED
    assert records[4].error.item == 0


def test_an_item_error_fails_the_job_by_name_or_leaves_a_partial_result(tmp_path: Path) -> None:
    with running(Pipeline(tmp_path, refuses(5.0))) as worker:
        (strict,) = worker.submit([4.0, 5.0, 6.0])
        (partial,) = worker.submit([4.0, 5.0, 6.0], on_item_error=OnItemError.PARTIAL)
        failed, succeeded = worker.finish([strict, partial])

    assert failed.state is JobState.FAILED
    assert failed.error is not None
    assert failed.error.item == 1
    assert worker.values(succeeded) == [8.0, None, 12.0]


def test_a_retryable_error_is_tried_again(tmp_path: Path) -> None:
    """The job goes back with a delay; the relay (played here by an announcement) brings it again."""
    failing = threading.Event()
    failing.set()

    def behave(values: list[float]) -> Array | None:
        if 5.0 in values and failing.is_set():
            failing.clear()
            raise RuntimeError("once")
        return None

    store = MemoryStore(chance=lambda: 0.0)
    with running(Pipeline(tmp_path, StubSession(behave), store=store)) as worker:
        (job_id,) = worker.submit([5.0], max_attempts=2)
        # A worker without hints finds it in the database once its delay is over.
        (record,) = worker.finish([job_id])

    assert worker.values(record) == [10.0]
    assert record.attempts == 1


def test_items_with_different_parameters_never_share_a_pass(tmp_path: Path) -> None:
    """B10: the task's pass key keeps them apart."""
    session = StubSession()
    with running(Pipeline(tmp_path, session)) as worker:
        odd = worker.submit(*[[float(n)] for n in range(1, 40, 2)], parameters=b'{"odd": 1}')
        even = worker.submit(*[[float(n)] for n in range(2, 40, 2)], parameters=b'{"even": 1}')
        worker.finish(odd + even)

    for run in session.item_runs:
        assert len({value % 2 for value in run}) == 1


def test_a_result_too_large_for_a_row_goes_to_the_blob_store(tmp_path: Path) -> None:
    with running(Pipeline(tmp_path, result_row_bytes=100)) as worker:
        large, small = worker.submit([float(n) for n in range(50)], [1.0])
        records = worker.finish([large, small])

    assert records[0].result is not None
    assert records[0].result.blob_key == f"{large}/{records[0].epoch}"
    assert records[1].result is not None
    assert records[1].result.blob_key is None
    assert worker.values(records[0]) == [2.0 * n for n in range(50)]


def test_a_job_whose_version_is_gone_fails_by_name(tmp_path: Path) -> None:
    with running(Pipeline(tmp_path)) as worker:
        (record,) = worker.finish(worker.submit([1.0], version="9"))

    assert record.state is JobState.FAILED
    assert record.error is not None
    assert record.error.code == JobErrorCode.MODEL_NOT_FOUND


def test_an_expired_job_never_runs_although_the_device_is_busy(tmp_path: Path) -> None:
    """B8: the pass of A holds the device; B's second is over long before it ends."""
    gate = Gate(lambda values: 1.0 in values)
    session = StubSession(gate)
    with running(Pipeline(tmp_path, session)) as worker:
        first = worker.submit([1.0])
        assert gate.entered.wait(WAIT_S)
        second = worker.submit([2.0], ttl_s=0.2)
        (expired,) = worker.finish(second)
        gate.open.set()
        (ran,) = worker.finish(first)

    assert expired.state is JobState.EXPIRED
    assert ran.state is JobState.SUCCEEDED
    assert [2.0] not in session.runs


def test_a_cancelled_job_stays_cancelled_whatever_its_pass_gives(tmp_path: Path) -> None:
    gate = Gate(lambda values: 1.0 in values)
    with running(Pipeline(tmp_path, StubSession(gate))) as worker:
        ids = worker.submit([1.0])
        assert gate.entered.wait(WAIT_S)
        assert worker.store.cancel(ids) == [(ids[0], JobState.CANCELLED, True)]
        gate.open.set()
        done = worker.submit([3.0])
        worker.finish(done)

    assert worker.records(ids)[0].state is JobState.CANCELLED
    assert b"batchfleet_stale_settles_total 1.0" in worker.metrics.render()


def test_a_sick_device_convicts_nobody(tmp_path: Path) -> None:
    """The warm-up sample fails as well: all jobs go back free, and the worker asks for its end."""
    warm = threading.Event()

    def behave(values: list[float]) -> Array | None:
        if values[0] not in (SAMPLE, 0.0) or warm.is_set():
            warm.set()
            raise RuntimeError("the device is gone")
        return None

    worker = Pipeline(tmp_path, StubSession(behave)).start()
    ids = worker.submit([1.0], [2.0])
    assert worker.unfit.wait(WAIT_S)
    worker.close()

    records = worker.records(ids)
    assert [record.state for record in records] == [JobState.QUEUED] * 2
    assert [(record.attempts, record.crashes) for record in records] == [(0, 0)] * 2


def test_a_non_finite_row_fails_alone(tmp_path: Path) -> None:
    """B2: it is tried again alone once, and never stored as a success."""

    def behave(values: list[float]) -> Array | None:
        doubled = np.array(values, np.float32)[:, None] * 2
        doubled[np.array(values) == 5.0] = np.nan
        return doubled

    session = StubSession(behave)
    with running(Pipeline(tmp_path, session)) as worker:
        records = worker.finish(worker.submit(*[[float(n)] for n in range(1, 9)]))

    assert [record.state for record in records].count(JobState.SUCCEEDED) == 7
    assert records[4].error is not None
    assert records[4].error.code == JobErrorCode.NON_FINITE_OUTPUT
    assert session.item_runs.count([5.0]) >= 1


def test_the_journal_names_the_jobs_on_the_device(tmp_path: Path) -> None:
    gate = Gate(lambda values: 1.0 in values)
    with running(Pipeline(tmp_path, StubSession(gate))) as worker:
        ids = worker.submit([1.0])
        assert gate.entered.wait(WAIT_S)
        during = read_journal(worker.journal.path)
        gate.open.set()
        worker.finish(ids)
        after = read_journal(worker.journal.path)

    assert during is not None
    assert during.jobs == tuple(ids)
    assert after is not None
    assert after.jobs == ()


def test_a_drain_finishes_the_pass_and_hands_back_the_rest_free(tmp_path: Path) -> None:
    gate = Gate(lambda values: 1.0 in values)
    worker = Pipeline(tmp_path, StubSession(gate)).start()
    running_job = worker.submit([1.0])
    assert gate.entered.wait(WAIT_S)
    waiting = worker.submit(*[[float(n)] for n in range(2, 20)])
    drained = threading.Thread(target=worker.close)
    drained.start()
    gate.open.set()
    drained.join(WAIT_S)
    assert not drained.is_alive()

    assert worker.values(worker.records(running_job)[0]) == [2.0]
    for record in worker.records(waiting):
        assert (record.state, record.attempts, record.crashes) in (
            (JobState.QUEUED, 0, 0),
            (JobState.SUCCEEDED, 0, 0),
        )
    assert worker.store.workers() == []


def test_a_worker_whose_lease_is_in_doubt_claims_nothing(tmp_path: Path) -> None:
    worker = Pipeline(tmp_path)
    worker.start()
    worker.shared.lose()
    ids = worker.submit([1.0])
    worker.close()

    assert worker.records(ids)[0].state is JobState.QUEUED


class FlakyStore(MemoryStore):
    """A store whose settles fail for a while."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures
        self.settled: list[int] = []

    def settle(self, boot: str, rows: Sequence[Settlement], block: bytes) -> SettleOutcome:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailableError("away")
        outcome = super().settle(boot, rows, block)
        self.settled.append(len(outcome.applied))
        return outcome


class CountingStore(MemoryStore):
    """A store that remembers how many jobs each settle brought."""

    def __init__(self) -> None:
        super().__init__()
        self.settled: list[int] = []

    def settle(self, boot: str, rows: Sequence[Settlement], block: bytes) -> SettleOutcome:
        self.settled.append(len(rows))
        return super().settle(boot, rows, block)


ONE_AT_A_TIME = Limits(max_batch_items=1, max_item_tokens=100)


def test_ends_that_nobody_waits_for_are_settled_together(tmp_path: Path) -> None:
    store = CountingStore()
    with running(Pipeline(tmp_path, store=store, limits=ONE_AT_A_TIME)) as worker:
        worker.finish(worker.submit([0.0]))  # from now on the worker knows how fast it is
        worker.finish(worker.submit(*[[float(n)] for n in range(60)]))

    assert sum(store.settled) == 61
    assert len(store.settled) < 30, store.settled


def test_the_end_of_a_job_whose_caller_waits_is_settled_at_once(tmp_path: Path) -> None:
    """While the device runs on, and takes along what lingers."""
    gate = Gate(lambda values: 3.0 in values)
    store = CountingStore()
    with running(Pipeline(tmp_path, StubSession(gate), store=store, limits=ONE_AT_A_TIME)) as worker:
        first = worker.submit([1.0], lane=Lane.ONLINE)
        held = worker.submit([3.0])
        assert gate.entered.wait(WAIT_S)
        assert worker.finish(first)[0].state is JobState.SUCCEEDED  # rung before the pass behind it has ended
        gate.open.set()
        worker.finish(held)


def test_a_drain_settles_what_lingers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.pacing.LINGER_S", dict.fromkeys(Lane, 3600.0))
    gate = Gate(lambda values: 5.0 in values)
    worker = Pipeline(tmp_path, StubSession(gate), limits=ONE_AT_A_TIME).start()
    ids = worker.submit(*[[float(n)] for n in range(8)])
    assert gate.entered.wait(WAIT_S)
    drained = threading.Thread(target=worker.close)
    drained.start()
    gate.open.set()
    drained.join(WAIT_S)

    assert not drained.is_alive()
    records = worker.records(ids)
    assert records[5].state is JobState.SUCCEEDED
    assert {record.state for record in records} <= {JobState.SUCCEEDED, JobState.QUEUED}
    assert {record.state for record in records[:5]} == {JobState.SUCCEEDED}


def test_results_wait_for_a_database_that_is_away_and_settle_once(tmp_path: Path) -> None:
    store = FlakyStore(failures=2)
    with running(Pipeline(tmp_path, store=store)) as worker:
        records = worker.finish(worker.submit([1.0], [2.0], [3.0]))

    assert [worker.values(record) for record in records] == [[2.0], [4.0], [6.0]]
    assert sum(store.settled) == 3


@pytest.mark.parametrize("inputs", [b"[1.0", b'{"a": 1}', b"[1.0, 2.0]"])
def test_stored_inputs_that_cannot_be_read_fail_their_job_only(tmp_path: Path, inputs: bytes) -> None:
    """The edge checks what it stores; a row that is wrong all the same must not stop the worker."""
    with running(Pipeline(tmp_path)) as worker:
        broken = NewJob(
            id=new_job_id(), model=worker.model.name, version="1", inputs=inputs, item_count=1, max_attempts=1
        )
        good = replace(broken, id=new_job_id(), inputs=b"[1.0]", lane=Lane.BULK)
        worker.store.submit([broken, good])
        worker.announce([broken, good])
        bad, fine = worker.finish([broken.id, good.id])

    assert bad.state is JobState.FAILED
    assert worker.values(fine) == [2.0]


def test_a_run_that_takes_too_long_ends_and_makes_room_although_the_device_is_busy(tmp_path: Path) -> None:
    """Its items leave the window at once: nobody waits behind work that no longer counts."""
    gate = Gate(lambda values: 1.0 in values)
    session = StubSession(gate)
    limits = Limits(max_batch_items=4, max_item_tokens=100)
    with running(Pipeline(tmp_path, session, limits=limits)) as worker:
        first = worker.submit([1.0])
        assert gate.entered.wait(WAIT_S)
        (late,) = worker.finish(worker.submit([float(n) for n in range(2, 40)], run_timeout_s=0.3))
        gate.open.set()
        worker.finish(first)

    assert late.state is JobState.FAILED
    assert late.error is not None
    assert late.error.code == JobErrorCode.RUN_TIMEOUT
    # What the device had been handed before may run out; the rest was dropped.
    assert sum(len(run) for run in session.item_runs) <= 1 + 2 * 4


class GatedTask(NumberTask):
    """A task whose preparing holds until the test opens it."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def prepare(self, inputs: Sequence[object], parameters: Sequence[Hashable]) -> list[PreparedItem | ItemFault]:
        self._gate([float(str(value)) for value in inputs])
        return super().prepare(inputs, parameters)


def test_the_journal_names_the_jobs_that_are_being_prepared(tmp_path: Path) -> None:
    """An input can kill the process before any pass: it must be found, too."""
    gate = Gate(lambda values: 1.0 in values)
    with running(Pipeline(tmp_path, task=GatedTask(gate))) as worker:
        ids = worker.submit([1.0])
        assert gate.entered.wait(WAIT_S)
        during = read_journal(worker.journal.path)
        gate.open.set()
        worker.finish(ids)

    assert during is not None
    assert during.preparing == tuple(ids)


def test_gauges_tell_the_truth_when_all_is_done(tmp_path: Path) -> None:
    """B15: what the worker holds is nothing."""
    with running(Pipeline(tmp_path)) as worker:
        worker.finish(worker.submit(*[[float(n)] for n in range(100)]))

    assert b"batchfleet_window_items 0.0" in worker.metrics.render()


def test_a_job_that_has_started_runs_out_although_its_time_to_live_ends_between_its_batches(tmp_path: Path) -> None:
    """The time to live bounds the start; items of later batches must not be dropped, nor the job hang."""
    gate = Gate(lambda values: 1.0 in values)
    limits = Limits(max_batch_items=2, max_item_tokens=100)
    with running(Pipeline(tmp_path, StubSession(gate), limits=limits)) as worker:
        started = worker.submit([float(n) for n in range(1, 8)], ttl_s=0.4)
        assert gate.entered.wait(WAIT_S)
        (late,) = worker.finish(worker.submit([50.0], ttl_s=0.5))  # its end says that the time is over
        gate.open.set()
        (ran,) = worker.finish(started)

    assert late.state is JobState.EXPIRED
    assert worker.values(ran) == [2.0 * n for n in range(1, 8)]

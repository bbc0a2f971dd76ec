"""Mixes of jobs that batching systems fell over, each on the whole pipeline."""

from pathlib import Path

import msgspec
import pytest

from batchfleet.jobs.job import JobId, Lane
from batchfleet.jobs.states import JobState
from batchfleet.models.config import Limits
from tests.support.pipeline import WAIT_S, Gate, Pipeline
from tests.support.sessions import LengthTask, StubSession

FIRST = 1.0
LIMITS = Limits(max_batch_items=32, max_batch_tokens=1_024, max_item_tokens=1_000, max_pass_ms=10_000)


def held_worker(tmp_path: Path, limits: Limits = LIMITS) -> tuple[Pipeline, StubSession, Gate, JobId]:
    """Returns a worker whose device is held in a first pass, so that all that follows waits together."""
    gate = Gate(lambda values: FIRST in values)
    session = StubSession(gate)
    worker = Pipeline(tmp_path, session, limits=limits, task=LengthTask()).start()
    (first,) = worker.submit([FIRST])
    assert gate.entered.wait(WAIT_S)
    return worker, session, gate, first


def test_64_jobs_of_two_alternating_lengths_run_by_length(tmp_path: Path) -> None:
    """All come back with their own, and hardly a token is padded: 8 with 8, 128 with 128."""
    worker, session, gate, _ = held_worker(tmp_path)
    ids = worker.submit(*[[8.0 if n % 2 else 128.0] for n in range(64)])
    worker.wait_until_waiting(64)
    gate.open.set()
    records = worker.finish(ids)
    worker.close()

    assert [worker.values(record) for record in records] == [[16.0 if n % 2 else 256.0] for n in range(64)]
    shapes = session.shapes[session.runs.index([FIRST]) + 1 :]
    real, padded = 32 * (8 + 128), sum(rows * length for rows, length in shapes)
    assert padded <= 1.1 * real


@pytest.mark.parametrize("window_items", [1, 5, 32])
def test_a_job_of_more_items_than_a_batch_and_than_the_window(tmp_path: Path, window_items: int) -> None:
    """100 items, batches of 7, and a window that holds fewer than either: whole, in order, each item once."""
    limits = Limits(max_batch_items=7, max_batch_tokens=700, max_item_tokens=200)
    session = StubSession()
    worker = Pipeline(tmp_path, session, limits=limits, window_items=window_items, task=LengthTask()).start()
    numbers = [float(n) for n in range(1, 101)]
    (record,) = worker.finish(worker.submit(numbers))
    worker.close()

    assert worker.values(record) == [2 * number for number in numbers]
    ran = [value for run in session.item_runs for value in run]
    assert sorted(ran) == numbers


def test_a_window_smaller_than_the_batch_neither_stalls_nor_waits_for_a_full_one(tmp_path: Path) -> None:
    """Two items at once may be held, thirty-two would fill a batch: it must not wait for what it does not claim."""
    session = StubSession()
    worker = Pipeline(tmp_path, session, limits=LIMITS, window_items=2, window_s=0.01, task=LengthTask()).start()
    records = worker.finish(worker.submit(*[[float(n)] for n in range(2, 42)]))
    worker.close()

    assert [worker.values(record) for record in records] == [[2.0 * n] for n in range(2, 42)]


def test_a_stream_of_small_items_behind_one_large(tmp_path: Path) -> None:
    """The large one pads none of them, and none of them waits for it to find company."""
    worker, session, gate, _ = held_worker(tmp_path)
    ids = worker.submit([900.0], *[[10.0]] * 60)
    worker.wait_until_waiting(61)
    gate.open.set()
    records = worker.finish(ids)
    worker.close()

    assert [worker.values(record) for record in records] == [[1800.0], *[[20.0]] * 60]
    shapes = session.shapes[session.runs.index([FIRST]) + 1 :]
    assert (1, 900) in shapes, "alone"
    assert sum(rows for rows, length in shapes if length == 10) == 60


def test_cancels_in_the_window_in_the_prefetched_batch_and_in_the_pass(tmp_path: Path) -> None:
    """None of the cancelled has a result; none but the one on the device is ever run; the others are untouched."""
    limits = Limits(max_batch_items=4, max_batch_tokens=1_024, max_item_tokens=100)
    worker, _, gate, on_device = held_worker(tmp_path, limits)
    prefetched = worker.submit(*[[float(n)] for n in (10, 11, 12, 13)], lane=Lane.ONLINE)
    worker.wait_until_waiting(4)
    window = worker.submit(*[[float(n)] for n in (40, 41, 42, 43, 44, 45)])
    worker.wait_until_waiting(10)
    cancelled = [on_device, prefetched[1], prefetched[2], window[0], window[5]]
    worker.store.cancel(cancelled)
    worker.wait_until_waiting(6)
    gate.open.set()
    kept = [job for job in prefetched + window if job not in cancelled]
    records = worker.finish(kept)
    worker.close()

    assert [worker.values(record) for record in records] == [[2.0 * n] for n in (10, 13, 41, 42, 43, 44)]
    assert {record.state for record in worker.records(cancelled)} == {JobState.CANCELLED}
    told = [msgspec.json.decode(record.provenance or "") for record in records]
    assert all(one["batch_items"] >= 2 for one in told), "the places of the cancelled did not break up the batch"

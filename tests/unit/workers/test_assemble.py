"""The assembler: one batch ready while the device runs, formed anew while that can still help."""

import threading
from collections.abc import Iterator, Sequence
from queue import Queue

import pytest

from batchfleet.batching.batch import Batch, BatchLimits
from batchfleet.batching.cost import CostModel
from batchfleet.batching.item import Item
from batchfleet.batching.window import PassGroup
from batchfleet.clock import ManualClock
from batchfleet.jobs.job import JobId, Lane
from workers.assemble import Assembler

LIMITS = BatchLimits(max_items=4, max_tokens=1_000, max_delay_s=0.0)


def item(key: int, *, lane: Lane = Lane.BULK, job: str | None = None, deadline: float | None = None) -> Item:
    return Item(key, job or f"job{key}", 0, 10, lane, 0.0, deadline, "m", None)


class Bench:
    """An assembler with its thread, and what it said."""

    def __init__(self) -> None:
        self.clock = ManualClock(100.0)
        self.expired: Queue[Sequence[JobId]] = Queue()
        self.may_work = True
        self.assembler = Assembler(
            lambda _: PassGroup(LIMITS, CostModel(0.0, 0.0)), self.expired.put, lambda: self.may_work, self.clock
        )
        self._thread = threading.Thread(target=self.assembler.run, args=(threading.Event(),))
        self._thread.start()

    def close(self) -> None:
        self.assembler.close()
        self._thread.join(10)
        assert not self._thread.is_alive()

    def take(self) -> Batch:
        batch = self.assembler.take()
        assert batch is not None
        return batch


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


def keys(batch: Batch) -> set[int]:
    return {one.key for one in batch.items}


def test_a_batch_is_handed_out_once(bench: Bench) -> None:
    bench.assembler.add([item(0), item(1)])

    assert keys(bench.take()) == {0, 1}
    assert bench.assembler.backlog == 0


def test_items_that_arrive_before_the_device_is_free_join_the_waiting_batch(bench: Bench) -> None:
    bench.assembler.add([item(0)])
    bench.assembler.add([item(1)])

    assert keys(bench.take()) == {0, 1}


def test_a_more_urgent_lane_goes_before_a_full_batch_that_waits(bench: Bench) -> None:
    bench.assembler.add([item(key) for key in range(4)])
    bench.assembler.add([item(9, lane=Lane.ONLINE)])

    assert 9 in keys(bench.take())


def test_a_withdrawn_job_leaves_the_waiting_batch(bench: Bench) -> None:
    bench.assembler.add([item(0, job="a"), item(1, job="b")])

    assert bench.assembler.discard("a") == 1
    assert keys(bench.take()) == {1}


def test_a_job_expires_on_time_while_the_device_is_busy(bench: Bench) -> None:
    """B8: nobody takes a batch, and still the job ends at its time, never having run."""
    bench.assembler.add([item(0, job="a", deadline=101.0)])

    bench.clock.advance(1.0)
    bench.assembler.add([item(1, job="b")])  # any change makes the thread look at the clock

    assert bench.expired.get(timeout=10) == ["a"]
    assert keys(bench.take()) == {1}


def test_no_batch_is_handed_out_while_the_lease_is_in_doubt(bench: Bench) -> None:
    bench.may_work = False
    bench.assembler.add([item(0)])
    taken: Queue[Batch] = Queue()
    taker = threading.Thread(target=lambda: taken.put(bench.take()))
    taker.start()

    bench.may_work = True

    assert keys(taken.get(timeout=10)) == {0}
    taker.join(10)


def test_closing_ends_a_waiting_take_and_drops_what_comes_later(bench: Bench) -> None:
    taken: Queue[Batch | None] = Queue()
    taker = threading.Thread(target=lambda: taken.put(bench.assembler.take()))
    taker.start()

    bench.assembler.close()

    assert taken.get(timeout=10) is None
    taker.join(10)
    bench.assembler.add([item(0)])
    assert bench.assembler.backlog == 0

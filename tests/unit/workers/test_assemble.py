"""The assembler: one batch ready while the device runs, formed anew while that can still help."""

import threading
from collections.abc import Iterator, Sequence
from queue import Empty, Queue

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


def test_an_idle_device_gets_its_batch_from_whoever_brings_the_items() -> None:
    """No thread of the assembler runs here: none is on the way of a lone job."""
    assembler = Assembler(lambda _: PassGroup(LIMITS, CostModel(0.0, 0.0)), lambda _: None, lambda: True)
    taken: Queue[Batch | None] = Queue()
    taker = threading.Thread(target=lambda: taken.put(assembler.take()))
    taker.start()
    for key in range(1000):  # the first of them may come before the device waits
        assembler.add([item(key)])
        try:
            batch = taken.get(timeout=0.02)
            break
        except Empty:
            continue

    assert batch is not None
    assert batch.items
    taker.join(10)


def test_a_rest_ends_when_the_device_takes_the_batch_that_waits(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.assemble.rest_s", lambda lanes: 30.0 if Lane.ONLINE in set(lanes) else 0.0)
    rested: Queue[bool] = Queue()

    def rest() -> None:
        bench.assembler.rest()
        rested.put(True)

    rest()  # nothing waits
    bench.assembler.add([item(key) for key in range(8)])
    bench.take()
    rest()  # the batch that waits is of bulk: a more urgent item would go before it
    assert rested.qsize() == 2

    bench.assembler.add([item(20, lane=Lane.ONLINE)])
    resting = threading.Thread(target=rest)
    resting.start()
    assert 20 in keys(bench.take())
    resting.join(10)
    assert not resting.is_alive()


def test_the_device_is_lent_only_while_nobody_asks_for_what_waits(bench: Bench) -> None:
    bench.may_work = True
    assert (bench.assembler.spare(), bench.assembler.idle()) == (True, True)

    bench.assembler.add([item(0), item(1)])
    assert (bench.assembler.spare(), bench.assembler.idle()) == (True, False)

    for lane in (Lane.STANDARD, Lane.ONLINE):
        key = 2 if lane is Lane.STANDARD else 3
        bench.assembler.add([item(key, lane=lane)])
        assert not bench.assembler.spare()
        bench.assembler.discard(f"job{key}")
        assert bench.assembler.spare()

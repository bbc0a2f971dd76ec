"""What a worker learns, what it tells the fleet, and what the fleet tells it."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchfleet.batching.ceilings import QUIET_S, Ceilings
from batchfleet.clock import ManualClock
from batchfleet.errors import StoreUnavailableError
from batchfleet.inference.executor import WarmPass, WarmUpReport
from batchfleet.inference.shapes import PassShape
from batchfleet.models.repository import ModelRef
from batchfleet.profiles.memory import MemoryProfiles
from batchfleet.profiles.port import Lesson, Profile, ProfileKey, ProfileStore, Rate
from batchfleet.profiles.sql import SqlProfiles
from tests.support.pipeline import Gate, Pipeline
from tests.support.sessions import StubSession
from tests.support.stores import sqlite_url
from workers.learn import IN_USE_S, Learning

REF = ModelRef("tiny", "1")
KEY = ProfileKey("tiny", "1", "fp32", "cpu/Xeon/1 thread")
WAIT_S = 20.0


def true_seconds(count: int, length: int) -> float:
    """A device on which batches of eight are cheap, which no formula of tokens tells."""
    return (0.002 + 1e-5 * count * length) * (0.5 if count == 8 else 1.0)


def warm(*shapes: tuple[int, int], speed: float = 1.0, too_large: tuple[PassShape, ...] = ()) -> WarmUpReport:
    passes = tuple(
        WarmPass(PassShape(count, length), 1.0, true_seconds(count, length) * speed) for count, length in shapes
    )
    return WarmUpReport(passes, 1.0, too_large)


CORNERS = ((1, 16), (1, 256), (16, 16), (16, 256))


class Away(MemoryProfiles):
    """A store that can be away."""

    away = False

    def load(self, key: ProfileKey) -> Profile:
        self._check()
        return super().load(key)

    def tell(self, key: ProfileKey, lesson: Lesson) -> None:
        self._check()
        super().tell(key, lesson)

    def _check(self) -> None:
        if self.away:
            raise StoreUnavailableError("the database is away")


class Watched(MemoryProfiles):
    """A store that says when it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.told = threading.Semaphore(0)

    def tell(self, key: ProfileKey, lesson: Lesson) -> None:
        super().tell(key, lesson)
        self.told.release()


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ProfileStore]:
    made = MemoryProfiles() if request.param == "memory" else SqlProfiles(sqlite_url(tmp_path))
    yield made
    made.close()


def worker(store: ProfileStore, report: WarmUpReport | None = None, clock: ManualClock | None = None) -> Learning:
    made = Learning(store) if clock is None else Learning(store, clock=clock, wall=clock)
    made.begin(REF, KEY, warm(*CORNERS) if report is None else report)
    return made


def run_passes(learning: Learning, times: int = 30, speed: float = 1.0) -> None:
    for _ in range(times):
        for length in (16, 64, 256):
            learning.observe(REF, 8, length, true_seconds(8, length) * speed)


def error(learning: Learning, count: int, length: int, speed: float = 1.0) -> float:
    truth = true_seconds(count, length) * speed
    return abs(learning.cost(REF).seconds(count, length) / truth - 1)


def test_a_new_worker_starts_informed(store: ProfileStore) -> None:
    first = worker(store)
    assert error(first, 8, 64) > 0.5  # nothing that it warmed up told of this
    run_passes(first)
    first.exchange()

    second = worker(store)

    assert error(second, 8, 64) < 0.15
    assert error(second, 8, 256) < 0.15
    assert error(second, 1, 16) < 0.25


def test_it_starts_at_the_speed_of_its_own_machine(store: ProfileStore) -> None:
    first = worker(store)
    run_passes(first)
    first.exchange()

    second = worker(store, warm(*CORNERS, speed=2.0))

    assert error(second, 8, 64, speed=2.0) < 0.15


def test_one_on_a_fresh_database_goes_by_its_warm_up(store: ProfileStore) -> None:
    assert max(error(worker(store), count, length) for count, length in CORNERS) < 0.05


def test_a_worker_that_runs_takes_over_shapes_that_it_has_not_met() -> None:
    store = MemoryProfiles()
    first, second = worker(store), worker(store)
    run_passes(first)
    first.exchange()

    second.exchange()

    assert error(second, 8, 64) < 0.15


def test_a_model_of_one_shape_has_nothing_to_tell_yet() -> None:
    store = MemoryProfiles()
    learning = worker(store, warm((1, 16)))

    learning.exchange()

    assert store.load(KEY).costs == ()
    learning.observe(REF, 1, 32, 0.01)
    learning.exchange()
    assert [cost.length for cost in store.load(KEY).costs] == [32]


def test_what_is_told_is_told_once_and_idle_models_now_and_then() -> None:
    store, clock = MemoryProfiles(), ManualClock()
    learning = worker(store, clock=clock)
    for _ in range(5):
        learning.observe(REF, 8, 64, 0.01)
    learning.worked(REF, 40, 4_000.0, 0.05)
    for _ in range(3):
        learning.exchange()

    profile = store.load(KEY)
    assert sum(cost.weight for cost in profile.costs) == len(CORNERS) + 5
    assert profile.rate == Rate(40, 4_000.0, 0.05)

    told = []
    store.tell = lambda key, lesson: told.append(lesson)  # type: ignore[method-assign]
    learning.exchange()
    assert told == []
    clock.advance(IN_USE_S)
    learning.exchange()
    assert told == [Lesson()]


def test_memory_that_ran_out_is_told_at_once_and_binds_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.learn.FIRST_EXCHANGE_S", 3_600.0)
    store = Watched()
    learning = worker(store)
    stopping = threading.Event()
    thread = threading.Thread(target=learning.run, args=(stopping,))
    thread.start()
    try:
        ceilings = learning.ran_out(REF, 32, 512)

        assert ceilings.most_rows(512) == 16
        assert store.told.acquire(timeout=WAIT_S)  # long before the next exchange is due
        assert worker(store).ceilings(REF).most_rows(600) == 16
        assert worker(store).ceilings(REF).most_rows(64) is None
    finally:
        stopping.set()
        learning.wake()
        thread.join(WAIT_S)
    assert not thread.is_alive()


def test_the_first_work_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fleet that never ran the model knows from its first pass on what waits."""
    monkeypatch.setattr("workers.learn.FIRST_EXCHANGE_S", 3_600.0)
    store = Watched()
    learning = worker(store)
    learning.exchange()
    assert store.told.acquire(timeout=WAIT_S)
    stopping = threading.Event()
    thread = threading.Thread(target=learning.run, args=(stopping,))
    thread.start()
    try:
        learning.worked(REF, 3, 30.0, 0.5)

        assert store.told.acquire(timeout=WAIT_S)
        assert store.load(KEY).rate == Rate(3, 30.0, 0.5)
    finally:
        stopping.set()
        learning.wake()
        thread.join(WAIT_S)


def test_shapes_that_the_warm_up_could_not_hold_bind_from_the_start() -> None:
    learning = worker(MemoryProfiles(), warm(*CORNERS, too_large=(PassShape(64, 256),)))

    assert learning.ceilings(REF).most_rows(256) == 32


def test_a_ceiling_grows_again_while_the_worker_runs() -> None:
    clock = ManualClock(1_000.0)
    learning = worker(MemoryProfiles(clock), clock=clock)
    learning.ran_out(REF, 32, 512)
    clock.advance(1.5 * QUIET_S)

    assert learning.ceilings(REF).most_rows(512) == 32
    assert learning.ran_out(REF, 32, 512).most_rows(512) == 16


def test_the_clock_of_the_database_counts() -> None:
    ours, theirs = ManualClock(1_000.0), ManualClock(5_000_000.0)
    store = MemoryProfiles(theirs)
    store.tell(KEY, Lesson(ceilings=Ceilings().lowered(512, 32, theirs() - 1.5 * QUIET_S)))

    learning = worker(store, clock=ours)

    assert learning.ceilings(REF).most_rows(512) == 32


def test_a_database_that_is_away_costs_nothing_that_was_learned() -> None:
    store = Away()
    store.away = True
    learning = worker(store)
    run_passes(learning, times=2)
    learning.worked(REF, 48, 480.0, 0.1)
    assert learning.ran_out(REF, 32, 512).most_rows(512) == 16
    for _ in range(2):
        with pytest.raises(StoreUnavailableError):
            learning.exchange()
        learning.worked(REF, 1, 10.0, 0.1)
    store.away = False

    learning.exchange()

    profile = store.load(KEY)
    assert sum(cost.weight for cost in profile.costs) == len(CORNERS) + 6
    assert profile.rate.items == 50
    assert profile.ceilings.most_rows(512) == 16


def test_the_thread_outlives_an_outage_and_tells_at_the_end() -> None:
    store = Away()
    learning = worker(store)
    store.away = True
    stopping = threading.Event()
    thread = threading.Thread(target=learning.run, args=(stopping,))
    thread.start()
    learning.ran_out(REF, 32, 512)
    learning.worked(REF, 1, 1.0, 1.0)
    store.away = False
    stopping.set()
    learning.wake()
    thread.join(WAIT_S)

    assert not thread.is_alive()
    assert store.load(KEY).ceilings.most_rows(512) == 16
    assert store.load(KEY).rate.items == 1


def test_a_running_worker_learns_the_rate_of_its_work(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path).start()
    jobs = [(1.0,), (2.0, 3.0), (4.0, 5.0, 6.0)]
    pipeline.finish(pipeline.submit(*jobs))
    pipeline.close()
    pipeline.learning.exchange()

    (known,) = pipeline.profiles.rates()

    assert (known.key.model, known.key.version) == (pipeline.model.name, pipeline.model.version)
    assert known.rate.items == 6
    assert known.rate.input_bytes == pytest.approx(len("[1.0]") + len("[2.0,3.0]") + len("[4.0,5.0,6.0]"))
    assert known.rate.seconds > 0


class Broken(MemoryProfiles):
    """A store whose code is wrong: it raises what no outage is."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Semaphore(0)

    def load(self, key: ProfileKey) -> Profile:
        self.asked.release()
        raise ZeroDivisionError(str(key))


def test_a_worker_serves_whatever_is_wrong_with_what_was_learned(caplog: pytest.LogCaptureFixture) -> None:
    store = Broken()

    learning = worker(store)

    assert error(learning, 16, 256) < 0.05  # by its own warm-up
    stopping = threading.Event()
    thread = threading.Thread(target=learning.run, args=(stopping,))
    thread.start()
    for _ in range(3):
        learning.wake()
        assert store.asked.acquire(timeout=WAIT_S)
    stopping.set()
    learning.wake()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    told = [record for record in caplog.records if vars(record).get("action") == "learning_failed"]
    assert len(told) == 2, "once at the start, and once of the exchange"


def test_a_clock_that_stood_still_in_the_warm_up_is_survived() -> None:
    report = WarmUpReport((WarmPass(PassShape(1, 16), 0.0, 1e-320), WarmPass(PassShape(16, 64), 0.0, 0.0)), 0.0)
    learning = worker(MemoryProfiles(), report)

    assert learning.observe(REF, 1, 16, float("nan")) == learning.cost(REF)
    learning.exchange()


def test_an_item_of_a_withdrawn_job_is_no_work(tmp_path: Path) -> None:
    """Items and bytes are of the same jobs: those that ran."""
    gate = Gate(lambda values: 50.0 in values)
    pipeline = Pipeline(tmp_path, StubSession(gate)).start()
    first = pipeline.submit([50.0])
    assert gate.entered.wait(WAIT_S)
    kept, gone = pipeline.submit([1.0, 2.0], [3.0, 4.0, 5.0])
    pipeline.wait_until_waiting(5)
    active = pipeline.drain.active
    job = active.get(gone)
    assert job is not None
    active.remove(job)  # withdrawn, and its items not yet discarded: what a cancel meets in between
    gate.open.set()
    pipeline.finish([*first, kept])
    pipeline.close()
    pipeline.learning.exchange()

    (known,) = pipeline.profiles.rates()
    assert known.rate.items == 3
    assert known.rate.input_bytes == pytest.approx(len("[50.0]") + len("[1.0,2.0]"))

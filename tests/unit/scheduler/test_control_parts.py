"""The control plane's parts, one by one, with time in the test's hands."""

import threading
from collections.abc import Iterator

import pytest

from batchfleet.clock import ManualClock
from batchfleet.errors import StoreUnavailableError
from batchfleet.jobs.job import new_job_id
from batchfleet.outbox.delivery import DueDelivery
from batchfleet.outbox.guard import parse_networks
from batchfleet.outbox.sealing import Sealer
from batchfleet.settings import Settings
from scheduler.celery_app import BEAT_S, DELIVER, PURGE, QUEUE, SWEEP_ORPHANS, Tasks, build_celery
from scheduler.direct import WAITING_PER_THREAD, DirectPool
from scheduler.doorbell import MOST_UNANSWERED, UNANSWERED_S, Doorbell
from scheduler.postman import GAP_S, Postman
from scheduler.work import UnderWay

WAIT_S = 30.0


# -- what is under way -------------------------------------------------------------------------------------------------


def test_a_stop_waits_for_what_is_under_way_and_lets_nothing_more_in() -> None:
    under_way = UnderWay()
    inside, leave = threading.Event(), threading.Event()

    def task() -> None:
        with under_way.entered() as entered:
            assert entered
            inside.set()
            leave.wait(WAIT_S)

    thread = threading.Thread(target=task)
    thread.start()
    inside.wait(WAIT_S)
    assert not under_way.close(0.0)
    with under_way.entered() as entered:
        assert not entered

    leave.set()

    assert under_way.close(WAIT_S)
    thread.join()


# -- the pool ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def pool() -> Iterator[DirectPool]:
    made = DirectPool(1)
    yield made
    made.close()


def test_the_pool_is_bounded_and_takes_more_when_it_has_done_some(pool: DirectPool) -> None:
    leave, left = threading.Event(), threading.Event()
    assert pool.submit(lambda: leave.wait(WAIT_S))
    assert all(pool.submit(lambda: None) for _ in range(WAITING_PER_THREAD - 1))
    assert pool.submit(left.set)
    assert pool.room == 0
    assert not pool.submit(lambda: None)

    leave.set()
    left.wait(WAIT_S)

    while not pool.submit(lambda: None):
        pass


def test_a_closed_pool_takes_nothing(pool: DirectPool) -> None:
    pool.close()

    assert not pool.submit(lambda: None)
    assert pool.room > 0


def test_a_task_that_raises_leaves_its_place(pool: DirectPool) -> None:
    done = threading.Event()

    def fail() -> None:
        raise ValueError("no")

    assert pool.submit(fail)
    assert pool.submit(done.set)

    assert done.wait(WAIT_S)


# -- the doorbell ------------------------------------------------------------------------------------------------------


class Bell:
    """A doorbell whose broker is a list, and whose pool is this thread."""

    def __init__(self, *, broker: bool = True) -> None:
        self.clock = ManualClock()
        self.sent: list[tuple[str, ...]] = []
        self.answered: list[str] = []
        self.away = False
        app = build_celery(Settings(), Tasks(deliver=self.answered.append, duties={PURGE: self._purge}))
        self.doorbell = Doorbell(app, _Here(1), self._send if broker else None, self.clock)

    def _send(self, *call: str) -> bool:
        if not self.away:
            self.sent.append(call)
        return not self.away

    def _purge(self) -> None:
        self.answered.append("purged")


class _Here(DirectPool):
    def submit(self, task: object) -> bool:
        assert callable(task)
        task()
        return True


def test_rings_go_over_the_broker() -> None:
    bell = Bell()

    bell.doorbell.ring(DueDelivery("a", 0))
    bell.doorbell.ask(PURGE)

    assert bell.sent == [(DELIVER, "a"), (PURGE,)]
    assert bell.answered == []


@pytest.mark.parametrize("broker", [True, False])
def test_without_the_broker_rings_are_answered_here(broker: bool) -> None:
    bell = Bell(broker=broker)
    bell.away = True

    bell.doorbell.ring(DueDelivery("a", 0))
    bell.doorbell.ask(PURGE)

    assert bell.answered == ["a", "purged"]


def test_a_ring_that_was_in_vain_is_answered_here() -> None:
    bell = Bell()
    bell.doorbell.ring(DueDelivery("a", 0))

    bell.doorbell.ring(DueDelivery("a", 0))

    assert bell.sent == [(DELIVER, "a")]
    assert bell.answered == ["a"]


def test_the_next_attempt_is_rung_for_over_the_broker_again() -> None:
    bell = Bell()
    bell.doorbell.ring(DueDelivery("a", 0))

    bell.doorbell.ring(DueDelivery("a", 1))

    assert bell.sent == [(DELIVER, "a")] * 2
    assert bell.answered == []


def test_the_broker_stays_shallow() -> None:
    bell = Bell()
    ids = [new_job_id() for _ in range(MOST_UNANSWERED)]
    for each in ids:
        bell.doorbell.ring(DueDelivery(each, 0))
    assert bell.doorbell.room == 0

    bell.doorbell.answered(ids[0])
    assert bell.doorbell.room == 1

    bell.clock.advance(UNANSWERED_S)
    assert bell.doorbell.room == MOST_UNANSWERED


# -- celery ------------------------------------------------------------------------------------------------------------


def test_an_application_is_of_its_own() -> None:
    """Celery shares tasks between applications unless it is told not to."""
    first: list[str] = []
    second: list[str] = []
    one = build_celery(Settings(), Tasks(deliver=first.append))
    other = build_celery(Settings(), Tasks(deliver=second.append))

    other.tasks[DELIVER].apply(("x",))
    one.tasks[DELIVER].apply(("y",))

    assert (first, second) == (["y"], ["x"])
    assert other.conf.task_default_queue == QUEUE
    assert PURGE not in one.tasks


def test_each_duty_has_its_beat() -> None:
    app = build_celery(Settings(), Tasks(deliver=lambda _: None, duties=dict.fromkeys(BEAT_S, lambda: None)))

    assert {name: entry["schedule"].run_every.total_seconds() for name, entry in app.conf.beat_schedule.items()} == {
        PURGE: 60.0,
        SWEEP_ORPHANS: 300.0,
    }


# -- the postman -------------------------------------------------------------------------------------------------------


class Due:
    """An outbox of which only the times count."""

    def __init__(self) -> None:
        self.next_s: float | None = None
        self.away = False
        self.looks = 0
        self.limits: list[int] = []

    def next_due_s(self) -> float | None:
        self.looks += 1
        if self.away:
            raise StoreUnavailableError("away")
        return self.next_s

    def take_due(self, limit: int, *, resend_s: float, without: object, per_lane: int) -> list[DueDelivery]:
        self.limits.append(limit)
        return [DueDelivery("a", 0)]


@pytest.fixture
def outbox() -> Due:
    return Due()


def postman(outbox: Due, bell: Bell) -> Postman:
    return Postman(outbox, bell.doorbell, idle_s=5.0)  # type: ignore[arg-type]


def test_the_postman_sleeps_until_something_is_due(outbox: Due) -> None:
    bell = Bell()
    waits = []
    for outbox.next_s in (None, 3.0, 60.0):
        waits.append(postman(outbox, bell).once())

    assert waits == [5.0, 3.0, 5.0]
    assert bell.sent == []


def test_the_postman_rings_for_what_is_due_and_looks_again_soon(outbox: Due) -> None:
    bell = Bell()
    outbox.next_s = 0.0

    assert postman(outbox, bell).once() == GAP_S
    assert bell.sent == [(DELIVER, "a")]
    assert outbox.limits == [MOST_UNANSWERED]


def test_the_postman_takes_nothing_where_there_is_no_room(outbox: Due) -> None:
    bell = Bell()
    for _ in range(MOST_UNANSWERED):
        bell.doorbell.ring(DueDelivery(new_job_id(), 0))
    outbox.next_s = 0.0

    postman(outbox, bell).once()

    assert outbox.limits == []


def test_the_postman_waits_for_a_database_that_is_away(outbox: Due) -> None:
    outbox.away = True
    worker = postman(outbox, Bell())
    assert worker.once() == 2.0

    outbox.away = False
    assert worker.once() == 5.0


def test_a_ring_wakes_the_postman_and_a_stop_ends_it(outbox: Due) -> None:
    worker = postman(outbox, Bell())
    worker._idle_s = 3_600.0
    looked = threading.Semaphore(0)
    once = worker.once

    def watched() -> float:
        found = once()
        looked.release()
        return found

    worker.once = watched  # type: ignore[method-assign]
    stopping = threading.Event()
    thread = threading.Thread(target=worker.run, args=(stopping,))
    thread.start()
    assert looked.acquire(timeout=WAIT_S)

    worker.heard(["a"])
    assert looked.acquire(timeout=WAIT_S)

    stopping.set()
    worker.wake()
    thread.join(WAIT_S)
    assert not thread.is_alive()


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key", ["MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=", "-_-_Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE0NTY="]
)
def test_what_the_settings_let_pass_can_be_used(key: str) -> None:
    settings = Settings(secret_key=key, webhook_networks=("10.0.0.0/8", "fd00::/8"))  # type: ignore[arg-type]
    assert settings.secret_key is not None

    sealer = Sealer(settings.secret_key.get_secret_value().split(","))

    assert sealer.open(sealer.seal("a secret")) == "a secret"
    assert len(parse_networks(settings.webhook_networks)) == 2

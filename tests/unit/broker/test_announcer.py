"""The announcer: never in anyone's way, and nothing lost unseen."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from batchfleet.broker.announcer import Announcer
from batchfleet.broker.hint import Flow, Hint
from batchfleet.broker.memory import MemoryBroker, MemoryHub
from batchfleet.jobs.job import Announcement, Lane, new_job_id
from batchfleet.telemetry import Metrics

FLOW = Flow("minilm", Lane.ONLINE)
WAIT_S = 30.0


class GatedBroker(MemoryBroker):
    """A broker whose publishes stand still until they are let through."""

    def __init__(self, hub: MemoryHub) -> None:
        super().__init__(hub)
        self.entered = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)
        self.calls: list[int] = []
        self.closed = threading.Event()

    def publish(self, hints: Sequence[Hint]) -> None:
        self.calls.append(sum(len(hint.ids) for hint in hints))
        self.entered.release()
        assert self.gate.acquire(timeout=WAIT_S)
        super().publish(hints)

    def close(self) -> None:
        self.closed.set()


def jobs(count: int) -> list[Announcement]:
    return [Announcement(new_job_id(), FLOW.model, FLOW.lane, "default", 100) for _ in range(count)]


def value(counter: Any) -> float:
    return float(counter._value.get())


@pytest.fixture
def hub() -> MemoryHub:
    return MemoryHub()


@pytest.fixture
def broker(hub: MemoryHub) -> GatedBroker:
    return GatedBroker(hub)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def test_jobs_are_announced(hub: MemoryHub, metrics: Metrics) -> None:
    announcer, told = Announcer(MemoryBroker(hub), metrics=metrics), jobs(3)
    announcer.start()
    announcer.announce(told)

    (hint,) = MemoryBroker(hub).pull([FLOW], 10, WAIT_S)

    assert hint.ids == tuple(job.id for job in told)
    announcer.close()


def test_what_arrives_during_a_publish_goes_out_together(broker: GatedBroker, metrics: Metrics) -> None:
    announcer = Announcer(broker, metrics=metrics)
    announcer.start()
    announcer.announce(jobs(1))
    assert broker.entered.acquire(timeout=WAIT_S)
    for _ in range(20):
        announcer.announce(jobs(2))
    broker.gate.release(2)
    announcer.close(WAIT_S)

    assert broker.calls == [1, 40]


def test_more_than_fits_is_dropped_and_counted(broker: GatedBroker, metrics: Metrics) -> None:
    announcer = Announcer(broker, metrics=metrics, capacity=5)
    announcer.start()
    announcer.announce(jobs(1))
    assert broker.entered.acquire(timeout=WAIT_S)
    announcer.announce(jobs(4))
    announcer.announce(jobs(4))
    announcer.announce(jobs(4))
    broker.gate.release(2)
    announcer.close(WAIT_S)

    assert broker.calls == [1, 5]
    assert value(metrics.announcements_dropped) == 7


def test_a_broker_that_is_away_costs_hints_and_nothing_else(hub: MemoryHub, metrics: Metrics) -> None:
    hub.down = True
    announcer = Announcer(MemoryBroker(hub), metrics=metrics)
    announcer.start()
    announcer.announce(jobs(2))
    while not value(metrics.announcements_failed):
        pass
    hub.down = False
    announcer.announce(jobs(3))
    (hint,) = MemoryBroker(hub).pull([FLOW], 10, WAIT_S)
    announcer.close()

    assert len(hint.ids) == 3
    assert value(metrics.announcements_failed) == 2


def test_close_announces_what_waits_and_closes_the_broker(hub: MemoryHub, metrics: Metrics) -> None:
    broker = GatedBroker(hub)
    broker.gate.release(10)
    announcer = Announcer(broker, metrics=metrics)
    announcer.announce(jobs(3))
    announcer.start()
    announcer.close(WAIT_S)
    announcer.close(WAIT_S)
    announcer.announce(jobs(2))

    assert sum(broker.calls) == 3
    assert broker.closed.is_set()
    assert value(metrics.announcements_dropped) == 2


def test_close_gives_up_on_a_broker_that_hangs(broker: GatedBroker, metrics: Metrics) -> None:
    announcer = Announcer(broker, metrics=metrics)
    announcer.start()
    announcer.announce(jobs(1))
    assert broker.entered.acquire(timeout=WAIT_S)

    announcer.close(0.01)

    assert not broker.closed.is_set()
    broker.gate.release()
    announcer.close(WAIT_S)


def test_an_announcer_that_never_started_can_be_closed(broker: GatedBroker, metrics: Metrics) -> None:
    Announcer(broker, metrics=metrics).close()

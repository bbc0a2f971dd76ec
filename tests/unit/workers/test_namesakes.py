"""Q19: a live lease of the same name is told of; a predecessor that died is not taken for a rival for long."""

import logging

import pytest

from batchfleet.clock import ManualClock
from batchfleet.jobs.job import WorkerLease, WorkerState
from batchfleet.jobs.memory import MemoryStore
from workers.namesakes import Namesakes

OTHER, OURS = "a" * 32, "b" * 32
TTL_S = 15.0


def lease(boot: str, name: str = "host") -> WorkerLease:
    return WorkerLease(boot=boot, name=name, pid=1, state=WorkerState.READY)


def test_two_live_workers_of_one_name_are_told_of_twice(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(100.0)
    store = MemoryStore(clock=clock)
    store.register(lease(OTHER))
    store.register(lease(OURS))
    namesakes = Namesakes("host", OURS, TTL_S, clock)

    namesakes.look(store)
    namesakes.look(store)
    clock.advance(2 * TTL_S)
    store.heartbeat(OTHER, WorkerState.READY)
    namesakes.look(store)
    namesakes.look(store)

    assert [record.levelno for record in caplog.records] == [logging.WARNING, logging.ERROR]
    assert all("BATCHFLEET_WORKER_NAME" in record.getMessage() for record in caplog.records)


def test_a_dead_predecessor_is_no_rival(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(100.0)
    store = MemoryStore(clock=clock)
    store.register(lease(OTHER))
    namesakes = Namesakes("host", OURS, TTL_S, clock)

    namesakes.look(store)
    clock.advance(2 * TTL_S)
    namesakes.look(store)

    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_other_names_and_silent_leases_are_nobodys_business(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(100.0)
    store = MemoryStore(clock=clock)
    store.register(lease(OTHER))
    clock.advance(2 * TTL_S)
    store.register(lease("c" * 32, "another"))

    Namesakes("host", OURS, TTL_S, clock).look(store)

    assert not caplog.records

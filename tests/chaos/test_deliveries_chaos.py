"""Webhooks through everything that can die: schedulers, the broker, and the order of things."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchfleet.outbox.delivery import DeliveryState
from batchfleet.outbox.signature import webhook_id
from tests.support.control import Fleet, fleet, running_control, scheduler_process, wait_until
from tests.support.postgres import empty_database
from tests.support.receivers import WAIT_S, Call, Receiver, receiver
from tests.support.servers import ValkeyServer
from tests.support.stores import sqlite_url

RESTARTS = 5
LEASE_S = 1.0


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with receiver() as opened:
        yield opened


@pytest.fixture
def made(own_valkey: ValkeyServer, tmp_path: Path) -> Iterator[Fleet]:
    with fleet(sqlite_url(tmp_path), tmp_path, broker_url=own_valkey.url) as opened:
        yield opened


def send(made: Fleet, hook: Receiver) -> str:
    """Ends a job, and waits until that has arrived."""
    job = made.submit(callback_url=hook.url)
    made.cancel(job)
    expected = webhook_id(made.delivery(job).id)
    while hook.next().id != expected:
        pass
    made.await_state(job, DeliveryState.DELIVERED)
    return job


@pytest.mark.parametrize("broker", ["none", "valkey"])
def test_a_scheduler_that_is_killed_in_an_attempt_is_followed_by_the_same_webhook(
    own_valkey: ValkeyServer, tmp_path: Path, hook: Receiver, broker: str
) -> None:
    url = own_valkey.url if broker == "valkey" else "none"
    with fleet(sqlite_url(tmp_path), tmp_path, broker_url=url) as made:
        died = threading.Event()

        def hold(_: Call) -> tuple[int, dict[str, str]]:
            died.wait(WAIT_S)
            return 204, {}

        hook.answer = hold
        job = made.submit(callback_url=hook.url)
        with scheduler_process(made, lease_s=LEASE_S) as first:
            made.cancel(job)
            lost = hook.next()
            first.kill()
        died.set()
        with scheduler_process(made, lease_s=LEASE_S):
            repeated = hook.next()
            delivery = made.await_state(job, DeliveryState.DELIVERED)

        assert lost.id == repeated.id == webhook_id(delivery.id)
        assert lost.body == repeated.body
        log = made.outbox.log_of(delivery.id)
        assert [attempt.outcome is None for attempt in log] == [True, False]


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_two_schedulers_deliver_each_webhook_once(
    own_valkey: ValkeyServer, tmp_path: Path, hook: Receiver, database: str
) -> None:
    """Both have a beat, both hear every ring, and both take rings from one queue."""
    url = empty_database() if database == "postgres" else sqlite_url(tmp_path)
    with (
        fleet(url, tmp_path, broker_url=own_valkey.url) as made,
        scheduler_process(made) as one,
        scheduler_process(made) as other,
    ):
        failed: set[str] = set()
        lock = threading.Lock()

        def fail_first(call: Call) -> tuple[int, dict[str, str]]:
            with lock:
                first = call.id not in failed
                failed.add(call.id)
            return (500 if first else 204), {}

        hook.answer = fail_first
        jobs = [made.submit(callback_url=hook.url) for _ in range(40)]
        for job in jobs:
            made.cancel(job)
        for job in jobs:
            made.await_state(job, DeliveryState.DELIVERED)

        deliveries = [made.delivery(job) for job in jobs]
        assert sorted(call.id for call in hook.calls) == sorted(2 * [webhook_id(each.id) for each in deliveries])
        for each in deliveries:
            outcomes = [attempt.outcome for attempt in made.outbox.log_of(each.id)]
            assert [outcome.status for outcome in outcomes if outcome] == [500, 204]
        assert one.stop() == 0
        assert other.stop() == 0
        assert "Traceback" not in one.log + other.log


def test_deliveries_survive_broker_restarts_with_no_process_restarted(
    own_valkey: ValkeyServer, made: Fleet, hook: Receiver
) -> None:
    with scheduler_process(made) as scheduler:
        send(made, hook)
        for number in range(RESTARTS):
            own_valkey.kill() if number % 2 else own_valkey.stop()
            send(made, hook)  # while it is away
            own_valkey.start()
            send(made, hook)
        own_valkey.flushall()
        send(made, hook)

        # In the end the rings travel over the broker again.
        before = own_valkey.calls().get("lpush", 0)
        wait_until(lambda: bool(send(made, hook)) and own_valkey.calls().get("lpush", 0) > before)
        wait_until(lambda: bool(send(made, hook)) and own_valkey.client().llen("batchfleet.control") == 0)
        assert scheduler.stop() == 0


def test_a_broker_that_hangs_is_done_without(own_valkey: ValkeyServer, made: Fleet, hook: Receiver) -> None:
    with scheduler_process(made) as scheduler:
        send(made, hook)
        own_valkey.pause()
        try:
            job = made.submit(callback_url=hook.url)
            made.jobs.cancel([job])
            hook.next()
            made.await_state(job, DeliveryState.DELIVERED)
        finally:
            own_valkey.resume()
        send(made, hook)
        assert scheduler.stop() == 0


def test_a_broker_that_comes_up_late_is_found(own_valkey: ValkeyServer, made: Fleet, hook: Receiver) -> None:
    own_valkey.stop()
    with scheduler_process(made) as scheduler:
        send(made, hook)
        own_valkey.start()
        wait_until(lambda: bool(send(made, hook)) and own_valkey.calls().get("brpop", 0) > 0)
        assert scheduler.stop() == 0


def test_rings_that_nobody_takes_are_answered_by_whoever_rang(made: Fleet, hook: Receiver) -> None:
    """Celery's worker may be deaf for ever, as it has been in its history: its part is done without it."""
    with running_control(made, resend_s=0.2) as control:
        assert control.worker is not None
        control.worker.stop()
        control.worker.join(WAIT_S)

        send(made, hook)


def test_rings_that_were_swallowed_are_repeated(own_valkey: ValkeyServer, made: Fleet, hook: Receiver) -> None:
    with running_control(made, resend_s=0.2) as control:
        control.app.control.purge()
        own_valkey.client().client_kill_filter(_type="normal")
        own_valkey.flushall()

        send(made, hook)

"""Webhooks from the end of a job to a real receiver: through Celery over a real broker, and without one."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from batchfleet.jobs.job import format_job_id
from batchfleet.outbox.delivery import DeliveryState, Outcome
from batchfleet.outbox.http_sender import USER_AGENT
from batchfleet.outbox.signature import verify_webhook, webhook_id
from scheduler.shares import SLOW_S
from tests.support.control import DELAYS_S, Fleet, fleet, running_control
from tests.support.postgres import empty_database
from tests.support.receivers import WAIT_S, Call, Receiver, receiver
from tests.support.servers import ValkeyServer
from tests.support.stores import sqlite_url


@pytest.fixture(params=["none-sqlite", "valkey-sqlite", "valkey-postgres"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    broker, database = request.param.split("-")
    url = empty_database() if database == "postgres" else sqlite_url(tmp_path)
    broker_url = request.getfixturevalue("valkey").url if broker == "valkey" else "none"
    with fleet(url, tmp_path, broker_url=broker_url) as opened:
        yield opened


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with receiver() as opened:
        yield opened


def check(made: Fleet, call: Call) -> None:
    """As a receiver does."""
    secrets = [secret.secret for secret in made.outbox.signing_secrets("default")]
    assert verify_webhook(secrets, call.headers, call.body) == call.id


def test_the_end_of_a_job_is_told_signed_with_its_result(made: Fleet, hook: Receiver) -> None:
    with running_control(made):
        job = made.submit(callback_url=hook.url)
        made.succeed(job, [np.array([0.5, 1.0], dtype=np.float32)])
        call = hook.next()
        delivery = made.await_state(job, DeliveryState.DELIVERED)

    check(made, call)
    assert call.headers["user-agent"] == USER_AGENT
    assert call.id == webhook_id(delivery.id)
    assert call.event["type"] == "job.succeeded"
    assert call.event["data"]["id"] == format_job_id(job)
    assert call.event["data"]["status"] == "succeeded"
    assert call.event["data"]["result"] == {"values": [[0.5, 1.0]]}
    assert (delivery.attempts, delivery.last_status, delivery.last_error) == (1, 204, None)


def test_a_webhook_that_fails_is_repeated_with_its_id_until_it_arrives(made: Fleet, hook: Receiver) -> None:
    answers = iter([500, 302, 204])
    hook.answer = lambda _: (next(answers), {})
    with running_control(made):
        job = made.submit(callback_url=hook.url)
        made.cancel(job)
        calls = [hook.next() for _ in range(3)]
        delivery = made.await_state(job, DeliveryState.DELIVERED)

    assert {call.id for call in calls} == {webhook_id(delivery.id)}
    assert len({call.body for call in calls}) == 1
    for call in calls:
        check(made, call)
    log = [attempt.outcome for attempt in made.outbox.log_of(delivery.id)]
    assert [(outcome.status, outcome.error) for outcome in log if outcome] == [
        (500, "answered 500"),
        (302, "answered 302: redirects are not followed"),
        (204, None),
    ]
    assert delivery.attempts == 3


def test_a_webhook_is_given_up_at_the_end_of_its_schedule_and_can_be_replayed(made: Fleet, hook: Receiver) -> None:
    hook.answer = lambda _: (503, {})
    with running_control(made) as control:
        job = made.submit(callback_url=hook.url)
        made.cancel(job)
        delivery = made.await_state(job, DeliveryState.FAILED)
        assert len(hook.calls) == delivery.attempts == len(DELAYS_S)

        hook.answer = lambda _: (204, {})
        assert made.outbox.replay(delivery.id) is not None
        control.postman.wake()
        replayed = made.await_state(job, DeliveryState.DELIVERED)

    assert hook.calls[-1].id == webhook_id(delivery.id) == webhook_id(replayed.id)
    assert len(made.outbox.log_of(delivery.id)) == len(DELAYS_S) + 1


def test_a_receiver_that_is_gone_is_not_asked_again(made: Fleet, hook: Receiver) -> None:
    hook.answer = lambda _: (410, {})
    with running_control(made):
        job = made.submit(callback_url=hook.url)
        made.cancel(job)
        made.await_state(job, DeliveryState.FAILED)

    assert len(hook.calls) == 1


def test_many_webhooks_arrive_once_each(made: Fleet, hook: Receiver) -> None:
    with running_control(made):
        jobs = [made.submit(callback_url=hook.url) for _ in range(60)]
        made.cancel(*jobs)
        ids = sorted(hook.next().id for _ in jobs)
        for job in jobs:
            made.await_state(job, DeliveryState.DELIVERED)

    assert ids == sorted({webhook_id(made.delivery(job).id) for job in jobs})
    assert len(hook.calls) == len(jobs)


def test_a_job_that_was_deleted_is_told_of_still(made: Fleet, hook: Receiver) -> None:
    job = made.submit(callback_url=hook.url)
    made.cancel(job)
    made.jobs.delete([job])
    with running_control(made):
        call = hook.next()

    check(made, call)
    assert call.event["data"] == {"id": format_job_id(job), "status": "cancelled"}


def test_a_secret_is_changed_without_a_gap(made: Fleet, hook: Receiver) -> None:
    (old,) = made.outbox.signing_secrets("default")
    new = made.outbox.rotate_secret("default", keep_old_s=3600)
    job = made.submit(callback_url=hook.url)
    with running_control(made):
        made.cancel(job)
        call = hook.next()

    for secret in (old.secret, new.secret):
        assert verify_webhook(secret, call.headers, call.body) == call.id


def test_a_private_receiver_is_refused_where_it_was_not_allowed(tmp_path: Path, hook: Receiver) -> None:
    with fleet(sqlite_url(tmp_path), tmp_path, webhook_networks=()) as made:
        job = made.submit(callback_url=hook.url)
        with running_control(made):
            made.cancel(job)
            delivery = made.await_state(job, DeliveryState.FAILED)

    assert delivery.last_error == "refused: the host does not lead to a public address"
    assert hook.calls == []


def test_a_receiver_that_hangs_does_not_keep_the_others_waiting(tmp_path: Path, hook: Receiver) -> None:
    """Of its own tenant's either: once it was slow, it is tried by one at a time."""
    released = threading.Event()

    def hang(_: Call) -> tuple[int, dict[str, str]]:
        released.wait(WAIT_S)
        return 204, {}

    settings = {"control_threads": 4, "webhook_timeout_s": SLOW_S + 0.5}
    with receiver() as hanging, fleet(sqlite_url(tmp_path), tmp_path, **settings) as made:
        hanging.answer = hang
        slow = [made.submit(callback_url=hanging.url) for _ in range(20)]
        made.cancel(*slow)
        with running_control(made, resend_s=0.2, delays_s=[0.0] * 1_000):
            for _ in range(2):
                hanging.next()  # now both threads wait for it
            fine = made.submit(callback_url=hook.url)
            made.cancel(fine)

            hook.next()

            assert not released.is_set()
            assert made.await_state(fine, DeliveryState.DELIVERED).attempts == 1
            released.set()


def test_the_hanging_receivers_of_one_tenant_keep_no_other_waiting(made: Fleet, hook: Receiver) -> None:
    """Two hundred hosts of one tenant, each its own receiver, and none of them is slow yet."""
    with socket.socket() as hole:
        hole.bind(("0.0.0.0", 0))  # noqa: S104 - of 127.0.0.0/8, by the URLs below
        hole.listen(256)
        port = hole.getsockname()[1]
        hung = [made.submit(tenant="a", callback_url=f"http://127.0.1.{host}:{port}/") for host in range(1, 201)]
        made.cancel(*hung)
        with running_control(made):
            held = [hole.accept()[0] for _ in range(2)]
            for tenant in ("b", "c"):
                fine = made.submit(tenant=tenant, callback_url=hook.url)
                made.cancel(fine)
                hook.next()
                assert made.await_state(fine, DeliveryState.DELIVERED).attempts == 1

            begun = [each for job in hung if (each := made.delivery(job)).attempts]
            assert len(begun) == len(held), "a tenant has half of the places"
            assert all(each.last_error is None for each in begun), "they hang still"
            hole.close()
            for connection in held:
                connection.close()


def test_what_a_dead_scheduler_began_is_finished_by_another(made: Fleet, hook: Receiver) -> None:
    job = made.submit(callback_url=hook.url)
    made.cancel(job)
    begun = made.outbox.begin(made.delivery(job).id, lease_s=0.3)  # and its scheduler died
    assert begun is not None
    with running_control(made):
        call = hook.next()
        delivery = made.await_state(job, DeliveryState.DELIVERED)

    assert call.id == webhook_id(begun.id)
    assert not made.outbox.finish(begun.id, begun.epoch, Outcome(duration_s=0, error="late"), retry_in_s=None)
    assert (made.delivery(job).state, delivery.attempts) == (DeliveryState.DELIVERED, 2)


def test_the_webhook_leaves_with_the_ring(valkey: ValkeyServer, tmp_path: Path, hook: Receiver) -> None:
    """The safety net would come five seconds later; only the order of things is held here, not their time."""
    with fleet(sqlite_url(tmp_path), tmp_path, broker_url=valkey.url) as made, running_control(made) as control:
        control.postman._idle_s = 3600.0
        control.postman.wake()
        job = made.submit(callback_url=hook.url)
        made.cancel(job)

        assert hook.next().event["data"]["id"] == format_job_id(job)
        made.await_state(job, DeliveryState.DELIVERED)

"""The outbox: what its store promises, on every database."""

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchfleet.database.opening import open_database
from batchfleet.errors import StoreUnavailableError
from batchfleet.jobs.job import JobLinks, new_job_id
from batchfleet.jobs.sql.tables import outbox
from batchfleet.outbox.delivery import (
    Attempt,
    Delivery,
    DeliveryFilter,
    DeliveryKind,
    DeliveryState,
    DueDelivery,
    Lane,
    OutboxDepth,
    Outcome,
)
from batchfleet.outbox.port import OutboxStore
from batchfleet.outbox.sealing import SealedError, Sealer
from batchfleet.outbox.sql import SqlOutbox
from batchfleet.outbox.tables import webhook_secrets
from tests.support.stores import SHARED_KINDS, Bench, open_bench

KEY = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
OTHER_KEY = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVowMTIzNDU="
FAILED = Outcome(duration_s=0.25, status=500, error="answered 500")
DONE = Outcome(duration_s=0.5, status=204)
LEASE_S = 30.0


class Outboxes:
    """One empty outbox, and others on the same database."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self._open: list[OutboxStore] = []
        self.store = self.another()

    def another(self, *keys: str) -> OutboxStore:
        made = SqlOutbox(self.bench.url, sealer=Sealer(keys), clock=self.bench.clock)
        self._open.append(made)
        return made

    def owe(self, count: int = 1, kind: DeliveryKind = DeliveryKind.WEBHOOK, tenant: str = "default") -> list[str]:
        """Writes debts as the job store does, in order of age."""
        database = open_database(self.bench.url, self.bench.clock)
        ids = sorted(new_job_id() for _ in range(count))
        state, event, url = "pending", "job.succeeded", "https://x.example/hook"
        try:
            database.write(
                lambda tx: tx.insert(
                    outbox,
                    [
                        (id_, kind.value, tenant, new_job_id(), url, event, state, 0, 0, tx.now, tx.now)
                        + (None,) * (len(outbox.columns) - 11)
                        for id_ in ids
                    ],
                )
            )
        finally:
            database.close()
        return ids

    def begin(self, delivery: str) -> Delivery:
        begun = self.store.begin(delivery, lease_s=LEASE_S)
        assert begun is not None
        return begun

    def fail(self, delivery: str, retry_in_s: float | None = None) -> None:
        begun = self.begin(delivery)
        assert self.store.finish(delivery, begun.epoch, FAILED, retry_in_s=retry_in_s)

    def deliver(self, delivery: str) -> None:
        begun = self.begin(delivery)
        assert self.store.finish(delivery, begun.epoch, DONE, retry_in_s=None)

    def find(self, delivery: str) -> Delivery:
        found = self.store.find(delivery)
        assert found is not None
        return found

    def close(self) -> None:
        for store in self._open:
            store.close()


@pytest.fixture(params=SHARED_KINDS)
def boxes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Outboxes]:
    with open_bench(request.param, tmp_path) as bench:
        made = Outboxes(bench)
        yield made
        made.close()


def test_what_the_end_of_a_job_owes_is_due_at_once(boxes: Outboxes) -> None:
    assert boxes.store.next_due_s() is None
    links = JobLinks(callback_url="https://x.example/hook", output_uri="s3://bucket/out.json")
    (job,) = boxes.bench.submit(links=links)
    boxes.bench.store.cancel([job])

    taken = boxes.store.take_due(10, resend_s=10)

    found = {(each.kind, each.target, each.event) for each in (boxes.find(due.id) for due in taken)}
    assert found == {
        (DeliveryKind.WEBHOOK, "https://x.example/hook", "job.cancelled"),
        (DeliveryKind.OUTPUT, "s3://bucket/out.json", "job.cancelled"),
    }
    assert {boxes.find(due.id).job_id for due in taken} == {job}


def test_nothing_is_due_twice_before_it_is_rung_again(boxes: Outboxes) -> None:
    (delivery,) = boxes.owe()
    assert boxes.store.next_due_s() == 0.0
    assert boxes.store.take_due(10, resend_s=10) == [DueDelivery(delivery, 0)]

    assert boxes.store.take_due(10, resend_s=10) == []
    left = boxes.store.next_due_s()
    assert left is not None
    assert 0 < left <= 10
    boxes.bench.advance(10)

    assert boxes.store.take_due(10, resend_s=10) == [DueDelivery(delivery, 0)]


def test_the_oldest_are_taken_first_and_no_more_than_asked_for(boxes: Outboxes) -> None:
    first = boxes.owe(3)
    boxes.bench.advance(1)
    second = boxes.owe(2)

    assert [due.id for due in boxes.store.take_due(3, resend_s=60)] == first
    assert [due.id for due in boxes.store.take_due(3, resend_s=60)] == second


def test_tenants_take_turns(boxes: Outboxes) -> None:
    many = boxes.owe(20, tenant="a")
    boxes.bench.advance(1)
    few = boxes.owe(2, tenant="b")
    (output,) = boxes.owe(kind=DeliveryKind.OUTPUT, tenant="a")

    taken = [due.id for due in boxes.store.take_due(6, resend_s=60)]

    assert sorted(taken) == sorted([*many[:3], *few, output])


def test_a_lane_may_be_passed_by_or_bounded(boxes: Outboxes) -> None:
    boxes.owe(50, tenant="a")
    boxes.bench.advance(1)
    (hook,) = boxes.owe(tenant="b")
    (output,) = boxes.owe(kind=DeliveryKind.OUTPUT, tenant="a")
    hooks = Lane(DeliveryKind.WEBHOOK, "a")

    assert {due.id for due in boxes.store.take_due(5, resend_s=60, without=[hooks])} == {hook, output}
    assert len(boxes.store.take_due(40, resend_s=60, per_lane=7)) == 7


def test_no_more_than_ten_secrets_sign(boxes: Outboxes) -> None:
    """Each makes the header longer."""
    made = []
    for _ in range(12):
        boxes.bench.advance(1)
        made.append(boxes.store.rotate_secret("default", keep_old_s=3600).secret)
    boxes.store.rotate_secret("theirs", keep_old_s=3600)

    assert [secret.secret for secret in boxes.store.signing_secrets("default")] == made[:-11:-1]
    assert len(_stored(boxes)) == 11


def test_an_attempt_that_succeeds_delivers(boxes: Outboxes) -> None:
    (delivery,) = boxes.owe()
    begun = boxes.begin(delivery)
    assert (begun.attempts, begun.epoch, begun.state) == (1, 1, DeliveryState.PENDING)

    assert boxes.store.finish(delivery, begun.epoch, DONE, retry_in_s=5.0)

    ended = boxes.find(delivery)
    assert (ended.state, ended.last_status, ended.last_error) == (DeliveryState.DELIVERED, 204, None)
    assert ended.finished_at is not None
    (attempt,) = boxes.store.log_of(delivery)
    assert attempt == Attempt(number=1, began_at=attempt.began_at, outcome=DONE)
    assert boxes.store.next_due_s() is None
    assert boxes.store.begin(delivery, lease_s=LEASE_S) is None


def test_one_attempt_runs_at_a_time(boxes: Outboxes) -> None:
    (delivery,) = boxes.owe()
    boxes.begin(delivery)

    assert boxes.another().begin(delivery, lease_s=LEASE_S) is None
    assert boxes.store.take_due(10, resend_s=10) == []


def test_an_attempt_whose_scheduler_died_is_repeated_after_its_lease(boxes: Outboxes) -> None:
    (delivery,) = boxes.owe()
    lost = boxes.begin(delivery)
    boxes.bench.advance(LEASE_S)

    assert boxes.store.take_due(10, resend_s=10) == [DueDelivery(delivery, 1)]
    second = boxes.begin(delivery)
    assert (second.attempts, second.epoch) == (2, 2)

    assert not boxes.store.finish(delivery, lost.epoch, DONE, retry_in_s=None)
    assert boxes.find(delivery).state is DeliveryState.PENDING
    assert boxes.store.finish(delivery, second.epoch, FAILED, retry_in_s=None)
    assert [attempt.outcome for attempt in boxes.store.log_of(delivery)] == [DONE, FAILED]


def test_an_attempt_that_never_ended_stays_in_the_log(boxes: Outboxes) -> None:
    (delivery,) = boxes.owe()
    boxes.begin(delivery)
    boxes.bench.advance(LEASE_S)
    boxes.deliver(delivery)

    log = boxes.store.log_of(delivery)

    assert [(attempt.number, attempt.outcome) for attempt in log] == [(1, None), (2, DONE)]


def test_a_failed_attempt_is_repeated_when_its_time_has_come_and_not_before(boxes: Outboxes) -> None:
    """A ring that comes twice, or late, must not use up the schedule."""
    (delivery,) = boxes.owe()
    boxes.fail(delivery, retry_in_s=300)
    assert boxes.find(delivery).last_error == "answered 500"

    assert boxes.store.begin(delivery, lease_s=LEASE_S) is None
    assert boxes.store.take_due(10, resend_s=10) == []
    boxes.bench.advance(300)

    assert boxes.store.take_due(10, resend_s=10) == [DueDelivery(delivery, 1)]
    assert boxes.begin(delivery).attempts == 2


def test_a_delivery_that_is_given_up_has_failed(boxes: Outboxes) -> None:
    (delivery,) = boxes.owe()

    boxes.fail(delivery, retry_in_s=None)

    assert boxes.find(delivery).state is DeliveryState.FAILED
    assert boxes.store.next_due_s() is None


@pytest.mark.parametrize("ends", ["delivered", "failed", "pending"])
def test_a_replay_begins_afresh_with_the_same_id(boxes: Outboxes, ends: str) -> None:
    (delivery,) = boxes.owe()
    if ends == "delivered":
        boxes.deliver(delivery)
    else:
        boxes.fail(delivery, retry_in_s=300 if ends == "pending" else None)

    replayed = boxes.store.replay(delivery, tenant="default")

    assert replayed is not None
    assert (replayed.id, replayed.state, replayed.attempts) == (delivery, DeliveryState.PENDING, 0)
    assert replayed.finished_at is None
    assert [due.id for due in boxes.store.take_due(10, resend_s=10)] == [delivery]
    assert boxes.begin(delivery).attempts == 1
    assert [attempt.number for attempt in boxes.store.log_of(delivery)] == [1, 2]


def test_an_attempt_that_a_replay_overtook_changes_nothing(boxes: Outboxes) -> None:
    (delivery,) = boxes.owe()
    begun = boxes.begin(delivery)
    assert boxes.store.replay(delivery) is not None

    assert not boxes.store.finish(delivery, begun.epoch, DONE, retry_in_s=None)

    assert boxes.find(delivery).state is DeliveryState.PENDING
    assert [due.id for due in boxes.store.take_due(10, resend_s=10)] == [delivery]


def test_another_tenants_deliveries_are_not_there(boxes: Outboxes) -> None:
    (delivery,) = boxes.owe(tenant="theirs")

    assert boxes.store.find(delivery, tenant="ours") is None
    assert boxes.store.replay(delivery, tenant="ours") is None
    assert boxes.store.list_deliveries(DeliveryFilter(tenant="ours")) == []
    assert [each.id for each in boxes.store.list_deliveries(DeliveryFilter(tenant="theirs"))] == [delivery]
    assert boxes.store.find(new_job_id()) is None


def test_a_listing_is_filtered_and_paged_newest_first(boxes: Outboxes) -> None:
    hooks = boxes.owe(3)
    (output,) = boxes.owe(kind=DeliveryKind.OUTPUT)
    boxes.deliver(hooks[1])

    def ids(**wanted: object) -> list[str]:
        return [each.id for each in boxes.store.list_deliveries(DeliveryFilter(**wanted))]  # type: ignore[arg-type]

    assert ids() == [output, *reversed(hooks)]
    assert ids(limit=2) == [output, hooks[2]]
    assert ids(after=hooks[2]) == [hooks[1], hooks[0]]
    assert ids(kind=DeliveryKind.OUTPUT) == [output]
    assert ids(states=frozenset({DeliveryState.DELIVERED})) == [hooks[1]]
    assert ids(job_id=boxes.find(hooks[0]).job_id) == [hooks[0]]


def test_what_is_finished_is_purged_in_its_time_with_its_log(boxes: Outboxes) -> None:
    done, failed, pending, late = boxes.owe(4)
    boxes.deliver(done)
    boxes.fail(failed)
    boxes.fail(pending, retry_in_s=0)
    boxes.bench.advance(100)
    boxes.deliver(late)

    assert boxes.store.purge(older_than_s=60, limit=1) == 1
    assert boxes.store.purge(older_than_s=60, limit=10) == 1
    assert boxes.store.purge(older_than_s=60, limit=10) == 0

    assert {each.id for each in boxes.store.list_deliveries(DeliveryFilter())} == {pending, late}
    assert boxes.store.log_of(done) == []
    assert len(boxes.store.log_of(pending)) == 1


def test_what_is_pending_is_counted_by_kind(boxes: Outboxes) -> None:
    boxes.owe(2)
    boxes.bench.advance(50)
    (done, _) = boxes.owe(2, kind=DeliveryKind.OUTPUT)
    boxes.deliver(done)

    outputs, hooks = boxes.store.depths()

    assert (hooks.kind, hooks.pending) == (DeliveryKind.WEBHOOK, 2)
    assert hooks.oldest_age_s >= 50
    assert outputs == OutboxDepth(DeliveryKind.OUTPUT, 1, outputs.oldest_age_s)
    assert outputs.oldest_age_s < 50


def test_what_a_receiver_says_may_hold_anything(boxes: Outboxes) -> None:
    (delivery,) = boxes.owe()
    begun = boxes.begin(delivery)

    boxes.store.finish(delivery, begun.epoch, Outcome(duration_s=0, error="a\x00b\udc80"), retry_in_s=None)

    assert boxes.find(delivery).last_error == "a\ufffdb\ufffd"


def test_two_schedulers_begin_a_delivery_once(boxes: Outboxes) -> None:
    deliveries = boxes.owe(20)
    begun: list[str] = []
    barrier = threading.Barrier(3)

    def run(store: OutboxStore) -> None:
        barrier.wait()
        begun.extend(each for each in deliveries if store.begin(each, lease_s=LEASE_S) is not None)

    threads = [threading.Thread(target=run, args=(boxes.another(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(begun) == deliveries


def test_a_tenants_first_secret_is_made_once(boxes: Outboxes) -> None:
    others = [boxes.another() for _ in range(4)]
    found: list[str] = []

    def run(store: OutboxStore) -> None:
        found.extend(secret.secret for secret in store.signing_secrets("ours"))

    threads = [threading.Thread(target=run, args=(store,)) for store in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(found) == 4
    assert len(set(found)) == 1
    assert boxes.store.signing_secrets("theirs")[0].secret not in found


def test_old_secrets_go_on_signing_for_a_while(boxes: Outboxes) -> None:
    (old,) = boxes.store.signing_secrets("default")
    boxes.bench.advance(1)
    new = boxes.store.rotate_secret("default", keep_old_s=100)
    assert [secret.secret for secret in boxes.store.signing_secrets("default")] == [new.secret, old.secret]
    assert boxes.store.signing_secrets("default")[1].expires_at is not None

    boxes.bench.advance(101)

    assert [secret.secret for secret in boxes.store.signing_secrets("default")] == [new.secret]
    boxes.store.purge(older_than_s=1000, limit=10)
    assert [secret.secret for secret in boxes.store.signing_secrets("default")] == [new.secret]


def test_a_second_rotation_gives_old_secrets_no_more_time(boxes: Outboxes) -> None:
    (first,) = boxes.store.signing_secrets("default")
    boxes.store.rotate_secret("default", keep_old_s=10)
    boxes.store.rotate_secret("default", keep_old_s=1000)

    boxes.bench.advance(11)

    assert first.secret not in [secret.secret for secret in boxes.store.signing_secrets("default")]


def test_secrets_are_sealed_and_keys_can_be_changed(boxes: Outboxes) -> None:
    sealing = boxes.another(KEY)
    (secret,) = sealing.signing_secrets("default")
    with pytest.raises(SealedError, match="BATCHFLEET_SECRET_KEY is not set"):
        boxes.store.signing_secrets("default")
    with pytest.raises(SealedError, match="not in BATCHFLEET_SECRET_KEY"):
        boxes.another(OTHER_KEY).signing_secrets("default")

    both = boxes.another(OTHER_KEY, KEY)

    assert both.signing_secrets("default")[0].secret == secret.secret
    assert secret.secret.removeprefix("whsec_") not in str(_stored(boxes))
    assert secret.secret not in repr(secret)


def test_secrets_of_before_a_key_was_set_are_read_still(boxes: Outboxes) -> None:
    (secret,) = boxes.store.signing_secrets("default")

    assert boxes.another(KEY).signing_secrets("default")[0].secret == secret.secret


def _stored(boxes: Outboxes) -> list[object]:
    database = open_database(boxes.bench.url, boxes.bench.clock)
    try:
        return list(database.read(lambda tx: tx.select(webhook_secrets.select())))
    finally:
        database.close()


def test_a_duty_is_taken_once_a_period(boxes: Outboxes) -> None:
    other = boxes.another()
    assert boxes.store.take_duty("purge", period_s=60)
    assert not other.take_duty("purge", period_s=60)
    assert other.take_duty("sweep_orphans", period_s=60)

    boxes.bench.advance(60)

    assert other.take_duty("purge", period_s=60)
    assert not boxes.store.take_duty("purge", period_s=60)
    assert [name for name, _ in boxes.store.duties()] == ["purge", "sweep_orphans"]


def test_a_database_that_is_away_is_told_as_such(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    sqlite3.connect(path).close()
    store = SqlOutbox(f"sqlite:///{path}")

    with pytest.raises(StoreUnavailableError, match="db upgrade"):
        store.next_due_s()
    store.close()

"""The scheduler's loops: what each does, and what each must not do."""

import threading
from collections.abc import Sequence

import msgspec

from batchfleet.broker.hint import Flow
from batchfleet.broker.memory import MemoryBroker, MemoryHub, MemoryRing
from batchfleet.clock import ManualClock
from batchfleet.errors import StoreUnavailableError
from batchfleet.jobs.job import DueWork, JobId, Lane, NewJob, WorkerLease, WorkerState, new_job_id
from batchfleet.jobs.memory import MemoryStore
from batchfleet.jobs.states import JobState
from batchfleet.telemetry import Metrics
from scheduler.expire import Expirer
from scheduler.relay import FEWEST_HINTS, FORCED_EVERY_S, Relay, next_enough
from scheduler.rescue import Contact, Rescuer
from scheduler.sweep import Sweep

TTL_S = 15.0


class Away(MemoryStore):
    """A store that can be away."""

    away = False

    def due(self, lease_ttl_s: float) -> DueWork:
        if self.away:
            raise StoreUnavailableError("away")
        return super().due(lease_ttl_s)


class Bench:
    """A scheduler's loops over doubles, with time in the test's hands."""

    def __init__(self, most_hints: int = 4) -> None:
        self.clock = ManualClock(1_000.0)
        self.store = Away(self.clock)
        self.hub = MemoryHub()
        self.broker = MemoryBroker(self.hub)
        self.metrics = Metrics()
        self.contact = Contact(most_gap_s=60.0)
        ring = MemoryRing(self.hub)
        self.relay = Relay(self.store, MemoryBroker(self.hub), self.metrics, most_hints, self.clock)
        self.rescuer = Rescuer(self.store, ring, self.metrics, TTL_S, self.contact, self.clock)
        self.sweep = Sweep(
            self.store,
            self.relay,
            Expirer(self.store, ring),
            self.rescuer,
            self.contact,
            interval_s=1.0,
            lease_ttl_s=TTL_S,
            clock=self.clock,
        )

    def submit(self, number: int = 1, *, ttl_s: float | None = None, announced: bool = False) -> list[JobId]:
        made = [
            NewJob(
                id=new_job_id(),
                model="m",
                version="1",
                inputs=msgspec.json.encode(["x"]),
                item_count=1,
                ttl_s=ttl_s,
                announced_by_submitter=announced,
            )
            for _ in range(number)
        ]
        self.store.submit(made)
        return [job.id for job in made]

    def claim(self, ids: Sequence[JobId], boot: str = "b" * 32) -> None:
        self.store.register(WorkerLease(boot=boot, name="w", pid=1, state=WorkerState.READY))
        assert len(self.store.claim(boot, ids)) == len(ids)

    def hints(self) -> list[JobId]:
        pulled = self.broker.pull([Flow("m", Lane.STANDARD)], 10_000, 0)
        return [job_id for hint in pulled for job_id in hint.ids]

    def states(self, ids: Sequence[JobId]) -> set[JobState]:
        return {record.state for record in self.store.look_up(ids)}


def test_jobs_that_nobody_announced_are_announced() -> None:
    bench = Bench()
    ids = bench.submit(3)

    assert bench.sweep.once()

    assert sorted(bench.hints()) == sorted(ids)


def test_a_lost_hint_is_repeated_when_nobody_has_claimed_the_job() -> None:
    bench = Bench()
    ids = bench.submit(1, announced=True)
    bench.sweep.once()
    assert bench.hints() == []  # its submitter has announced it: the relay waits a moment

    bench.clock.advance(2.5)
    bench.sweep.once()
    assert bench.hints() == ids

    bench.sweep.once()
    assert bench.hints() == []
    bench.clock.advance(2.5)
    bench.sweep.once()
    assert bench.hints() == ids


def test_a_flow_with_hints_enough_gets_no_more_until_it_is_emptied() -> None:
    bench = Bench(most_hints=4)
    bench.submit(32 * 6)
    bench.sweep.once()  # the flow is not known yet: all goes out
    assert bench.broker.depth(Flow("m", Lane.STANDARD)) == 6
    late = bench.submit(1)

    bench.sweep.once()
    assert bench.broker.depth(Flow("m", Lane.STANDARD)) == 6

    assert len(bench.hints()) == 32 * 6
    bench.sweep.once()
    assert bench.hints() == late


def test_what_is_enough_for_a_flow_follows_its_workers() -> None:
    enough = FEWEST_HINTS
    for _ in range(4):
        enough = next_enough(enough, 0, most=100)
    assert enough == 100

    assert next_enough(enough, 60, most=100) == 100
    assert next_enough(enough, 100, most=100) == 50
    assert next_enough(FEWEST_HINTS, 1_000, most=100) == FEWEST_HINTS
    assert next_enough(4, 1_000, most=4) == 4


def test_a_round_now_and_then_ignores_the_depth() -> None:
    """So that a lost hint is not lost for as long as its flow never runs dry."""
    bench = Bench(most_hints=1)
    bench.submit(1)
    bench.sweep.once()
    bench.submit(1)

    bench.clock.advance(FORCED_EVERY_S)
    bench.sweep.once()

    assert bench.broker.depth(Flow("m", Lane.STANDARD)) == 2


def test_a_broker_that_is_away_costs_the_announcement_only() -> None:
    bench = Bench()
    ids = bench.submit(1)
    bench.hub.down = True
    assert bench.sweep.once()

    bench.hub.down = False
    bench.clock.advance(2.5)
    bench.sweep.once()

    assert bench.hints() == ids
    assert b"batchfleet_announcements_failed_total 1.0" in bench.metrics.render()


def test_queued_jobs_expire_on_time() -> None:
    bench = Bench()
    ids = bench.submit(2, ttl_s=5.0)
    bench.clock.advance(4.9)
    bench.sweep.once()
    assert bench.states(ids) == {JobState.QUEUED}

    bench.clock.advance(0.2)
    bench.sweep.once()

    assert bench.states(ids) == {JobState.EXPIRED}


def test_a_dead_workers_jobs_are_rescued_after_a_full_lease_of_contact() -> None:
    bench = Bench()
    ids = bench.submit(2)
    bench.claim(ids)
    bench.sweep.once()  # contact begins
    bench.clock.advance(TTL_S - 0.1)
    bench.sweep.once()
    assert bench.states(ids) == {JobState.RUNNING}

    bench.clock.advance(0.2)
    bench.sweep.once()

    assert bench.states(ids) == {JobState.QUEUED}
    assert bench.store.workers() == []


def test_an_outage_rescues_nobody_by_mistake() -> None:
    """No worker could renew its lease meanwhile: all of them look dead, and none is."""
    bench = Bench()
    ids = bench.submit(1)
    bench.claim(ids)
    bench.sweep.once()
    bench.store.away = True
    bench.clock.advance(60)
    assert not bench.sweep.once()

    bench.store.away = False
    bench.sweep.once()
    bench.clock.advance(TTL_S - 1)
    assert bench.store.heartbeat("b" * 32, WorkerState.READY)
    bench.clock.advance(2)
    bench.sweep.once()

    assert bench.states(ids) == {JobState.RUNNING}


def test_a_pause_of_the_whole_machine_rescues_nobody_by_mistake() -> None:
    """The scheduler slept as well: that it was answered before and after says nothing of the time between."""
    bench = Bench()
    ids = bench.submit(1)
    bench.claim(ids)
    bench.sweep.once()
    bench.clock.advance(61)

    bench.sweep.once()

    assert bench.states(ids) == {JobState.RUNNING}


def test_a_call_that_hung_breaks_the_contact() -> None:
    contact = Contact(most_gap_s=4.0)
    for second in range(20):
        contact.answered(float(second), float(second))
    assert contact.unbroken_for(19.0) == 19.0

    contact.answered(20.0, 24.5)

    assert contact.unbroken_for(24.5) == 0.0


def test_the_sweep_ends_when_it_is_told_to() -> None:
    bench = Bench()
    stopping = threading.Event()
    thread = threading.Thread(target=bench.sweep.run, args=(stopping,))
    thread.start()

    stopping.set()
    thread.join(10)

    assert not thread.is_alive()

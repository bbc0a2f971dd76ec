"""Receive: pulls hints, claims their jobs in one statement, and hands them on.

The hint is gone once it is pulled; only the claim in the database counts. With no hint for a while the database
is asked directly, so that a lost hint, a flushed broker or none at all costs seconds at most.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from batchfleet.broker.hint import Flow, Hint
from batchfleet.broker.lanes import PullLedger, PullStep, free_room
from batchfleet.broker.port import HintBroker
from batchfleet.clock import Monotonic
from batchfleet.errors import BrokerUnavailableError, StoreUnavailableError
from batchfleet.jobs.announce import ANNOUNCER_S
from batchfleet.jobs.job import LANES, BootId, ClaimedJob, JobError, JobErrorCode, JobId, Lane
from batchfleet.jobs.store import JobStore
from batchfleet.logs import Action, OutageLog
from batchfleet.telemetry import Metrics, Stopwatch
from workers.active import ActiveJob, ActiveJobs
from workers.lease import MayWork
from workers.messages import JobExpired, JobFailed, JobReturned, SettleMessage
from workers.spans import WorkerSpans

logger = logging.getLogger(__name__)

_IDLE_PULL_S: Final = 5.0
_BUSY_PULL_S: Final = 1.0
_FENCED_WAIT_S: Final = 0.2
_BROKER_AWAY_S: Final = 0.25
_STORE_AWAY_S: Final = 1.0
_DIRECT_CLAIM_S: Final = (1.0, 5.0)
_DIRECT_CLAIM_ITEMS: Final = 128
_REVOKE_EVERY_S: Final = 1.0
_FLOWS_S: Final = 1.0
"""So long after a model was published its hints may go unread."""
_TIMEOUT_TEXT: Final = "the run took longer than its run_timeout_s"
_LEAST_REFILL: Final = 0.125
"""A lane is refilled when this share of the window is free for it: claims come in blocks."""
_FIRST_ITEMS: Final = 64
"""What the window may hold before a first pass has told how fast the device is."""


@dataclass(frozen=True, slots=True)
class WindowRoom:
    """How much the window may hold: so many items, and no more than so many seconds of work.

    Attributes:
        items_per_s: Tells how fast the device is; 0 while unknown.
    """

    max_items: int
    max_s: float
    items_per_s: Callable[[], float]

    @property
    def capacity(self) -> int:
        """Returns how many items the window may hold now."""
        rate = self.items_per_s()
        by_time = int(rate * self.max_s) if rate else _FIRST_ITEMS
        return max(1, min(self.max_items, by_time))


class Receiver:
    """Owns the broker connection. `run` is its thread.

    Args:
        serves: Returns the names of the models that are served now.
        prepare: Takes the claimed jobs.
        discard: Drops what is left of a job in the window.
        settle: Takes jobs that end here.
        spans: Told of claims, where anything is traced.
        rest: Waits after a claim until another one may do somebody good.
        hinted: Whether there is a broker that should tell of every job.
    """

    def __init__(
        self,
        boot: BootId,
        store: JobStore,
        broker: HintBroker,
        active: ActiveJobs,
        room: WindowRoom,
        serves: Callable[[], tuple[str, ...]],
        prepare: Callable[[list[ActiveJob]], None],
        discard: Callable[[JobId], object],
        settle: Callable[[SettleMessage], None],
        may_work: MayWork,
        metrics: Metrics,
        spans: WorkerSpans | None = None,
        rest: Callable[[], None] | None = None,
        hinted: bool = False,
        clock: Monotonic = time.monotonic,
    ) -> None:
        self._boot = boot
        self._store = store
        self._broker = broker
        self._active = active
        self._room = room
        self._serves = serves
        self._prepare = prepare
        self._discard = discard
        self._settle = settle
        self._may_work = may_work
        self._metrics = metrics
        self._spans = spans
        self._rest = rest
        self._hinted = hinted
        self._clock = clock
        self._ledger = PullLedger()
        self._random = random.Random()  # noqa: S311 - jitter
        self._claim_directly_at = clock()
        self._revoke_at = clock()
        self._flows: list[Flow] = []
        self._flows_until = clock()
        self._store_outage = OutageLog(logger, "the database", Action.STORE_UNAVAILABLE, clock)
        self._broker_outage = OutageLog(logger, "the broker", Action.BROKER_UNAVAILABLE, clock)
        self._short_of_room = False
        self._freed = threading.Event()
        active.when_freed(self._room_freed)

    def wake(self) -> None:
        """Ends a wait of `run`, so that it sees that it was asked to stop; callable from any thread."""
        self._broker.interrupt()
        self._freed.set()

    def run(self, stopping: threading.Event) -> None:
        """Receives until stopped: the body of the thread."""
        while not stopping.is_set():
            try:
                self._step(stopping)
            except StoreUnavailableError as error:
                self._store_outage.failed(error)
                stopping.wait(_STORE_AWAY_S)

    def _step(self, stopping: threading.Event) -> None:
        self._drop_revoked()
        if not self._may_work():
            stopping.wait(_FENCED_WAIT_S)
            return
        # Set before the room is counted: what is freed from here on ends the wait below.
        self._short_of_room = True
        room = self._free_room()
        if not any(room.values()):
            self._freed.wait(_BUSY_PULL_S)
            self._freed.clear()
            return
        self._short_of_room = not room[Lane.BULK]
        try:
            hints = self._pull(room, stopping)
        except BrokerUnavailableError as error:
            self._broker_outage.failed(error)
            self._claim_directly_at = min(self._claim_directly_at, self._clock())
            stopping.wait(_BROKER_AWAY_S)
            hints = []
        else:
            self._broker_outage.worked()
        if stopping.is_set():
            return  # nothing was claimed, and the ids are announced again
        if hints:
            self._take(self._claim([job_id for hint in hints for job_id in hint.ids]))
            self._put_off_direct_claim()
            if self._rest is not None:
                self._rest()
        elif room[Lane.BULK] and self._clock() >= self._claim_directly_at:
            self._claim_directly(room[Lane.BULK])

    def _free_room(self) -> dict[Lane, int]:
        """Returns how many items of each lane may be claimed now."""
        capacity = self._room.capacity
        held = self._active.items_by_lane
        room = free_room(capacity, held)
        if any(held.values()):
            least = capacity * _LEAST_REFILL
            return {lane: free if lane is Lane.ONLINE or free >= least else 0 for lane, free in room.items()}
        return room

    def _room_freed(self) -> None:
        """Ends a wait for room, or for urgent hints only, when there is room for all; on the settler's thread."""
        self._freed.set()
        if self._short_of_room and self._free_room()[Lane.BULK]:
            self._short_of_room = False
            self._broker.interrupt()

    def _pull(self, room: dict[Lane, int], stopping: threading.Event) -> list[Hint]:
        """Returns hints, those of the lane furthest behind its share first; waits for one if there is none."""
        step = self._ledger.plan(self._flows_now(), room).waiting
        if not step.flows:
            stopping.wait(_BUSY_PULL_S)
            return []
        return self._pull_step(step, self._pull_wait_s())

    def _flows_now(self) -> list[Flow]:
        """Returns the queues to empty; to list the models means to read folders, which is done now and then only."""
        now = self._clock()
        if now >= self._flows_until:
            self._flows = [Flow(model, lane) for lane in LANES for model in self._serves()]
            self._flows_until = now + _FLOWS_S
        return self._flows

    def _pull_step(self, step: PullStep, wait_s: float) -> list[Hint]:
        hints = self._broker.pull(step.flows, step.max_hints, wait_s)
        pulled: dict[Flow, int] = {}
        for hint in hints:
            pulled[hint.flow] = pulled.get(hint.flow, 0) + len(hint.ids)
        self._ledger = self._ledger.record(step, pulled)
        return hints

    def _pull_wait_s(self) -> float:
        """Returns how long a pull may block: no longer than until the next direct claim or check is due."""
        if self._short_of_room:
            return _BUSY_PULL_S
        longest = _BUSY_PULL_S if len(self._active) else _IDLE_PULL_S
        return max(0.01, min(longest, self._claim_directly_at - self._clock()))

    def _claim(self, ids: Sequence[JobId]) -> list[ClaimedJob]:
        with Stopwatch(self._metrics.claim_seconds):
            claimed = self._store.claim(self._boot, list(dict.fromkeys(ids)))
        self._store_outage.worked()
        return claimed

    def _claim_directly(self, room: int) -> None:
        """Asks the database itself for work, without a hint."""
        with Stopwatch(self._metrics.claim_seconds):
            claimed = self._store.claim_ready(self._boot, self._serves(), min(room, _DIRECT_CLAIM_ITEMS))
        self._take(claimed)
        if claimed:
            if self._hinted and (lost := sum(job.age_s > ANNOUNCER_S for job in claimed)):
                self._metrics.hints_found_lost.inc(lost)
            # There was work that nobody had announced to us: there may be more.
            self._claim_directly_at = self._clock()
        else:
            self._put_off_direct_claim()

    def _put_off_direct_claim(self) -> None:
        low, high = _DIRECT_CLAIM_S
        self._claim_directly_at = self._clock() + low + (high - low) * self._random.random()

    def _take(self, claimed: Sequence[ClaimedJob]) -> None:
        if not claimed:
            return
        now = self._clock()
        for job in claimed:
            if self._active.get(job.id) is not None:
                self._discard(job.id)  # items of an earlier claim, which was rescued meanwhile
        jobs = [self._active.add(job, now) for job in claimed]
        if self._spans is not None:
            self._spans.claimed(jobs)
        self._prepare(jobs)
        self._metrics.window_items.set(self._active.items)

    def _drop_revoked(self) -> None:
        """Drops jobs that were cancelled, or whose run took too long, while this worker held them."""
        now = self._clock()
        if not len(self._active) or now < self._revoke_at:
            return
        self._revoke_at = now + _REVOKE_EVERY_S
        for late in self._active.overdue(now):
            # The rescuer says the same of it; whoever is first counts, and the other one is stale.
            self._discard(late.id)
            self._settle(JobFailed(late, JobError(JobErrorCode.RUN_TIMEOUT, _TIMEOUT_TEXT)))
        for late in self._active.expired_unread(now):
            self._settle(JobExpired(late))
        for parked in self._active.parked(now):
            self._settle(JobReturned(parked))
        for job_id in self._store.revoked(self._boot):
            job = self._active.get(job_id)
            if job is not None and self._active.remove(job):
                self._discard(job_id)
        self._metrics.window_items.set(self._active.items)

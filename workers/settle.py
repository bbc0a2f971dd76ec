"""Settle: puts jobs together again from their items, writes results and states, and rings.

Everything that has ended while the last transaction ran is settled in the next one: one statement and one block
of bytes, however many jobs. Ends that nobody waits for linger for some passes (`workers.pacing`). A database that is
away is waited for; results are kept meanwhile. Results too large for a row take a way round (`workers.uploads`) and
come back to be settled.
"""

import logging
import queue
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from batchfleet.broker.port import Ring
from batchfleet.clock import Monotonic
from batchfleet.errors import StoreUnavailableError
from batchfleet.inference.task import ItemFault
from batchfleet.jobs.job import (
    BootId,
    HandBack,
    JobError,
    JobId,
    OnItemError,
    Settlement,
    SettleOutcome,
)
from batchfleet.jobs.states import JobState
from batchfleet.jobs.store import JobStore
from batchfleet.logs import Action, OutageLog
from batchfleet.results.blobs import result_key
from batchfleet.results.codec import as_blob
from batchfleet.telemetry import Metrics, Stopwatch
from workers import ends
from workers.active import ActiveJob, ActiveJobs
from workers.ends import Ended
from workers.messages import ItemsFailed, JobExpired, JobFailed, JobReturned, PassDone, ResultStored, SettleMessage
from workers.pacing import Waiting
from workers.report import Report, outcomes
from workers.spans import WorkerSpans
from workers.uploads import Uploads

logger = logging.getLogger(__name__)

T = TypeVar("T")

_MAX_ROWS = 1_000
_RETRY_S = (0.1, 2.0)


class Settler:
    """Owns the progress of jobs. `run` is its thread; `put` may be called from any.

    Args:
        discard: Drops what is left of a job in the window.
        uploads: Takes results that go to the blob store.
        row_bytes: Results over this size do.
        load: Returns the items that wait for the device, and those that the window may hold.
        spans: Told what became of jobs, where anything is traced.
    """

    def __init__(
        self,
        boot: BootId,
        store: JobStore,
        uploads: Uploads,
        ring: Ring,
        active: ActiveJobs,
        discard: Callable[[JobId], object],
        metrics: Metrics,
        row_bytes: int,
        load: Callable[[], tuple[int, int]],
        spans: WorkerSpans | None = None,
        clock: Monotonic = time.monotonic,
    ) -> None:
        self._boot = boot
        self._store = store
        self._uploads = uploads
        self._ring = ring
        self._active = active
        self._discard = discard
        self._metrics = metrics
        self._row_bytes = row_bytes
        self._load = load
        self._clock = clock
        self._ended: list[Ended] = []
        self._waiting = Waiting()
        self._spans = spans
        self._report = Report(boot, metrics)
        self._queue: queue.SimpleQueue[SettleMessage | None] = queue.SimpleQueue()
        self._returned: list[JobReturned] = []
        self._gave_up = threading.Event()
        self._outage = OutageLog(logger, "the database, to settle", Action.STORE_UNAVAILABLE)
        self._random = random.Random()  # noqa: S311 - jitter

    def put(self, message: SettleMessage) -> None:
        """Queues what a stage has to say."""
        self._queue.put(message)

    def wake(self) -> None:
        """Ends a wait of `run`, so that it sees that it was asked to stop."""
        self._queue.put(None)

    def give_up(self) -> None:
        """Ends the waiting for what is away: what is unsettled then is handed back, or left to the rescuer."""
        self._gave_up.set()
        self._uploads.give_up()

    def run(self, stopping: threading.Event) -> None:
        """Settles until stopped, then what is queued still: the body of the thread."""
        while True:
            messages = self._next(self._left_s())
            self._join([done for message in messages for done in self._take(message)])
            if stopping.is_set() or self._left_s() == 0.0:
                self._settle_ended()
            self._hand_back_returned()
            # Uploads that end have `wake` called, and are looked at again.
            if stopping.is_set() and self._uploads.idle and self._queue.empty():
                return

    def hand_back(self, jobs: Sequence[ActiveJob]) -> int:
        """Returns jobs untouched, free of charge; for the drain. Returns how many changed hands."""
        began_ns = time.time_ns()
        removed = [job for job in jobs if self._active.remove(job)]
        self._metrics.window_items.set(self._active.items)
        if not removed:
            return 0
        changed = self._store.hand_back(self._boot, [HandBack(job.id, job.claimed.epoch) for job in removed])
        if self._spans is not None:
            self._spans.ended([(job, "handed_back", None) for job in removed], began_ns)
        return len(changed)

    def _next(self, wait_s: float | None) -> list[SettleMessage]:
        """Returns what the stages said, after a wait of so many seconds at most; None waits for something."""
        messages: list[SettleMessage | None] = []
        with suppress(queue.Empty):
            messages.append(self._queue.get(timeout=wait_s))
            while True:
                messages.append(self._queue.get_nowait())
        return [message for message in messages if message is not None]

    # -- pacing -------------------------------------------------------------------------------------------

    def _join(self, ended: Sequence[Ended]) -> None:
        now = self._clock()
        for one in ended:
            claimed = one.job.claimed
            succeeded = one.row.state is JobState.SUCCEEDED
            self._waiting = self._waiting.joined(
                now, claimed.lane, items=claimed.item_count, size=len(one.data), succeeded=succeeded
            )
        self._ended += ended

    def _left_s(self) -> float | None:
        if not self._ended:
            return None
        backlog, capacity = self._load()
        return self._waiting.left_s(self._clock(), backlog=backlog, capacity=capacity)

    def _settle_ended(self) -> None:
        # One that was withdrawn while it lingered is no longer ours.
        ended = [one for one in self._ended if self._active.get(one.job.id) is one.job]
        self._ended, self._waiting = [], Waiting()
        for start in range(0, len(ended), _MAX_ROWS):
            self._settle(ended[start : start + _MAX_ROWS])

    # -- putting jobs together ----------------------------------------------------------------------------

    def _take(self, message: SettleMessage) -> Iterable[Ended]:
        match message:
            case PassDone(outcomes, provenance):
                return self._take_pass(outcomes, provenance)
            case ItemsFailed(job, faults):
                job.faults.update(faults)
                return self._finished(job, {})
            case JobFailed(job, error):
                return [self._failed(job, error, {})] if self._active.get(job.id) is job else []
            case JobExpired(job):
                return [] if job.started or self._active.get(job.id) is not job else [ends.expired(job)]
            case ResultStored(job, row):
                return [Ended(job, row)] if self._active.get(job.id) is job else []
            case JobReturned():
                self._returned.append(message)
                return []

    def _take_pass(
        self, outcomes: Sequence[tuple[ActiveJob, int, Any]], provenance: Mapping[str, object]
    ) -> list[Ended]:
        touched: dict[JobId, ActiveJob] = {}
        for job, index, outcome in outcomes:
            if isinstance(outcome, ItemFault):
                job.faults[index] = JobError(outcome.code, outcome.message, item=index)
            else:
                job.outcomes[index] = outcome
            touched[job.id] = job
        return [ended for job in touched.values() for ended in self._finished(job, provenance)]

    def _finished(self, job: ActiveJob, provenance: Mapping[str, object]) -> list[Ended]:
        """Returns the job's end if it has come to one."""
        if self._active.get(job.id) is not job:
            return []
        partial = job.claimed.on_item_error is OnItemError.PARTIAL
        if job.faults and not partial:
            first = min(job.faults)
            return [self._failed(job, job.faults[first], provenance)]
        if job.missing:
            return []
        return self._succeeded(job, provenance)

    def _succeeded(self, job: ActiveJob, provenance: Mapping[str, object]) -> list[Ended]:
        """Returns the job's end, or nothing yet where its result goes to the blob store first."""
        ended = ends.succeeded(job, provenance)
        if len(ended.data) <= self._row_bytes:
            return [ended]
        form, data = as_blob(ended.row.format or "", ended.data)
        self._uploads.put(job, replace(ended.row, format=form), result_key(job.id, job.claimed.epoch), data)
        return []

    def _failed(self, job: ActiveJob, error: JobError, provenance: Mapping[str, object]) -> Ended:
        return ends.failed(job, error, provenance, jitter=self._random.random())

    # -- writing ------------------------------------------------------------------------------------------

    def _settle(self, ended: Sequence[Ended]) -> None:
        rows, parts, offset = [], [], 0
        # A job can end twice in one go (failed, then its last items came): the first end is the one.
        unique = {one.job.id: one for one in reversed(ended)}
        for one in unique.values():
            rows.append(replace(one.row, offset=offset, length=len(one.data)) if one.data else one.row)
            parts.append(one.data)
            offset += len(one.data)
        began_ns = time.time_ns()
        with Stopwatch(self._metrics.settle_seconds):
            outcome = self._write(rows, b"".join(parts))
        for one in unique.values():
            self._active.remove(one.job)
            if one.row.state is not JobState.SUCCEEDED:
                self._discard(one.job.id)
        self._metrics.window_items.set(self._active.items)
        finished = [job_id for job_id, state in outcome.applied if state.terminal]
        if finished:
            self._ring.ring(finished)
        self._report.settled(outcome, unique)
        if self._spans is not None:
            self._spans.ended(outcomes(outcome, unique), began_ns)

    def _write(self, rows: Sequence[Settlement], block: bytes) -> SettleOutcome:
        """Writes until the database takes it, or the drain gives up."""
        return self._insist(lambda: self._store.settle(self._boot, rows, block)) or SettleOutcome()

    def _hand_back_returned(self) -> None:
        """Hands back what goes back free of charge; until it has, the jobs stay held."""
        returned, self._returned = self._returned, []
        # Told more than once perhaps, or ended meanwhile.
        unique = {one.job.id: one for one in reversed(returned) if self._active.get(one.job.id) is one.job}
        if not unique:
            return
        began_ns = time.time_ns()
        jobs = [one.job for one in unique.values()]
        rows = [HandBack(one.job.id, one.job.claimed.epoch, one.delay_s) for one in unique.values()]
        if self._insist(lambda: self._store.hand_back(self._boot, rows)) is None:
            return
        for job in jobs:
            self._active.remove(job)
        self._metrics.window_items.set(self._active.items)
        if self._spans is not None:
            self._spans.ended([(job, "handed_back", None) for job in jobs], began_ns)

    def _insist(self, call: Callable[[], T]) -> T | None:
        """Returns what the database says, waiting for one that is away; None once the drain gives up."""
        wait_s = _RETRY_S[0]
        while True:
            try:
                answer = call()
            except StoreUnavailableError as error:
                self._outage.failed(error)
                if self._gave_up.wait(wait_s):
                    return None
                wait_s = min(2 * wait_s, _RETRY_S[1])
            else:
                self._outage.worked()
                return answer

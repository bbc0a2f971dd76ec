"""Settle: puts jobs together again from their items, writes results and states, and rings.

Everything that has ended while the last transaction ran is settled in the next one: one statement and one block
of bytes, however many jobs. A database that is away is waited for; results are kept meanwhile.
"""

import logging
import queue
import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from batchfleet.broker.port import Ring
from batchfleet.errors import StoreUnavailableError, UnavailableError
from batchfleet.inference.task import ItemFault
from batchfleet.jobs.job import BootId, HandBack, JobError, JobErrorCode, JobId, OnItemError, Settlement, SettleOutcome
from batchfleet.jobs.retry import after_error
from batchfleet.jobs.states import JobState
from batchfleet.jobs.store import JobStore
from batchfleet.logs import Action, OutageLog
from batchfleet.results.blobs import BlobStore, result_key
from batchfleet.results.codec import encode_tensors
from batchfleet.telemetry import Metrics, Stopwatch
from workers.active import ActiveJob, ActiveJobs
from workers.messages import ItemsFailed, JobExpired, JobFailed, PassDone, SettleMessage

logger = logging.getLogger(__name__)

_MAX_ROWS = 1_000
_RETRY_S = (0.1, 2.0)


@dataclass(frozen=True, slots=True)
class Ended:
    """One job that ended here, with the bytes of its result."""

    job: ActiveJob
    row: Settlement
    data: bytes = b""


class Settler:
    """Owns the progress of jobs. `run` is its thread; `put` may be called from any.

    Args:
        discard: Drops what is left of a job in the window.
        row_bytes: Results over this size go to the blob store.
    """

    def __init__(
        self,
        boot: BootId,
        store: JobStore,
        blobs: BlobStore,
        ring: Ring,
        active: ActiveJobs,
        discard: Callable[[JobId], object],
        metrics: Metrics,
        row_bytes: int,
    ) -> None:
        self._boot = boot
        self._store = store
        self._blobs = blobs
        self._ring = ring
        self._active = active
        self._discard = discard
        self._metrics = metrics
        self._row_bytes = row_bytes
        self._queue: queue.SimpleQueue[SettleMessage | None] = queue.SimpleQueue()
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
        """Ends the waiting for a database that is away: what is unsettled is left to the rescuer."""
        self._gave_up.set()

    def run(self, stopping: threading.Event) -> None:
        """Settles until stopped, then what is queued still: the body of the thread."""
        while True:
            messages = self._next()
            ended = [done for message in messages for done in self._take(message)]
            for start in range(0, len(ended), _MAX_ROWS):
                self._settle(ended[start : start + _MAX_ROWS])
            if stopping.is_set() and self._queue.empty():
                return

    def hand_back(self, jobs: Sequence[ActiveJob]) -> int:
        """Returns jobs untouched, free of charge; for the drain. Returns how many changed hands."""
        rows = [HandBack(job.id, job.claimed.epoch) for job in jobs if self._active.remove(job)]
        self._metrics.window_items.set(self._active.items)
        return len(self._store.hand_back(self._boot, rows)) if rows else 0

    def _next(self) -> list[SettleMessage]:
        messages = [self._queue.get()]
        while True:
            try:
                messages.append(self._queue.get_nowait())
            except queue.Empty:
                return [message for message in messages if message is not None]

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
                if job.started or self._active.get(job.id) is not job:
                    return []
                return [Ended(job, Settlement(id=job.id, epoch=job.claimed.epoch, state=JobState.EXPIRED))]

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
        return [self._succeeded(job, provenance)]

    def _succeeded(self, job: ActiveJob, provenance: Mapping[str, object]) -> Ended:
        rows: list[NDArray[Any] | None] = [job.outcomes.get(index) for index in range(job.claimed.item_count)]  # type: ignore[misc]
        form, data = encode_tensors(
            [None if row is None else np.asarray(row) for row in rows], list(job.faults.values())
        )
        row = Settlement(
            id=job.id,
            epoch=job.claimed.epoch,
            state=JobState.SUCCEEDED,
            format=form,
            provenance=_provenance(provenance, job),
        )
        if len(data) <= self._row_bytes:
            return Ended(job, row, data)
        key = result_key(job.id, job.claimed.epoch)
        try:
            self._blobs.put(key, data)
        except UnavailableError as error:
            return self._failed(job, JobError(JobErrorCode.RESULT_UNWRITABLE, str(error)), provenance)
        return Ended(job, replace(row, blob_key=key))

    def _failed(self, job: ActiveJob, error: JobError, provenance: Mapping[str, object]) -> Ended:
        claimed = job.claimed
        decision = after_error(
            error.code,
            attempts=claimed.attempts + 1,
            max_attempts=claimed.max_attempts,
            jitter=self._random.random(),
        )
        return Ended(
            job,
            Settlement(
                id=job.id,
                epoch=claimed.epoch,
                state=JobState.QUEUED if decision.retry else JobState.FAILED,
                error=error,
                provenance=_provenance(provenance, job) if provenance else None,
                retry_in_s=decision.delay_s,
            ),
        )

    # -- writing ------------------------------------------------------------------------------------------

    def _settle(self, ended: Sequence[Ended]) -> None:
        rows, parts, offset = [], [], 0
        # A job can end twice in one go (failed, then its last items came): the first end is the one.
        unique = {one.job.id: one for one in reversed(ended)}
        for one in unique.values():
            rows.append(replace(one.row, offset=offset, length=len(one.data)) if one.data else one.row)
            parts.append(one.data)
            offset += len(one.data)
        with Stopwatch(self._metrics.settle_seconds):
            outcome = self._write(rows, b"".join(parts))
        for one in unique.values():
            self._active.remove(one.job)
            if one.row.state is not JobState.SUCCEEDED:
                self._discard(one.job.id)
        self._metrics.window_items.set(self._active.items)
        self._tell(outcome, unique)

    def _write(self, rows: Sequence[Settlement], block: bytes) -> SettleOutcome:
        """Writes until the database takes it, or the drain gives up."""
        wait_s = _RETRY_S[0]
        while True:
            try:
                outcome = self._store.settle(self._boot, rows, block)
            except StoreUnavailableError as error:
                self._outage.failed(error)
                if self._gave_up.wait(wait_s):
                    return SettleOutcome()
                wait_s = min(2 * wait_s, _RETRY_S[1])
            else:
                self._outage.worked()
                return outcome

    def _tell(self, outcome: SettleOutcome, ended: Mapping[JobId, Ended]) -> None:
        finished = [job_id for job_id, state in outcome.applied if state.terminal]
        if finished:
            self._ring.ring(finished)
        if outcome.stale:
            self._metrics.stale_settles.inc(len(outcome.stale))
        for job_id, state in outcome.applied:
            claimed = ended[job_id].job.claimed
            self._metrics.jobs_ended.labels(claimed.model, claimed.lane, state).inc()


def _provenance(provenance: Mapping[str, object], job: ActiveJob) -> str:
    return msgspec.json.encode({**provenance, "attempt": job.claimed.attempts + 1}).decode()

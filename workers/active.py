"""The jobs that this worker holds: their progress, and how much room is left."""

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from batchfleet.inference.executor import Outcome
from batchfleet.jobs.job import ClaimedJob, JobError, JobId, Lane
from batchfleet.tracing import SpanContext

PARKED_S: Final = 5.0
"""Seconds from a claim after which a job whose object was not begun with goes back."""


@dataclass(slots=True, eq=False)
class JobSpans:
    """What is noted of a traced job until it is told of (`workers.spans`). Times are Unix nanoseconds.

    Attributes:
        run: The span of this run.
        parent: The span of its submission.
        prepared: When the call that prepared it began and ended.
        batches: The spans of the batches that its items were in.
    """

    run: SpanContext
    parent: SpanContext
    claimed_ns: int
    prepared: tuple[int, int] | None = None
    batches: list[SpanContext] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class ActiveJob:
    """One claimed job on its way.

    Only the settler changes `outcomes`, `faults` and `missing`; the executor sets `started`.

    Attributes:
        claimed: What the claim returned.
        arrived: Monotonic time at which it was submitted.
        deadline: Monotonic time until which its pass must start, or None.
        run_until: Monotonic time from which its run counts as wedged: it is rescued then, if it was not before.
        started: Whether an item of it was in a pass: its time to live no longer ends it.
        spans: What is noted of it for its trace; None where it has none.
        room: Items that it takes of the window.
        fetching: Whether the object with its inputs has yet to be read.
        reading: Whether it is being read.
        fetched: Its bytes, until they are parsed.
        missing: Items without an outcome yet.
    """

    claimed: ClaimedJob
    arrived: float
    deadline: float | None
    run_until: float = math.inf
    started: bool = False
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    faults: dict[int, JobError] = field(default_factory=dict)
    spans: JobSpans | None = None
    room: int = 0
    fetching: bool = False
    reading: bool = False
    fetched: bytes | None = None

    @property
    def id(self) -> JobId:
        """Returns the job's id."""
        return self.claimed.id

    @property
    def missing(self) -> int:
        """Returns how many items have no outcome yet."""
        return self.claimed.item_count - len(self.outcomes) - len(self.faults)


class ActiveJobs:
    """All claimed, unsettled jobs of the worker, and the room that they leave. Thread-safe."""

    def __init__(self) -> None:
        self._jobs: dict[JobId, ActiveJob] = {}
        self._items = dict.fromkeys(Lane, 0)
        self._lock = threading.Lock()
        self._on_freed: list[Callable[[], None]] = []

    def add(self, claimed: ClaimedJob, now: float) -> ActiveJob:
        """Takes a claimed job in; `now` is the monotonic time of the claim.

        The same job may come again while an earlier claim of it is still held (it was rescued meanwhile): the
        later claim is the one that counts.
        """
        deadline = None if claimed.ttl_left_s is None else now + claimed.ttl_left_s
        job = ActiveJob(
            claimed, now - claimed.age_s, deadline, run_until=now + claimed.run_timeout_s, room=claimed.item_count
        )
        with self._lock:
            earlier = self._jobs.get(job.id)
            if earlier is not None:
                self._items[earlier.claimed.lane] -= earlier.room
            self._jobs[job.id] = job
            self._items[claimed.lane] += job.room
        return job

    def get(self, job_id: JobId) -> ActiveJob | None:
        """Returns the job if the worker still holds it."""
        return self._jobs.get(job_id)

    def remove(self, job: ActiveJob) -> bool:
        """Forgets a job. Returns False if it was forgotten before."""
        with self._lock:
            if self._jobs.get(job.id) is not job:
                return False
            del self._jobs[job.id]
            self._items[job.claimed.lane] -= job.room
        self._tell_freed()
        return True

    def resize(self, job: ActiveJob, room: int) -> None:
        """Has a job take another part of the window than it did."""
        with self._lock:
            if self._jobs.get(job.id) is job:
                self._items[job.claimed.lane] += room - job.room
            job.room = room
        self._tell_freed()

    def when_freed(self, callback: Callable[[], None]) -> None:
        """Has the callback called, on whatever thread, each time that room may have been freed."""
        self._on_freed.append(callback)

    def _tell_freed(self) -> None:
        for callback in self._on_freed:
            callback()

    def overdue(self, now: float) -> list[ActiveJob]:
        """Returns the jobs whose run counts as wedged."""
        with self._lock:
            return [job for job in self._jobs.values() if job.run_until <= now]

    def expired_unread(self, now: float) -> list[ActiveJob]:
        """Returns the jobs whose time to live is over before their object was read."""
        with self._lock:
            jobs = self._jobs.values()
            return [job for job in jobs if job.fetching and job.deadline is not None and job.deadline <= now]

    def parked(self, now: float) -> list[ActiveJob]:
        """Returns the jobs whose object has waited for its turn so long that another worker should have them."""
        with self._lock:
            waiting = [job for job in self._jobs.values() if job.fetching and not job.reading]
        return [job for job in waiting if now >= job.run_until - job.claimed.run_timeout_s + PARKED_S]

    @property
    def fetching(self) -> int:
        """Returns how many jobs wait for their objects."""
        with self._lock:
            return sum(job.fetching for job in self._jobs.values())

    def all(self) -> list[ActiveJob]:
        """Returns the jobs held now."""
        with self._lock:
            return list(self._jobs.values())

    @property
    def items(self) -> int:
        """Returns the items of all jobs held."""
        return sum(self._items.values())

    @property
    def items_by_lane(self) -> dict[Lane, int]:
        """Returns the items of all jobs held, by lane."""
        with self._lock:
            return dict(self._items)

    def __len__(self) -> int:
        return len(self._jobs)

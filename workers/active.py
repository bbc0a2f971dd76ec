"""The jobs that this worker holds: their progress, and how much room is left."""

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from batchfleet.inference.executor import Outcome
from batchfleet.jobs.job import ClaimedJob, JobError, JobId, Lane


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
        missing: Items without an outcome yet.
    """

    claimed: ClaimedJob
    arrived: float
    deadline: float | None
    run_until: float = math.inf
    started: bool = False
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    faults: dict[int, JobError] = field(default_factory=dict)

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
        self._on_freed: Callable[[], None] = _nobody

    def add(self, claimed: ClaimedJob, now: float) -> ActiveJob:
        """Takes a claimed job in; `now` is the monotonic time of the claim.

        The same job may come again while an earlier claim of it is still held (it was rescued meanwhile): the
        later claim is the one that counts.
        """
        deadline = None if claimed.ttl_left_s is None else now + claimed.ttl_left_s
        job = ActiveJob(claimed, now - claimed.age_s, deadline, run_until=now + claimed.run_timeout_s)
        with self._lock:
            earlier = self._jobs.get(job.id)
            if earlier is not None:
                self._items[earlier.claimed.lane] -= earlier.claimed.item_count
            self._jobs[job.id] = job
            self._items[claimed.lane] += claimed.item_count
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
            self._items[job.claimed.lane] -= job.claimed.item_count
        self._on_freed()
        return True

    def when_freed(self, callback: Callable[[], None]) -> None:
        """Has the callback called, on whatever thread, each time that room was freed."""
        self._on_freed = callback

    def overdue(self, now: float) -> list[ActiveJob]:
        """Returns the jobs whose run counts as wedged."""
        with self._lock:
            return [job for job in self._jobs.values() if job.run_until <= now]

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


def _nobody() -> None:
    """Nobody waits for room yet."""

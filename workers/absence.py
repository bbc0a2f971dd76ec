"""How long object stores that are away are waited for. Pure: times are arguments, in seconds of a monotonic clock.

Two things are remembered. Of a bucket: since when its requests fail, so that it is asked now and then instead of once
for each waiting job, each of which may hang for a while. Of a job: since when its object was wanted, so that its
waiting grows, and ends. Both are this process's own knowledge: after a restart, or at another worker, patience begins
anew, which costs nobody anything.
"""

from dataclasses import dataclass
from typing import Final

from batchfleet.jobs.job import JobId

_MOST_JOBS: Final = 100_000
"""Jobs remembered; the oldest are forgotten first, and may wait longer for it."""


@dataclass(frozen=True, slots=True)
class AbsenceTerms:
    """How patient a worker is.

    Attributes:
        patience_s: Seconds from the first failed try after which a job fails instead of being handed back.
        delay_s: Shortest and longest time for which a job goes back; in between, half of what it has waited.
        pause_s: The same for the pause in which a bucket is not asked.
        probe_s: Seconds after which a probe that has not come back no longer keeps others from asking.
    """

    patience_s: float = 3600.0
    delay_s: tuple[float, float] = (1.0, 60.0)
    pause_s: tuple[float, float] = (0.5, 10.0)
    probe_s: float = 60.0


@dataclass(slots=True)
class _Away:
    since: float
    ask_at: float


class Absences:
    """What one worker knows of buckets that are away. Not thread-safe."""

    def __init__(self, terms: AbsenceTerms | None = None) -> None:
        self._terms = AbsenceTerms() if terms is None else terms
        self._buckets: dict[str, _Away] = {}
        self._jobs: dict[JobId, float] = {}

    def delay(self, bucket: str, job_id: JobId, now: float, jitter: float) -> float | None:
        """Returns for how long a job goes back untried, None if its object may be asked for now.

        While a bucket is away, one caller after each pause is let through, as a probe.

        Args:
            bucket: Where its object lies.
            job_id: The job.
            now: Monotonic time.
            jitter: A number in [0, 1).
        """
        away = self._buckets.get(bucket)
        if away is None:
            return None
        if now < away.ask_at:
            return self._delay(self._first(job_id, now), now, jitter)
        away.ask_at = now + self._terms.probe_s
        return None

    def failed(self, bucket: str, job_id: JobId, now: float, jitter: float) -> float | None:
        """Notes a failed try. Returns for how long the job goes back, None if it has waited long enough."""
        away = self._buckets.setdefault(bucket, _Away(now, now))
        away.ask_at = now + _between(self._terms.pause_s, (now - away.since) / 2)
        first = self._first(job_id, now)
        if now - first >= self._terms.patience_s:
            del self._jobs[job_id]
            return None
        return self._delay(first, now, jitter)

    def worked(self, bucket: str, job_id: JobId) -> None:
        """Notes that a bucket answers."""
        self._buckets.pop(bucket, None)
        self._jobs.pop(job_id, None)

    def _first(self, job_id: JobId, now: float) -> float:
        first = self._jobs.setdefault(job_id, now)
        self._forget(now)
        return first

    def _forget(self, now: float) -> None:
        """Drops jobs that have not ended here: cancelled, expired, or done by another worker."""
        while self._jobs:
            oldest = next(iter(self._jobs))
            if len(self._jobs) <= _MOST_JOBS and now - self._jobs[oldest] <= 2 * self._terms.patience_s:
                return
            del self._jobs[oldest]

    def _delay(self, first: float, now: float, jitter: float) -> float:
        return _between(self._terms.delay_s, (now - first) / 2) * (0.5 + jitter / 2)


def _between(bounds: tuple[float, float], value: float) -> float:
    return max(bounds[0], min(bounds[1], value))

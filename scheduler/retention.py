"""Retention: results, jobs and deliveries that are old enough are removed, the database first, then the blobs.

A process that dies between the two leaves blobs that nobody names; the sweep of orphans finds them.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from batchfleet.clock import Monotonic, Wall
from batchfleet.jobs.job import JobId
from batchfleet.jobs.store import JobStore
from batchfleet.logs import Action
from batchfleet.outbox.port import OutboxStore
from batchfleet.profiles.port import ProfileStore
from batchfleet.results.blobs import BlobStore, BlobsUnavailableError
from batchfleet.results.orphans import sweep_orphans
from batchfleet.settings import Settings
from batchfleet.telemetry import Metrics
from scheduler.celery_app import BEAT_S, PURGE, SWEEP_ORPHANS

logger = logging.getLogger(__name__)

PAGE: Final = 500
ROUND_S: Final = 30.0
"""How long one round of a purge goes on; what is left waits for the next, so that a stop need not wait for it."""
SWEEP_STEP: Final = 5_000
"""Blobs looked at between two looks at whether to stop."""
SWEEP_EVERY_S: Final = 3_600.0
_SLACK: Final = 0.9
"""Share of its period after which a duty may be taken again: clocks and sleeps are not exact."""


class Retention:
    """The periodic duties of one replica. Each is done by one process per period.

    Args:
        settings: Its retentions and `orphan_grace_s` count.
        stopping: Says that a round should end early.
    """

    def __init__(
        self,
        jobs: JobStore,
        outbox: OutboxStore,
        blobs: BlobStore,
        profiles: ProfileStore,
        metrics: Metrics,
        settings: Settings,
        stopping: Callable[[], bool] = lambda: False,
        clock: Monotonic = time.monotonic,
        wall: Wall = time.time,
    ) -> None:
        self._jobs = jobs
        self._outbox = outbox
        self._blobs = blobs
        self._profiles = profiles
        self._metrics = metrics
        self._settings = settings
        self._wall = wall
        self._stopping = stopping
        self._clock = clock

    def purge(self) -> None:
        """Removes what is too old, page by page."""
        if not self._outbox.take_duty(PURGE, period_s=_SLACK * BEAT_S[PURGE]):
            return
        settings = self._settings
        kinds: tuple[tuple[str, Callable[[], int]], ...] = (
            ("results", lambda: self._freed(self._jobs.purge_results(settings.result_retention_s, PAGE))),
            ("jobs", lambda: self._freed(self._jobs.purge_jobs(settings.job_retention_s, PAGE))),
            ("deliveries", lambda: self._outbox.purge(settings.job_retention_s, PAGE)),
            ("profiles", self._profiles.purge),
        )
        for what, step in kinds:
            removed = self._pages(step)
            if removed:
                self._metrics.purged.labels(what).inc(removed)
                logger.info("purged", extra={"action": Action.PURGED, "what": what, "count": removed})

    def sweep_orphans(self) -> None:
        """Removes blobs that no job names."""
        if not self._outbox.take_duty(SWEEP_ORPHANS, period_s=_SLACK * SWEEP_EVERY_S):
            return
        try:
            removed = self._sweep()
        except BlobsUnavailableError as exc:
            logger.warning("orphans not swept: %s", exc, extra={"action": Action.PURGED})
            return
        if removed:
            self._metrics.orphans_removed.inc(removed)
            logger.info("orphans removed", extra={"action": Action.PURGED, "what": "orphans", "count": removed})

    def _sweep(self) -> int:
        removed, after = 0, ""
        while True:
            swept = sweep_orphans(
                self._blobs,
                self._jobs.named_blobs,
                now=self._wall(),
                grace_s=self._settings.orphan_grace_s,
                limit=SWEEP_STEP,
                after=after,
            )
            removed, after = removed + swept.removed, swept.next_after
            if not after or self._stopping():
                return removed

    def _pages(self, step: Callable[[], int]) -> int:
        until = self._clock() + ROUND_S
        total = 0
        while True:
            removed = step()
            total += removed
            if removed < PAGE or self._stopping() or self._clock() >= until:
                return total

    def _freed(self, removed: Sequence[tuple[JobId, str | None]]) -> int:
        for _, key in removed:
            if key is not None:
                try:
                    self._blobs.delete(key)
                except BlobsUnavailableError as exc:
                    logger.warning("a blob is left to the sweep: %s", exc, extra={"action": Action.PURGED})
        return len(removed)

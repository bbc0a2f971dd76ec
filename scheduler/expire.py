"""Expire: ends queued jobs whose time to live is over. Claimed ones are their worker's to expire."""

from typing import Final

from batchfleet.broker.port import Ring
from batchfleet.jobs.store import JobStore

PAGE: Final = 1_000


class Expirer:
    """One replica's sweep over queued jobs."""

    def __init__(self, store: JobStore, ring: Ring) -> None:
        self._store = store
        self._ring = ring

    def step(self) -> int:
        """Expires one page of jobs; returns how many that were."""
        expired = self._store.expire(PAGE)
        if expired:
            self._ring.ring(expired)
        return len(expired)

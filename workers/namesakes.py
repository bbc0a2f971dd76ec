"""Two live workers of one name: on one machine the journal's lock refuses the second, elsewhere only the leases tell.

Nobody is refused here: a worker that was killed on another machine, or lost its state folder, is itself the holder of
the lease that it finds. After a lifetime of the lease only a live worker still holds one.
"""

import logging
import time
from typing import Final

from batchfleet.clock import Monotonic
from batchfleet.errors import StoreUnavailableError
from batchfleet.jobs.job import BootId
from batchfleet.jobs.store import JobStore
from batchfleet.logs import Action

logger = logging.getLogger(__name__)

_MARGIN: Final = 1.5
_GIVEN_UP_S: Final = 60.0
"""While the database is away nothing can be told; then it is asked again after this."""


class Namesakes:
    """Looks for other live leases of this worker's name: at its registration, and once more a lease's lifetime later.

    Args:
        name: The worker's.
        boot: Its own boot.
        ttl_s: The lease's time to live.
    """

    def __init__(self, name: str, boot: BootId, ttl_s: float, clock: Monotonic = time.monotonic) -> None:
        self._name = name
        self._boot = boot
        self._ttl_s = ttl_s
        self._clock = clock
        self._next_at: float | None = clock()
        self._found: frozenset[BootId] = frozenset()

    def look(self, store: JobStore) -> None:
        """Looks if it is time to, and warns; never raises."""
        if self._next_at is None or self._clock() < self._next_at:
            return
        try:
            leases = store.workers()
        except StoreUnavailableError:
            self._next_at = self._clock() + _GIVEN_UP_S
            return
        others = frozenset(
            lease.boot
            for lease in leases
            if lease.name == self._name and lease.boot != self._boot and lease.heartbeat_age_s <= self._ttl_s
        )
        again = self._found & others
        extra = {"action": Action.NAME_SHARED, "worker": self._name, "others": sorted(others)}
        if again:
            logger.error(
                "another live worker is called %s too: give each its own BATCHFLEET_WORKER_NAME",
                self._name,
                extra=extra,
            )
        elif others:
            logger.warning(
                "a live lease of the name %s exists already: if it is not this worker's own from before its restart "
                "(then it ends within %.0f s), give each worker its own BATCHFLEET_WORKER_NAME",
                self._name,
                self._ttl_s,
                extra=extra,
            )
        self._next_at = self._clock() + _MARGIN * self._ttl_s if others and not again else None
        self._found = others

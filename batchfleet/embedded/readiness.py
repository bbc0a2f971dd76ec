"""Asks a fleet whether it is ready: its API says so, and its workers have warmed up."""

import http.client
import time
from collections.abc import Callable, Collection
from urllib.parse import urlsplit

from batchfleet.errors import StoreUnavailableError
from batchfleet.jobs.job import WorkerLease, WorkerState

_TIMEOUT_S = 2.0
_GRACE_S = 10.0


class Readiness:
    """Ready is a fleet whose API is and with it all workers; or at least one, a while after the first.

    Args:
        url: Where the API answers.
        leases: Reads the workers' leases.
        workers: How many workers there should be; with 0 the API alone counts.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        url: str,
        leases: Callable[[], list[WorkerLease]],
        *,
        workers: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._netloc = urlsplit(url).netloc
        self._leases = leases
        self._workers = workers
        self._clock = clock
        self._first_at: float | None = None
        self.missing = "the API does not answer yet"

    def ready(self, pids: Collection[int]) -> bool:
        """Asks once; never raises.

        Args:
            pids: The fleet's own processes: leases of others, or of an earlier run, do not count.
        """
        try:
            if not self._api_is_ready():
                return False
            count = sum(lease.state is WorkerState.READY and lease.pid in pids for lease in self._leases())
        except StoreUnavailableError as error:
            self.missing = f"the database does not answer yet ({error})"
            return False
        except (OSError, http.client.HTTPException):
            self.missing = "the API does not answer yet"
            return False
        if count >= self._workers:
            return True
        # Not "are ready": they say so with their next heartbeat, some seconds after their log does.
        self.missing = f"{count} of {self._workers} worker(s) have reported that they are ready"
        if count and self._first_at is None:
            self._first_at = self._clock()
        return self._first_at is not None and self._clock() - self._first_at >= _GRACE_S

    def _api_is_ready(self) -> bool:
        connection = http.client.HTTPConnection(self._netloc, timeout=_TIMEOUT_S)
        try:
            connection.request("GET", "/readyz")
            ready = connection.getresponse().status == http.client.OK
        finally:
            connection.close()
        if not ready:
            self.missing = "the API is not ready yet"
        return ready

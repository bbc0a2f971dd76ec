"""A stand-in for a worker, for tests of the API: it claims and settles through the store, and rings."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from batchfleet.broker.port import Ring
from batchfleet.jobs.job import ClaimedJob, JobError, Settlement, WorkerLease, WorkerState, parse_job_id
from batchfleet.jobs.states import JobState
from batchfleet.jobs.store import JobStore
from batchfleet.results import codec


class PlayedWorker:
    """Claims and settles through the store, and rings, as a worker does."""

    def __init__(self, store: JobStore, ring: Ring, models: tuple[str, ...] = ()) -> None:
        self.boot = "boot-of-the-played-worker"
        self._store = store
        self._ring = ring
        self._lease = WorkerLease(boot=self.boot, name="played", pid=1, state=WorkerState.READY, models=models)
        self._registered = False

    def register(self) -> None:
        """Writes the lease, once."""
        if not self._registered:
            self._store.register(self._lease)
            self._registered = True

    def claim(self, public_id: str) -> ClaimedJob:
        """Takes one job."""
        self.register()
        (claimed,) = self._store.claim(self.boot, [parse_job_id(public_id)])
        return claimed

    def succeed(self, public_id: str, rows: Sequence[Any] | None = None, *, ring: bool = True) -> None:
        """Ends a job with vectors (or other values)."""
        claimed = self.claim(public_id)
        vectors = [np.arange(3, dtype=np.float32)] * claimed.item_count if rows is None else list(rows)
        described, data = codec.encode_tensors(vectors)
        self.settle(claimed, JobState.SUCCEEDED, data=data, format=described, ring=ring)

    def fail(self, public_id: str, error: JobError) -> None:
        """Ends a job without a result."""
        self.settle(self.claim(public_id), JobState.FAILED, error=error)

    def settle(
        self, claimed: ClaimedJob, state: JobState, *, data: bytes = b"", ring: bool = True, **fields: Any
    ) -> None:
        """Writes one end."""
        row = Settlement(id=claimed.id, epoch=claimed.epoch, state=state, length=len(data), **fields)
        outcome = self._store.settle(self.boot, [row], data)
        assert outcome.applied, outcome
        if ring:
            self._ring.ring([claimed.id])

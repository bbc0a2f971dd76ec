"""Uploads: writes results that are too large for a row into the blob store, beside the settling of all others.

A blob store that is away is no fault of a job's. It is asked again with backoff for a while; then the job goes back
free of charge, for a later run by whoever claims it. What waits here does not hold up the settler, and does not count
in the window either, up to a bound in bytes: beyond it the window fills, and the worker claims less.
"""

import logging
import queue
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from batchfleet.clock import Monotonic
from batchfleet.errors import UnavailableError
from batchfleet.jobs.job import JobError, JobErrorCode, Settlement
from batchfleet.logs import Action, OutageLog
from batchfleet.results.blobs import BlobRefusedError, BlobStore
from workers.active import ActiveJob, ActiveJobs
from workers.messages import JobFailed, JobReturned, ResultStored, SettleMessage

logger = logging.getLogger(__name__)

UPLOAD_THREADS: Final = 4


@dataclass(frozen=True, slots=True)
class UploadTerms:
    """How long a blob store that is away is waited for.

    Attributes:
        patience_s: Seconds from a result's end of pass after which its job goes back.
        spare_s: Seconds before the end of its run timeout at which it goes back in any case: one try must fit in.
        backoff_s: First and longest pause between two tries.
        free_bytes: Results waiting here that do not count in the window.
    """

    patience_s: float = 60.0
    spare_s: float = 30.0
    backoff_s: tuple[float, float] = (0.2, 5.0)
    free_bytes: int = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Upload:
    job: ActiveJob
    row: Settlement
    key: str
    data: bytes
    until: float


class Uploads:
    """Owns what is being uploaded. `run` is the body of each of its threads; `put` may be called from any.

    Args:
        settle: Takes what came of an upload.
        wake: Has the settler look whether it is done, once an upload has ended.
    """

    def __init__(
        self,
        blobs: BlobStore,
        active: ActiveJobs,
        settle: Callable[[SettleMessage], None],
        wake: Callable[[], None],
        terms: UploadTerms | None = None,
        clock: Monotonic = time.monotonic,
    ) -> None:
        self._blobs = blobs
        self._active = active
        self._settle = settle
        self._wake = wake
        self._terms = UploadTerms() if terms is None else terms
        self._clock = clock
        self._queue: queue.SimpleQueue[_Upload | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._pending = 0
        self._bytes = 0
        self._away = False
        self._outage = OutageLog(logger, "the blob store, to write results", Action.BLOBS_UNAVAILABLE, clock)
        self._gave_up = threading.Event()
        self._random = random.Random()  # noqa: S311 - jitter

    @property
    def idle(self) -> bool:
        """Whether nothing is being uploaded: all that was is with the settler."""
        return self._pending == 0

    def put(self, job: ActiveJob, row: Settlement, key: str, data: bytes) -> None:
        """Queues a result to be written under a key; the settler is told what came of it."""
        terms = self._terms
        until = min(self._clock() + terms.patience_s, job.run_until - terms.spare_s)
        with self._lock:
            self._pending += 1
            self._bytes += len(data)
            room = self._bytes <= terms.free_bytes
        if room:
            self._active.resize(job, 0)
        self._queue.put(_Upload(job, row, key, data, until))

    def stop(self) -> None:
        """Ends one thread once what is queued before is done; call it once for each."""
        self._queue.put(None)

    def give_up(self) -> None:
        """Ends the waiting for a blob store that is away: the jobs stay held, to be handed back."""
        self._gave_up.set()

    def run(self, _stopping: threading.Event) -> None:
        """Uploads until told to stop: the body of a thread."""
        while (upload := self._queue.get()) is not None:
            message = self._try(upload)
            if message is not None:
                self._settle(message)
            with self._lock:
                self._pending -= 1
                self._bytes -= len(upload.data)
            self._wake()

    def _try(self, upload: _Upload) -> SettleMessage | None:
        """Returns what came of an upload, None if nobody waits for it any more."""
        wait_s, longest_s = self._terms.backoff_s
        job = upload.job
        while self._active.get(job.id) is job and not self._gave_up.is_set():
            # During an outage a hanging store would be asked once more for each of hundreds of results.
            if self._away and self._clock() >= upload.until:
                return JobReturned(job)
            try:
                self._blobs.put(upload.key, upload.data)
            except BlobRefusedError as error:
                return JobFailed(job, JobError(JobErrorCode.RESULT_UNWRITABLE, str(error)))
            except UnavailableError as error:
                self._failed(error)
                if self._clock() + wait_s >= upload.until:
                    return JobReturned(job)
                self._gave_up.wait(wait_s / 2 * (1 + self._random.random()))
                wait_s = min(2 * wait_s, longest_s)
            else:
                self._worked()
                return ResultStored(job, replace(upload.row, blob_key=upload.key))
        return None

    def _failed(self, error: Exception) -> None:
        with self._lock:
            self._away = True
            self._outage.failed(error)

    def _worked(self) -> None:
        with self._lock:
            self._away = False
            self._outage.worked()

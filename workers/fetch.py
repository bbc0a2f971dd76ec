"""Fetch: reads the objects that hold jobs' inputs, in threads of its own, so that a slow one stalls no other job.

Jobs with inputs of their own pass through at once. How many items an object holds is known only once it is read: until
then its job takes no room in the window, however long S3 takes. Objects are read ahead as far as their items (taken
for average ones) fit into half of the window, and their bytes into a bound; jobs whose object was not begun with
in a few seconds go back free of charge, since another worker may be idle (`ActiveJobs.parked`).
An object store that is away is no fault of a job's: it goes back free of charge as well, with a growing delay, for
an hour (`workers.absence`).
Parsing is left to the preparer's thread, where the journal names the job.
"""

import logging
import queue
import random
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from batchfleet.clock import Monotonic
from batchfleet.errors import BatchfleetError, InvalidRequestError, NotFoundError, UnavailableError
from batchfleet.foreign import describe
from batchfleet.jobs.inputs import read_inputs
from batchfleet.jobs.job import JobError, JobErrorCode
from batchfleet.logs import Action, OutageLog
from batchfleet.objects.port import ObjectStore
from batchfleet.objects.uri import ObjectUri, parse_uri
from workers.absence import Absences
from workers.active import ActiveJob, ActiveJobs
from workers.messages import JobFailed, JobReturned, SettleMessage

logger = logging.getLogger(__name__)

FETCH_THREADS: Final = 4
_OBJECTS_HELD: Final = 4
"""Objects of the largest size whose bytes may be held at once; smaller ones may be as many more."""
_FIRST_GUESS: Final = 64.0
"""Items that an object is taken to hold before any was read."""
_SMOOTHING: Final = 0.2
_ITEM: Final = re.compile(r"inputs\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """How much an object may hold: as a request's body may.

    Attributes:
        object_bytes: Bytes of an object.
        item_bytes: Bytes of one input, as JSON.
        jobs: Jobs that may wait without taking room in the window.
    """

    object_bytes: int
    item_bytes: int
    jobs: int


class Fetcher:
    """Claimed jobs in, jobs with their inputs out. `run` is the body of each of its threads.

    Args:
        capacity: Returns how many items the window may hold now.
        prepare: Takes jobs whose inputs are there.
        settle: Takes jobs that end here, or go back.
        absences: What is known of buckets that are away; default: nothing yet.
    """

    def __init__(
        self,
        objects: ObjectStore,
        active: ActiveJobs,
        limits: FetchLimits,
        capacity: Callable[[], int],
        prepare: Callable[[list[ActiveJob]], None],
        settle: Callable[[SettleMessage], None],
        absences: Absences | None = None,
        clock: Monotonic = time.monotonic,
    ) -> None:
        self._objects = objects
        self._active = active
        self._limits = limits
        self._capacity = capacity
        self._prepare = prepare
        self._settle = settle
        self._queue: queue.SimpleQueue[ActiveJob | None] = queue.SimpleQueue()
        self._absences = Absences() if absences is None else absences
        self._clock = clock
        self._away_lock = threading.Lock()
        self._outage = OutageLog(logger, "the object store, to read inputs", Action.OBJECTS_UNAVAILABLE, clock)
        self._random = random.Random()  # noqa: S311 - jitter
        self._guess = _FIRST_GUESS
        self._freed = threading.Condition()
        active.when_freed(self._room_freed)

    def put(self, jobs: list[ActiveJob]) -> None:
        """Takes claimed jobs; those with inputs of their own go on at once."""
        ready = [job for job in jobs if job.claimed.input_uri is None]
        if ready:
            self._prepare(ready)
        waiting = self._active.fetching
        for job in jobs:
            if job.claimed.input_uri is not None:
                waiting += 1
                self._active.resize(job, 0 if waiting <= self._limits.jobs else 1)
                job.fetching = True
                self._queue.put(job)

    def stop(self) -> None:
        """Ends all threads that were asked to stop, and have nothing to read; what is queued is the drain's."""
        self._queue.put(None)
        self._room_freed()

    def run(self, stopping: threading.Event) -> None:
        """Fetches until stopped: the body of a thread."""
        while not stopping.is_set():
            job = self._queue.get()
            if job is None:
                self._queue.put(None)  # for the other threads
                return
            if self._begin(job, stopping):
                self._fetch(job)
                job.reading = False
                self._room_freed()

    def unpack(self, job: ActiveJob) -> None:
        """Turns the bytes of a fetched object into the job's inputs; on the preparer's thread, in its journal.

        Raises:
            InvalidRequestError: If they are not what a request might have brought as well.
        """
        data, job.fetched = job.fetched, None
        if data is None:
            return
        claimed = job.claimed
        found = read_inputs(data, name=claimed.input_uri or "", max_item_bytes=self._limits.item_bytes)
        count = len(found.values)
        job.claimed = replace(claimed, inputs=found.data, item_count=count)
        self._active.resize(job, count)
        self._guess += _SMOOTHING * (count - self._guess)

    def _fetch(self, job: ActiveJob) -> None:
        uri = job.claimed.input_uri or ""
        try:
            place = parse_uri(uri, field="input_uri")
            with self._away_lock:
                delay_s = self._absences.delay(place.bucket, job.id, self._clock(), self._random.random())
            if delay_s is not None:
                self._settle(JobReturned(job, delay_s))
                return
            data = self._read(place, job)
        except UnavailableError as error:
            self._away(job, place, error)
        except BatchfleetError as error:
            self._end(job, JobError(_code_of(error), str(error)))
        except Exception as error:  # a worker must not end because of one object
            logger.exception("an object cannot be read", extra={"action": Action.FETCH_FAILED, "job": f"job_{job.id}"})
            self._end(job, JobError(JobErrorCode.INTERNAL, f"reading {uri} failed: {describe(error)}"))
        else:
            job.fetched = data
            job.fetching = False
            if self._active.get(job.id) is job:
                self._prepare([job])

    def _read(self, place: ObjectUri, job: ActiveJob) -> bytes:
        try:
            data = self._objects.read(place, limit=self._limits.object_bytes)
        except UnavailableError:
            raise
        except BaseException:  # it answered, whatever it said; or nothing is known, and the next may try
            self._there(place, job)
            raise
        self._there(place, job)
        return data

    def _there(self, place: ObjectUri, job: ActiveJob) -> None:
        with self._away_lock:
            self._absences.worked(place.bucket, job.id)
            self._outage.worked()

    def _away(self, job: ActiveJob, place: ObjectUri, error: UnavailableError) -> None:
        """Hands a job back whose object cannot be had now, or ends it once that has lasted too long."""
        with self._away_lock:
            self._outage.failed(error)
            delay_s = self._absences.failed(place.bucket, job.id, self._clock(), self._random.random())
        if delay_s is None:
            self._end(job, JobError(_code_of(error), str(error)))
        else:
            self._settle(JobReturned(job, delay_s))

    def _end(self, job: ActiveJob, error: JobError) -> None:
        self._settle(JobFailed(job, error))

    def _begin(self, job: ActiveJob, stopping: threading.Event) -> bool:
        """Waits until there is room for what the object holds; False if nobody wants it any more."""

        def unwanted() -> bool:
            return stopping.is_set() or self._active.get(job.id) is not job

        with self._freed:
            self._freed.wait_for(lambda: unwanted() or self._fits_one_more())
            job.reading = not unwanted()
            return job.reading

    def _fits_one_more(self) -> bool:
        jobs = [job for job in self._active.all() if job.claimed.input_uri is not None]
        reading = sum(job.reading for job in jobs)
        fetched = [len(job.fetched) for job in jobs if job.fetched is not None]
        if sum(fetched) + (reading + 1) * self._limits.object_bytes > _OBJECTS_HELD * self._limits.object_bytes:
            return False
        items = sum(job.room for job in jobs if not job.fetching) + self._guess * (reading + len(fetched))
        return not items or items + self._guess <= self._capacity() / 2

    def _room_freed(self) -> None:
        with self._freed:
            self._freed.notify_all()


def _code_of(error: BatchfleetError) -> JobErrorCode:
    if isinstance(error, NotFoundError):
        return JobErrorCode.INPUT_NOT_FOUND
    if isinstance(error, UnavailableError):
        return JobErrorCode.INPUT_UNAVAILABLE
    return JobErrorCode.INPUT_INVALID


def item_of(error: InvalidRequestError) -> int | None:
    """Returns the index of the input that an error names, if it names one."""
    found = _ITEM.match(error.field or "")
    return int(found[1]) if found else None

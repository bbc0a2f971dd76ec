"""Requests that wait for a job to end: woken by the ring, with a coalesced look-up as the safety net.

A waiter registers, then reads the row, then waits: a ring between reading and waiting finds it registered.
Nothing runs while nobody waits. Whoever hears the ring reads the rows of all who wait for its jobs, in one statement,
before it wakes the event loop: each waiter is woken once, with its answer.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import TracebackType
from typing import Self

from batchfleet.clock import Monotonic, monotonic
from batchfleet.errors import BatchfleetError
from batchfleet.jobs.job import JobId, JobRecord

logger = logging.getLogger(__name__)


class Waiter:
    """One request that waits for one job; a context manager, so that it never outlives its request."""

    def __init__(self, waiters: "Waiters", job_id: JobId) -> None:
        self._waiters = waiters
        self._job_id = job_id
        self._rung = False
        self._record: JobRecord | None = None
        self._future: asyncio.Future[None] | None = None

    def __enter__(self) -> Self:
        self._waiters._add(self._job_id, self)  # noqa: SLF001 - one class in two parts
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _exc: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self._waiters._remove(self._job_id, self)  # noqa: SLF001 - one class in two parts

    async def wait(self, seconds: float) -> bool:
        """Waits for the next ring (or one since the last call). Returns False if none came in time."""
        if not self._rung and seconds > 0:
            loop = asyncio.get_running_loop()
            self._future = loop.create_future()
            timer = loop.call_later(seconds, self._resolve)
            try:
                await self._future
            finally:
                timer.cancel()
                self._future = None
        rung, self._rung = self._rung, False
        return rung

    def wake(self, record: JobRecord | None = None) -> None:
        """Ends the present or the next wait; on the event loop only. `record` is the job as it has been read since."""
        self._rung = True
        self._record = record
        self._resolve()

    def take_record(self) -> JobRecord | None:
        """Returns what the last ring brought along, once."""
        record, self._record = self._record, None
        return record

    def _resolve(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)


class Waiters:
    """All waiting requests of a process.

    Args:
        ended: Looks up many ids and returns those that have ended.
        lookup_s: How often it is asked about all waiting ids.
        read: Yields the jobs of a ring that can be read, in parts; called on the thread that hears it. What cannot be
            read is left to its waiter.
        clock: Measures the waits.
    """

    def __init__(
        self,
        ended: Callable[[Sequence[JobId]], Awaitable[Sequence[JobId]]],
        *,
        lookup_s: float,
        read: Callable[[Sequence[JobId]], Iterable[Sequence[JobRecord]]] | None = None,
        clock: Monotonic = monotonic,
    ) -> None:
        self._ended = ended
        self._lookup_s = lookup_s
        self._read = read
        self._clock = clock
        self._waiting: dict[JobId, set[Waiter]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._lookup: asyncio.Task[None] | None = None
        self._released = False

    def start(self) -> None:
        """Binds to the running event loop."""
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return sum(len(group) for group in self._waiting.values())

    def ring(self, ids: Sequence[JobId]) -> None:
        """Reads and wakes those who wait for these jobs; the ring's listener, on any thread but the event loop's.

        Jobs that nobody waits for here do not wake the loop: who registers from now on reads a row that has ended.
        """
        left = [job_id for job_id in ids if job_id in self._waiting]
        if not left or self._loop is None:
            return
        try:
            for records in self._read(left) if self._read is not None else ():
                self._loop.call_soon_threadsafe(self._tell, records)
                known = {record.id for record in records}
                left = [job_id for job_id in left if job_id not in known]
            if left:
                self._loop.call_soon_threadsafe(self.wake, left)
        except RuntimeError:
            logger.debug("ring after the end of the event loop")

    def wake(self, ids: Sequence[JobId]) -> None:
        """Wakes those who wait for these jobs, to read them themselves; on the event loop only."""
        for job_id in ids:
            for waiter in self._waiting.get(job_id, ()):
                waiter.wake()

    def release(self) -> None:
        """Wakes everybody, for good: the process stops, and answers with the present state."""
        self._released = True
        self.wake(list(self._waiting))

    def close(self) -> None:
        """Releases everybody and stops the safety net; idempotent."""
        self.release()
        if self._timer is not None:
            self._timer.cancel()
        if self._lookup is not None:
            self._lookup.cancel()

    def waiting(self, job_id: JobId) -> Waiter:
        """Returns a waiter for the job, to be entered before its row is read (or inserted)."""
        return Waiter(self, job_id)

    async def until_ended(
        self,
        waiter: Waiter,
        seconds: float,
        read: Callable[[], Awaitable[JobRecord]],
        *,
        gone: Callable[[], Awaitable[None]],
    ) -> JobRecord | None:
        """Waits until the job has ended and returns it; or as it is after `seconds`, or when released.

        Args:
            waiter: Registered before the caller knew that the job had not ended.
            seconds: For how long at most.
            read: Reads the job; what it raises is raised.
            gone: Returns when the client has hung up.

        Returns:
            The job, or None if the client has hung up.
        """
        deadline = self._clock() + seconds
        watch = asyncio.ensure_future(gone())
        watch.add_done_callback(lambda _: waiter.wake())
        try:
            while True:
                rung = not self._released and await waiter.wait(deadline - self._clock())
                if watch.done():
                    return None
                record = waiter.take_record() or await read()
                if record.state.terminal or not rung:
                    return record
        finally:
            watch.cancel()

    def _add(self, job_id: JobId, waiter: Waiter) -> None:
        self._waiting.setdefault(job_id, set()).add(waiter)
        # A look-up under way arms the timer at its end: a slow database must not get two at once.
        if self._timer is None and self._lookup is None and not self._released:
            self._arm()

    def _remove(self, job_id: JobId, waiter: Waiter) -> None:
        group = self._waiting[job_id]
        group.discard(waiter)
        if not group:
            del self._waiting[job_id]

    def _tell(self, records: Sequence[JobRecord]) -> None:
        for record in records:
            for waiter in self._waiting.get(record.id, ()):
                waiter.wake(record)

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._lookup_s, self._start_lookup)

    def _start_lookup(self) -> None:
        self._timer = None
        if self._waiting and not self._released:
            self._lookup = asyncio.ensure_future(self._look_up())

    async def _look_up(self) -> None:
        try:
            self.wake(await self._ended(list(self._waiting)))
        except BatchfleetError as exc:
            logger.debug("look-up of waiting jobs failed: %s", exc)
        except Exception:
            logger.exception("look-up of waiting jobs failed")
        finally:
            self._lookup = None
            if self._waiting and not self._released:
                self._arm()

"""Rows that every request needs (its key, its tenant), as they were a moment ago.

What is known is trusted for a while and read again before that is over, beside the requests. What is not known is
remembered as well, apart, so that a flood of made-up names neither reaches the database twice nor drives out what
is in use.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from batchfleet.clock import Monotonic, monotonic
from batchfleet.errors import OverloadedError, UnavailableError

V = TypeVar("V")

MAX_KNOWN = 10_000
MAX_UNKNOWN = 10_000
AGAIN_S = 2.0
"""So long after a read that failed, requests are answered from what was known without another one."""

OUTAGE_S = 900.0
"""For so long without the database what was known before goes on being trusted."""


@dataclass(slots=True)
class _Entry(Generic[V]):
    """A row, when it was read, and from when on it may be read again."""

    row: V
    read_at: float
    again_at: float


class KnownRows(Generic[V]):
    """A bounded cache of rows by name.

    Args:
        read: Reads one row; None if there is none of that name.
        fresh_s: For how long an answer is trusted.
        outage_s: For how long it is trusted while the database cannot be asked.
        clock: Measures that.
    """

    def __init__(
        self,
        read: Callable[[str], Awaitable[V | None]],
        *,
        fresh_s: float,
        outage_s: float = OUTAGE_S,
        clock: Monotonic = monotonic,
    ) -> None:
        self._read = read
        self._fresh_s = fresh_s
        self._outage_s = outage_s
        self._clock = clock
        self._known: dict[str, _Entry[V]] = {}
        self._unknown: dict[str, float] = {}
        self._reading: dict[str, asyncio.Task[V | None]] = {}

    async def get(self, name: str) -> V | None:
        """Returns the row; None if there is none of that name.

        Raises:
            UnavailableError: If the database cannot be asked, and the name was not known before.
            OverloadedError: If too many names wait to be asked for.
        """
        now = self._clock()
        entry = self._known.get(name)
        if entry is not None:
            if now < min(entry.again_at, entry.read_at + self._fresh_s + self._outage_s):
                return entry.row
            if now < entry.read_at + self._fresh_s:
                self._start(name).add_done_callback(_ignore_failure)  # in time: nobody has to wait for it
                return entry.row
        elif now < self._unknown.get(name, now):
            return None
        try:
            # Shielded: a caller that goes away must not take the answer from the others.
            return await asyncio.shield(self._start(name))
        except (UnavailableError, OverloadedError):
            if entry is None or self._clock() >= entry.read_at + self._fresh_s + self._outage_s:
                raise
            return entry.row

    def _start(self, name: str) -> asyncio.Task[V | None]:
        reading = self._reading.get(name)
        if reading is None:
            reading = self._reading[name] = asyncio.ensure_future(self._refresh(name))
        return reading

    async def _refresh(self, name: str) -> V | None:
        began_at = self._clock()
        try:
            row = await self._read(name)
        except (UnavailableError, OverloadedError):
            if name in self._known:
                self._known[name].again_at = self._clock() + AGAIN_S
            raise
        finally:
            del self._reading[name]
        self._known.pop(name, None)
        self._unknown.pop(name, None)
        if row is None:
            _make_room(self._unknown, MAX_UNKNOWN)
            self._unknown[name] = began_at + self._fresh_s
        else:
            _make_room(self._known, MAX_KNOWN)
            self._known[name] = _Entry(row, began_at, began_at + self._fresh_s / 2)
        return row


def _make_room(entries: dict[str, Any], limit: int) -> None:
    """Drops the entry that was read longest ago."""
    if len(entries) >= limit:
        del entries[next(iter(entries))]


def _ignore_failure(task: "asyncio.Task[V | None]") -> None:
    """Whoever can still trust the old answer does not care why there is no new one."""
    if not task.cancelled():
        task.exception()

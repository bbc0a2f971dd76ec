"""The load generator's process: callers in a closed loop, or arrivals in an open one.

In a closed loop each caller sends its next request when its last is answered: it measures throughput, and hides
what a slow server does to latency, since callers then ask less. In an open loop requests are sent when they are
due, whatever became of the earlier ones, and latency counts from when they were due (no coordinated omission).
"""

import asyncio
import contextlib
import gc
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe

import numpy as np
import uvloop
from numpy.typing import NDArray

from batchfleet.embedded.bench.http_connection import Answer, Connection, Target

_MOST_CONNECTIONS = 4096
"""At once: callers beyond them wait in the generator, and the wait counts."""
_SOON_S = 0.0005
"""The event loop's clock has whole milliseconds: what is due within half of one is sent now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Requests to send.

    Attributes:
        requests: Whole requests, in the order in which they are sent.
        callers: Callers of a closed loop.
        pauses_s: How long a caller of a closed loop rests before each request; None for not at all.
        due_s: When each request of an open loop is due, ascending, from the start; None for a closed loop.
        keep: Requests whose whole answers are wanted.
        patience_s: What is not answered so long after the last was due (open loop) or the first was sent (closed)
            never will be.
    """

    requests: Sequence[bytes]
    callers: int = 1
    pauses_s: Sequence[float] | None = None
    due_s: Sequence[float] | None = None
    keep: frozenset[int] = frozenset()
    patience_s: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What became of them, in the order of the requests.

    Attributes:
        from_s: When each was sent (closed loop) or due (open loop), from the start.
        until_s: When its answer was complete; NaN where none came.
        late_s: How much later than due each was written; 0 in a closed loop.
        statuses: HTTP status; 0 where none came.
        succeeded: Whether the answer shows a job that has succeeded.
        kept: The bodies asked for.
        cpu_s: CPU time of the generator.
        connections: Opened.
    """

    from_s: NDArray[np.float64]
    until_s: NDArray[np.float64]
    late_s: NDArray[np.float64]
    statuses: NDArray[np.int16]
    succeeded: NDArray[np.bool_]
    kept: dict[int, bytes]
    cpu_s: float
    connections: int

    @property
    def latencies_s(self) -> NDArray[np.float64]:
        """Of the jobs that succeeded."""
        return (self.until_s - self.from_s)[self.succeeded]


def serve(pipe: Pipe, target: Target) -> None:
    """Says that it is there, then does what it is sent until the other end is closed."""
    pipe.send("ready")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        while True:
            try:
                work: Work = pipe.recv()
            except (EOFError, KeyboardInterrupt):
                return
            pipe.send(runner.run(generate(target, work)))


async def generate(target: Target, work: Work) -> Answers:
    """Sends all requests and waits for their answers."""
    return await _Run(target, work).run()


class _Run:
    """One piece of work under way."""

    def __init__(self, target: Target, work: Work) -> None:
        count = len(work.requests)
        self._target, self._work = target, work
        self._from, self._until = np.full(count, np.nan), np.full(count, np.nan)
        self._late = np.zeros(count)
        self._statuses, self._succeeded = np.zeros(count, np.int16), np.zeros(count, np.bool_)
        self._kept: dict[int, bytes] = {}
        self._allowed = self._next = self._answered = 0
        self._free: list[Connection] = []
        self._open: set[Connection] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._opened = 0
        self._most = work.callers if work.due_s is None else _MOST_CONNECTIONS
        self._began = 0.0
        self._all_answered, self._all_closed = asyncio.Event(), asyncio.Event()
        self._context = ssl.create_default_context() if target.tls else None

    async def run(self) -> Answers:
        """Sends everything and waits for the answers."""
        gc.disable()  # a pause of ours would count as the fleet's
        cpu_s = time.process_time()
        self._began = time.perf_counter()
        if self._work.due_s is None:
            self._allow(len(self._work.requests))
        else:
            self._from[:] = self._work.due_s
            await self._allow_when_due(self._work.due_s)
        with contextlib.suppress(TimeoutError):  # what is missing has status 0
            await asyncio.wait_for(self._all_answered.wait(), self._work.patience_s)
        cpu_s = time.process_time() - cpu_s
        answers = Answers(
            from_s=self._from.copy(),  # what comes after this is not told
            until_s=self._until.copy(),
            late_s=self._late.copy(),
            statuses=self._statuses.copy(),
            succeeded=self._succeeded.copy(),
            kept=dict(self._kept),
            cpu_s=cpu_s,
            connections=self._opened,
        )
        await self._close()
        gc.enable()
        return answers

    def on_free(self, connection: Connection) -> None:
        """Its next request, at once or after the pause."""
        self._open.add(connection)
        pauses = self._work.pauses_s
        if pauses is not None and self._next < self._allowed:
            asyncio.get_running_loop().call_later(pauses[self._next], self._take, connection)
        else:
            self._take(connection)

    def on_answer(self, ticket: int, status: int, answer: Answer) -> None:
        """Notes it."""
        if status:
            self._until[ticket] = self._now()
            self._statuses[ticket] = status
            self._succeeded[ticket] = answer.succeeded
            if answer.keep:
                self._kept[ticket] = answer.whole
        self._answered += 1
        if self._answered == len(self._work.requests):
            self._all_answered.set()

    def on_lost(self, connection: Connection) -> None:
        """Another one takes its place, if there is something to send."""
        self._open.discard(connection)
        if not self._open:
            self._all_closed.set()
        with contextlib.suppress(ValueError):
            self._free.remove(connection)
        self._pump()

    def _now(self) -> float:
        return time.perf_counter() - self._began

    async def _allow_when_due(self, due_s: Sequence[float]) -> None:
        due = 0
        while due < len(due_s):
            now = self._now() + _SOON_S
            while due < len(due_s) and due_s[due] <= now:
                due += 1
            self._allow(due)
            if due < len(due_s):
                await asyncio.sleep(max(0.0, due_s[due] - self._now() - _SOON_S))

    def _allow(self, count: int) -> None:
        self._allowed = count
        self._pump()

    def _take(self, connection: Connection) -> None:
        self._free.append(connection)
        self._pump()

    def _pump(self) -> None:
        """Sends what may be sent, and opens connections for what has none."""
        while self._next < self._allowed and self._free:
            self._send(self._free.pop())
        missing = self._allowed - self._next - len(self._opening)
        room = self._most - len(self._open) - len(self._opening)
        for _ in range(min(missing, room)):
            task = asyncio.ensure_future(self._connect())
            self._opening.add(task)

    def _send(self, connection: Connection) -> None:
        ticket, self._next = self._next, self._next + 1
        if self._work.due_s is None:
            self._from[ticket] = self._now()
        else:
            self._late[ticket] = self._now() - self._work.due_s[ticket]
        connection.send(ticket, self._work.requests[ticket], keep=ticket in self._work.keep)

    async def _connect(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - we are one
        host, port = self._target.host, self._target.port
        try:
            await asyncio.get_running_loop().create_connection(lambda: Connection(self), host, port, ssl=self._context)
            self._opened += 1
        except OSError:
            self._give_up_one()
        finally:
            self._opening.discard(task)
            self._pump()

    def _give_up_one(self) -> None:
        """Nobody took the connection: the request that it was for is lost."""
        if self._next < self._allowed:
            ticket, self._next = self._next, self._next + 1
            self._from[ticket] = self._now() if self._work.due_s is None else self._work.due_s[ticket]
            self.on_answer(ticket, 0, Answer(keep=False))

    async def _close(self) -> None:
        self._allowed = 0  # nothing is sent or opened any more
        for task in self._opening:
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)
        for connection in list(self._open):
            connection.close()
        while self._open:
            self._all_closed.clear()
            await self._all_closed.wait()

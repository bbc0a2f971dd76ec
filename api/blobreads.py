"""Threads of their own for the blob store: one that hangs holds up results, for a while, and nothing else.

The loop's shared threads look up tenants, models and the broker; a bucket that does not answer would take them all.
A request waits so long at most, for its turn and its answer together; a tenant holds half of the threads at most; and
once calls have timed out one after another, all are refused at once until the store answers again.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, ParamSpec, TypeVar

from api.turns import Circuit, Turn, Turns
from batchfleet.clock import Monotonic, monotonic
from batchfleet.results.blobs import BlobsUnavailableError

P = ParamSpec("P")
R = TypeVar("R")

THREADS: Final = 16
SHARE: Final = THREADS // 2
MAX_WAITING: Final = 256
MAX_WAITING_EACH: Final = MAX_WAITING // 2
DEADLINE_S: Final = 30.0
_SLOW_S: Final = 2.0
"""A failure that took so long is a timeout of the store's client: nothing answered."""
_RETRY_AFTER_S: Final = 5.0


class BlobReads:
    """Calls of the blob store, off the loop.

    Args:
        deadline_s: How long a call may take, the wait for a thread included.
        circuit: Opens while the store hangs.
        clock: Measures how long calls take.
    """

    def __init__(
        self, deadline_s: float = DEADLINE_S, circuit: Circuit | None = None, *, clock: Monotonic = monotonic
    ) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="blobs")
        self._turns = Turns(THREADS, SHARE, MAX_WAITING, MAX_WAITING_EACH, retry_after_s=_RETRY_AFTER_S)
        self._circuit = Circuit() if circuit is None else circuit
        self._deadline_s = deadline_s
        self._clock = clock

    async def call(self, tenant: str, work: Callable[P, R], *args: P.args, **options: P.kwargs) -> R:
        """Runs a call in a thread.

        Raises:
            OverloadedError: If too many wait already.
            BlobsUnavailableError: If the store does not answer in time, or has not lately.
        """
        if not self._circuit.lets(self._clock()):
            raise BlobsUnavailableError("the blob store does not answer")
        begun = False
        try:
            async with asyncio.timeout(self._deadline_s):
                turn = await self._turn(tenant)
                begun = True
                return await asyncio.shield(self._begin(turn, partial(work, *args, **options)))
        except TimeoutError:
            if begun:
                self._circuit.timed_out(self._clock())
            raise BlobsUnavailableError(f"the blob store did not answer within {self._deadline_s:g} s") from None

    def close(self) -> None:
        """Lets the calls under way end by themselves; those that wait are dropped."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _turn(self, tenant: str) -> Turn:
        """Waits for a thread, as long as whoever asks does."""
        mine = asyncio.Event()
        turn = Turn(tenant, mine.set)
        self._turns.ask(turn)
        try:
            await mine.wait()
        except BaseException:
            if not self._turns.forget(turn):
                self._turns.done(turn)
            raise
        return turn

    def _begin(self, turn: Turn, work: Callable[[], R]) -> "asyncio.Future[R]":
        """Starts the call. Its thread is free again when the call ends, which nobody may be waiting for any more."""
        began = self._clock()
        running = asyncio.get_running_loop().run_in_executor(self._threads, work)
        running.add_done_callback(partial(self._ended, turn, began))
        return running

    def _ended(self, turn: Turn, began: float, call: "asyncio.Future[R]") -> None:
        self._turns.done(turn)
        if call.cancelled():
            return
        took_s = self._clock() - began
        if not isinstance(call.exception(), BlobsUnavailableError) or took_s < _SLOW_S:
            self._circuit.answered()
        elif took_s < self._deadline_s:  # else it was counted when its time was over
            self._circuit.timed_out(self._clock())

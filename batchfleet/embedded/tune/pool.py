"""Processes side by side, as workers would run: what they share (memory, caches, cores) shows in the figures."""

import multiprocessing
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Self

from batchfleet.embedded.tune.passes import Candidate, Order, Speed, serve
from batchfleet.errors import RuntimeUnavailableError


class Pool:
    """So many processes of one candidate, loaded; as a context."""

    def __init__(self, candidate: Candidate, processes: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._processes: list[BaseProcess] = []
        self._connections: list[Connection] = []
        self._warm: set[int] = set()
        for _ in range(processes):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(theirs, candidate), daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
            self._connections.append(ours)

    def __enter__(self) -> Self:
        for told in self._answers():
            if told:
                self.__exit__(None, None, None)
                raise RuntimeUnavailableError(str(told))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            process.join(10)
            process.kill()
            process.join()
            process.close()

    def speed(self, budget: int, seconds: float) -> Speed:
        """Returns what all processes together get done when they run at the same time.

        Raises:
            RuntimeUnavailableError: If one of them dies of it.
        """
        if budget not in self._warm:
            self._order(Order(budget, 0.0))
            self._warm.add(budget)
        speeds = self._order(Order(budget, seconds))
        return Speed(sum(speed.texts_per_s for speed in speeds), max(speed.waited for speed in speeds))

    def _order(self, order: Order) -> list[Speed]:
        for connection in self._connections:
            connection.send(order)
        return [answer for answer in self._answers() if isinstance(answer, Speed)]

    def _answers(self) -> list[object]:
        try:
            return [connection.recv() for connection in self._connections]
        except (EOFError, OSError):
            raise RuntimeUnavailableError("a process that measures has died (out of memory?)") from None

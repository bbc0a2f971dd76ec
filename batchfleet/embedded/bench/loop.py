"""The in-process loop as a whole: its processes, the sweep for the best plan, and the run over all texts."""

import multiprocessing
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from batchfleet.embedded.bench.loop_worker import Alone, LoopModel, Share, ShareResult, WarmUp, serve
from batchfleet.embedded.bench.plans import Plan, plans, shares

_HEATS = ((300, 1_000), (900, 3), (1_600, 2))
"""Texts of each heat, and how many of the best plans run in it."""
_ROUNDS = 2
"""Of each heat; the better one counts. In turns, so that a noisy neighbour does not hit all runs of one plan."""


@dataclass(frozen=True, slots=True)
class LoopRun:
    """One run of a plan over texts.

    Attributes:
        seconds: Wall time from the first text sent to the last vector received.
        cpu_s: CPU time of the loop's processes.
        vectors: One normalised vector a text, in order.
    """

    plan: Plan
    seconds: float
    cpu_s: float
    vectors: NDArray[np.float32]
    padding_waste: float

    @property
    def texts_per_s(self) -> float:
        """Throughput."""
        return len(self.vectors) / self.seconds


class LoopPool:
    """Loop processes of one thread count, loaded and warmed; as a context."""

    def __init__(self, model: LoopModel, *, processes: int, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._processes: list[BaseProcess] = []
        self._connections: list[Connection] = []
        for _ in range(processes):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(theirs, model, threads), daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
            self._connections.append(ours)
        self._prepared: set[tuple[Plan, int]] = set()
        told: list[bool] = [connection.recv() for connection in self._connections]  # EOFError of one that died
        self.compiles = told[0]
        """Whether each new shape costs a compilation: all processes are alike."""

    def __enter__(self) -> Self:
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

    def run(self, plan: Plan, texts: Sequence[str]) -> LoopRun:
        """Runs a plan: whoever is free takes the next share."""
        self._prepare(plan, texts)
        free = self._connections[: plan.processes]
        waiting = shares(len(texts), plan.processes)
        taken: dict[Connection, range] = {}
        results: list[tuple[range, ShareResult]] = []
        began = time.perf_counter()
        while waiting or taken:
            while waiting and free:
                connection, share = free.pop(), waiting.pop()
                connection.send(Share([texts[index] for index in share], plan))
                taken[connection] = share
            for ready in wait(list(taken)):
                assert isinstance(ready, Connection)  # noqa: S101 - for the type checker
                results.append((taken.pop(ready), ready.recv()))
                free.append(ready)
        seconds = time.perf_counter() - began
        return _collect(plan, len(texts), seconds, results)

    def alone(self, text: str, pauses_s: Sequence[float]) -> list[float]:
        """Runs one text by itself, over and over; returns the seconds of each pass."""
        self._connections[0].send(Alone(text, pauses_s))
        seconds: list[float] = self._connections[0].recv()
        return seconds

    def _prepare(self, plan: Plan, texts: Sequence[str]) -> None:
        """Compiles what the run will need, in every process: any of them may get any share. Not on the clock."""
        if not self.compiles or (plan, hash(tuple(texts))) in self._prepared:
            return
        self._prepared.add((plan, hash(tuple(texts))))
        parts = [[texts[index] for index in share] for share in shares(len(texts), plan.processes)]
        connections = self._connections[: plan.processes]
        for connection in connections:
            connection.send(WarmUp(parts, plan))
        for connection in connections:
            connection.recv()


def _collect(plan: Plan, count: int, seconds: float, results: list[tuple[range, ShareResult]]) -> LoopRun:
    vectors = np.empty((count, results[0][1].vectors.shape[1]), np.float32)
    for share, result in results:
        vectors[share.start : share.stop : share.step] = result.vectors
    padded = sum(result.padded_tokens for _, result in results)
    real = sum(result.real_tokens for _, result in results)
    cpu_s = sum(result.cpu_s for _, result in results)
    return LoopRun(plan, seconds, cpu_s, vectors, 1 - real / padded)


class BestLoop:
    """The pools that plans need, and the best plan found; as a context."""

    def __init__(self, model: LoopModel, cores: int) -> None:
        self.model = model
        self._cores = cores
        self._pools = {1: LoopPool(model, processes=cores, threads=1)}
        if cores > 1:
            self._pools[cores] = LoopPool(model, processes=1, threads=cores)
        self.plan = Plan(cores, 1, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pool in self._pools.values():
            pool.__exit__(kind, error, trace)

    def sweep(self, texts: Sequence[str], say: Callable[[str], None]) -> list[LoopRun]:
        """Finds the best plan in heats: all plans on few texts, then fewer plans on more. Returns the best of each.

        The last heats have as many texts as matter: more texts sort better, and have more shapes to compile.
        """
        left = plans(self._cores, compiles=self._pools[1].compiles)
        found: dict[Plan, LoopRun] = {}
        for count, most in _HEATS:
            heat = self._heat(left[:most], texts[:count])
            found |= {run.plan: run for run in heat}
            left = [run.plan for run in heat]
        self.plan = left[0]
        for run in _ranking(found):
            say(f"  {run.texts_per_s:7.1f} texts/s on {len(run.vectors):5}  {run.plan}")
        return _ranking(found)

    def _heat(self, left: Sequence[Plan], texts: Sequence[str]) -> list[LoopRun]:
        best: dict[Plan, LoopRun] = {}
        for _ in range(_ROUNDS):
            for plan in left:
                run = self._run(plan, texts)
                best[plan] = max(run, best.get(plan, run), key=lambda run: run.texts_per_s)
        return _ranking(best)

    def alone(self, text: str, pauses_s: Sequence[float]) -> list[float]:
        """Runs one text by itself on one thread, over and over; returns the seconds of each pass."""
        return self._pools[1].alone(text, pauses_s)

    def run(self, texts: Sequence[str]) -> LoopRun:
        """Runs the best plan."""
        return self._run(self.plan, texts)

    def _run(self, plan: Plan, texts: Sequence[str]) -> LoopRun:
        return self._pools[plan.threads].run(plan, texts)


def _ranking(best: Mapping[Plan, LoopRun]) -> list[LoopRun]:
    return sorted(best.values(), key=lambda run: -run.texts_per_s)

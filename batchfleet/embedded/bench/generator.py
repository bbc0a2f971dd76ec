"""The load generator as its parent sees it: a process of its own, so that the fleet's client costs nobody else time."""

import multiprocessing
from types import TracebackType
from typing import Self

from batchfleet.embedded.bench.errors import BenchFailedError
from batchfleet.embedded.bench.generator_worker import Answers, Work, serve
from batchfleet.embedded.bench.http_connection import Target


class Generator:
    """A load generator that has started; as a context."""

    def __init__(self, target: Target) -> None:
        self.target = target
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, target), daemon=True)
        self._process.start()
        theirs.close()
        self._receive()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pipe.close()
        self._process.join(10)
        self._process.kill()
        self._process.join()
        self._process.close()

    def run(self, work: Work) -> Answers:
        """Sends requests and returns what became of them.

        Raises:
            BenchFailedError: If the generator died.
        """
        self._pipe.send(work)
        answers = self._receive()
        assert isinstance(answers, Answers)  # noqa: S101 - for the type checker
        return answers

    def _receive(self) -> object:
        try:
            return self._pipe.recv()
        except EOFError:
            raise BenchFailedError("the load generator died") from None

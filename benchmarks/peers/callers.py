"""The callers: a process of their own that sends the texts, measures, and keeps some answers, whoever serves them.

Over HTTP it is the load generator of `batchfleet bench`; Celery's tasks are submitted by a process of its own kind.
"""

import http.client
import json
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from batchfleet.embedded.bench.errors import BenchFailedError
from batchfleet.embedded.bench.generator import Generator
from batchfleet.embedded.bench.generator_worker import Work
from batchfleet.embedded.bench.http_connection import Target
from benchmarks.peers.processes import PeerFailedError

_RUN_S = 240.0
_READY_S = 90.0
_AGAIN_S = 0.1
_COMPARED = 200


@dataclass(frozen=True, slots=True)
class Called:
    """What the callers saw.

    Attributes:
        seconds: From the first text sent to the last answer.
        latencies_s: Of each request.
        cpu_s: The callers' own.
        answers: Some answers as they came, by the number of the text.
    """

    seconds: float
    latencies_s: NDArray[np.float64]
    cpu_s: float
    answers: Mapping[int, str]


class HttpCallers:
    """Callers of a server, each with a kept-alive connection.

    Args:
        url: Where the server listens.
        path: Where it takes a text.
        body: Makes the body of a text's request.
    """

    def __init__(self, url: str, path: str, body: Callable[[str], object]) -> None:
        self._target = Target.of(url, {})
        self._url, self._path, self._body = url, path, body

    def __enter__(self) -> Self:
        self._generator = Generator(self._target).__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._generator.__exit__(kind, error, trace)

    def await_ready(self, check: Callable[[], None]) -> None:
        """Asks until the first good answer.

        Args:
            check: Raises where waiting on is in vain.

        Raises:
            PeerFailedError: If there is none in time.
        """
        end = time.monotonic() + _READY_S
        said = ""
        while time.monotonic() < end:
            check()
            try:
                status, said = self._ask("ready?")
            except (OSError, http.client.HTTPException) as error:
                status, said = 0, str(error)
            if status == http.HTTPStatus.OK:
                return
            time.sleep(_AGAIN_S)
        raise PeerFailedError(f"not ready after {_READY_S:.0f} s: {said[:200]}")

    def run(self, texts: Sequence[str], callers: int) -> Called:
        """Sends all, so many outstanding at any time, and waits for all.

        Raises:
            PeerFailedError: If one was refused or lost, or it took too long.
        """
        requests = [self._target.post(self._path, json.dumps(self._body(text)).encode()) for text in texts]
        keep = frozenset(_compared(len(texts)))
        try:
            answers = self._generator.run(Work(requests=requests, callers=callers, keep=keep, patience_s=_RUN_S))
        except BenchFailedError as error:
            raise PeerFailedError(str(error)) from error
        wrong = answers.statuses[answers.statuses != http.HTTPStatus.OK]
        if len(wrong):
            raise PeerFailedError(f"{len(wrong)} of {len(texts)} requests failed, with status {sorted(set(wrong))}")
        kept = {number: answer.decode() for number, answer in answers.kept.items()}
        return Called(float(answers.until_s.max()), answers.until_s - answers.from_s, answers.cpu_s, kept)

    def _ask(self, text: str) -> tuple[int, str]:
        parts = urlsplit(self._url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_READY_S)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", self._path, json.dumps(self._body(text)), headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")
        finally:
            connection.close()


class TaskCallers:
    """Callers of Celery: `servers/submit_celery.py` in the peer's environment, one line of JSON a run.

    Args:
        command: Starts it.
        log: Where it complains.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._command, self._environment, self._log = command, environment, log

    def __enter__(self) -> Self:
        with self._log.open("ab") as log:
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(
                self._command, env=dict(self._environment), stdin=pipe, stdout=pipe, stderr=log, text=True
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, texts: Sequence[str], callers: int) -> Called:
        """Sends all, so many outstanding at any time, and waits for all.

        Raises:
            PeerFailedError: If one was refused or lost, or it took too long.
        """
        found = self._ask({"texts": texts, "callers": callers, "keep": _compared(len(texts))})
        if found["error"]:
            raise PeerFailedError(found["error"])
        answers = {int(number): answer for number, answer in found["answers"].items()}
        return Called(found["seconds"], np.asarray(found["latencies_s"]), found["cpu_s"], answers)

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        watch = threading.Timer(_RUN_S, self._process.kill)
        watch.start()
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            watch.cancel()
        if not line:
            raise PeerFailedError(f"the callers ended, or were not done after {_RUN_S:.0f} s")
        found: dict[str, Any] = json.loads(line)
        return found


def _compared(count: int) -> list[int]:
    """Returns the numbers of the texts whose answers are compared, spread over all."""
    return list(range(0, count, max(1, count // _COMPARED)))

"""A fleet as it runs on several machines: every process started by itself, on shared servers, by settings alone."""

import functools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import IO, Self

from batchfleet.lifecycle import die_with_parent

READY_S = 60.0
_READY = {"api": "listening", "workers": "worker is ready", "scheduler": "scheduler is ready"}


class Part:
    """One process of a fleet: `python -m api`, `workers` or `scheduler`. Start it from the main thread.

    Args:
        name: What the test calls it.
        module: What is run.
        environment: Its whole environment.
    """

    def __init__(self, name: str, module: str, environment: Mapping[str, str]) -> None:
        self.name = name
        self._module = module
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = threading.Event()
        self.log = ""

    @property
    def pid(self) -> int:
        """Process id while it runs."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Starts it; `await_ready` says when it is."""
        assert self._process is None
        self._ready = threading.Event()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", self._module],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=functools.partial(die_with_parent, signal.SIGKILL, parent_pid=os.getpid()),  # noqa: PLW1509
        )
        assert self._process.stdout is not None
        threading.Thread(target=self._read, args=(self._process.stdout, self._ready), daemon=True).start()

    def await_ready(self) -> None:
        """Returns when it says that it is ready."""
        assert self._ready.wait(READY_S), f"{self.name} is not ready:\n{self.log}"
        assert self._process is not None
        assert self._process.poll() is None, f"{self.name} has ended:\n{self.log}"

    def kill(self) -> None:
        """Ends it at once."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Asks it to end, and returns its exit code."""
        return self._end(signal.SIGTERM)

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def _end(self, number: signal.Signals) -> int:
        assert self._process is not None
        process, self._process = self._process, None
        with suppress(ProcessLookupError):
            process.send_signal(number)
        return process.wait(60)

    def _read(self, pipe: IO[bytes], ready: threading.Event) -> None:
        with pipe:
            for line in pipe:
                self.log += line.decode(errors="replace")
                if _READY[self._module] in self.log:
                    ready.set()
        ready.set()  # it has ended: whoever waits looks


class Fleet:
    """Several parts, as a context that leaves none running.

    Args:
        parts: The processes, in the order of their start.
    """

    def __init__(self, parts: Iterable[Part]) -> None:
        self.parts = {part.name: part for part in parts}

    def __enter__(self) -> Self:
        try:
            for part in self.parts.values():
                part.start()
            for part in self.parts.values():
                part.await_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        for part in self.parts.values():
            if part.running:
                part.kill()

    def logs(self) -> str:
        """Returns the last words of all parts."""
        return "\n".join(f"--- {part.name}\n{part.log[-3000:]}" for part in self.parts.values())

"""One child process of the supervisor: how it is started so that it cannot outlive us."""

import contextlib
import functools
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from batchfleet.embedded.server_user import ServerUser
from batchfleet.lifecycle import PARENT_FD_VARIABLE, die_with_parent

_DEATH_S = 8.0
"""Postgres gives its children 5 s, then kills them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """What to run.

    Attributes:
        name: Unique among the supervisor's children; names its pid file.
        environment: The whole environment of the child.
        stage: Children of a lower stage are stopped, and awaited, before those of a higher one; the highest
            stage is started first.
        stop_s: Seconds from SIGTERM to SIGKILL.
        watches_parent: Whether it is one of our programs, which read the parent's pipe.
        user: Who runs it; None for ourselves.
        log: Where its words go; None: beside ours.
        stop_signal: What asks it to stop.
        death_signal: What the kernel sends it when we die.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    stage: int = 0
    stop_s: float = 5.0
    watches_parent: bool = True
    user: ServerUser | None = None
    log: Path | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    death_signal: signal.Signals = signal.SIGKILL


class Child:
    """A child and its history. The supervisor decides; this only does."""

    def __init__(self, spec: ChildSpec) -> None:
        self.spec = spec
        self.failures = 0
        self.restarts = 0
        self.started_at = 0.0
        self.restart_at: float | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return self._process.pid if self._process is not None else None

    def start(self, lifeline: int, now: float) -> None:
        """Starts the process; call on the main thread only (its end is what PR_SET_PDEATHSIG watches).

        A process group of its own keeps the terminal's ctrl-C from it: it stops when the supervisor says so.
        """
        watched = (lifeline,) if self.spec.watches_parent else ()
        dies_with_us = functools.partial(die_with_parent, self.spec.death_signal, parent_pid=os.getpid())
        user = self.spec.user
        with self._words() as words:
            self._process = subprocess.Popen(
                self.spec.command,
                env={**self.spec.environment, **({PARENT_FD_VARIABLE: str(lifeline)} if watched else {})},
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                pass_fds=watched,
                process_group=0,
                user=user.uid if user else None,
                group=user.gid if user else None,
                extra_groups=[] if user else None,
                # Runs after the change of user, which would clear it. Safe: the supervisor has one thread.
                preexec_fn=dies_with_us,  # noqa: PLW1509
            )
        self.started_at = now
        self.restart_at = None

    def _words(self) -> IO[bytes]:
        """Opens where the child's words go. Not our stdout, which is for results."""
        return self.spec.log.open("ab") if self.spec.log else os.fdopen(2, "wb", closefd=False)

    def poll(self) -> int | None:
        """Returns the exit code (negative: minus the signal) once, when the process has just ended."""
        if self._process is None:
            return None
        code = self._process.poll()
        if code is not None:
            self._process = None
        return code

    def running(self) -> bool:
        """Returns whether the process has not ended."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Ends the process without asking, and waits until the kernel has it.

        One that can take its own children with it is given a moment to do so.
        """
        process = self._process
        if process is None:
            return
        process.send_signal(self.spec.death_signal)
        if self.spec.death_signal is not signal.SIGKILL:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_DEATH_S)
            process.kill()
        process.wait()

    def send(self, number: signal.Signals) -> None:
        """Sends a signal, if the process still runs."""
        if self._process is not None:
            self._process.send_signal(number)

    def wait(self) -> int | None:
        """Waits for the end and returns the exit code; None if it was not running."""
        if self._process is None:
            return None
        code = self._process.wait()
        self._process = None
        return code

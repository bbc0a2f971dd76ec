"""Processes of a peer: started together, watched together, and none of them left behind."""

import contextlib
import functools
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from batchfleet.embedded.bench.memory import Resident
from batchfleet.embedded.processes import ProcessStat, alive, children_of, kill, read_stat
from batchfleet.lifecycle import die_with_parent

_STOP_S = 10.0
_AGAIN_S = 0.01
_TAIL = 15


class PeerFailedError(Exception):
    """A peer did not start, or did not do what was measured."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What processes have used so far.

    Attributes:
        cpu_s: CPU seconds by role, of ended children that were waited for as well.
        memory: Of each running process.
    """

    cpu_s: Mapping[str, float]
    memory: Sequence[Resident]


class Processes:
    """The processes of one peer by role; as a context. Each starts in a session of its own.

    Args:
        commands: Command lines by role.
        environment: Theirs, as a whole.
        log: Where their output goes.
        stop_s: How long they may take to end when asked; then they are killed.
    """

    def __init__(
        self,
        commands: Mapping[str, Sequence[Sequence[str]]],
        environment: Mapping[str, str],
        log: Path,
        *,
        stop_s: float = _STOP_S,
    ) -> None:
        self._stop_s = stop_s
        self._commands = commands
        self._environment = dict(environment)
        self._log = log
        self._roots: list[tuple[str, subprocess.Popen[bytes]]] = []

    def __enter__(self) -> Self:
        try:
            with self._log.open("ab") as log:
                for role, commands in self._commands.items():
                    self._roots += [(role, self._start(command, log)) for command in commands]
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        seen = [stat for _, root in self._roots for stat in tree(root.pid)]
        for _, root in reversed(self._roots):
            with contextlib.suppress(ProcessLookupError):
                root.send_signal(signal.SIGTERM)
        end = time.monotonic() + self._stop_s
        for _, root in self._roots:
            with contextlib.suppress(subprocess.TimeoutExpired):
                root.wait(max(0.0, end - time.monotonic()))
        # What is left of the groups, and what has made a group of its own (BentoML's do).
        for _, root in self._roots:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(root.pid, signal.SIGKILL)
            root.wait()
        left = [stat for stat in seen if alive(stat.pid, stat.start_ticks)]
        for stat in left:
            kill(stat.pid)
        while any(alive(stat.pid, stat.start_ticks) for stat in left):
            time.sleep(_AGAIN_S)  # not our children: there is no other way to wait for them

    def _start(self, command: Sequence[str], log: BinaryIO) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=self._log.parent,
            start_new_session=True,
            preexec_fn=functools.partial(  # noqa: PLW1509 - safe: it makes two system calls
                die_with_parent, signal.SIGTERM, parent_pid=os.getpid()
            ),
        )

    def check(self) -> None:
        """Raises `PeerFailedError` if one of them has ended."""
        for role, root in self._roots:
            if root.poll() is not None:
                raise PeerFailedError(f"its {role} ended with {root.returncode}: {self.tail()}")

    def wait(self) -> None:
        """Waits until all have ended by themselves."""
        for _, root in self._roots:
            root.wait()

    def usage(self) -> Usage:
        """Returns what they have used."""
        cpu_s: dict[str, float] = dict.fromkeys(self._commands, 0.0)
        memory = []
        for role, root in self._roots:
            for stat in tree(root.pid):
                cpu_s[role] += stat.cpu_s + stat.reaped_cpu_s
                memory.append(resident(stat.pid))
        return Usage(cpu_s, memory)

    def tail(self) -> str:
        """Returns the last lines of their log."""
        return "\n".join(self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL:])


def tree(pid: int) -> list[ProcessStat]:
    """Returns a process and all that it and its children have started, where they run."""
    found = [stat for stat in [read_stat(pid)] if stat is not None and not stat.dead]
    for stat in found:  # grows while it is read
        found.extend(children_of(stat.pid))
    return found


def resident(pid: int) -> Resident:
    """Returns the resident memory of a process; nothing for one that is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        status = ""
    return Resident.parse(status) or Resident(0, 0)

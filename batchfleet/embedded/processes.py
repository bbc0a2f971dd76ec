"""What the kernel knows about processes: alive or not, CPU used. Linux only (`/proc`)."""

import contextlib
import logging
import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from batchfleet.logs import Action

logger = logging.getLogger(__name__)

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_DEAD_STATES = frozenset("ZXx")
_TRIES = 5


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """One line of `/proc/<pid>/stat`.

    Attributes:
        parent: The pid of the process that started it, or took it over.
        group: Its process group; each child of a supervisor leads one, its own helpers are in it.
        state: The kernel's letter; `Z` is a zombie, dead for us though it still has a pid.
        start_ticks: When it started; pid and start together never repeat.
        cpu_s: User and system time of the process itself, threads that have ended included.
        reaped_cpu_s: The same of its ended children that it has waited for, in whole ticks of the kernel (10 ms).
    """

    pid: int
    parent: int
    group: int
    state: str
    start_ticks: int
    cpu_s: float
    reaped_cpu_s: float

    @property
    def dead(self) -> bool:
        """Whether it runs no more code."""
        return self.state in _DEAD_STATES


def read_stat(pid: int) -> ProcessStat | None:
    """Returns what the kernel says of a process, or None if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command's name stands in parentheses and may hold anything, spaces and parentheses included.
    fields = text[text.rindex(")") + 2 :].split()
    user, system, reaped_user, reaped_system = (int(value) for value in fields[11:15])
    return ProcessStat(
        pid=pid,
        parent=int(fields[1]),
        group=int(fields[2]),
        state=fields[0],
        start_ticks=int(fields[19]),
        cpu_s=_cpu_s(pid, (user + system) / _TICKS_PER_S),
        reaped_cpu_s=(reaped_user + reaped_system) / _TICKS_PER_S,
    )


def _cpu_s(pid: int, in_ticks: float) -> float:
    """Returns the CPU time of a process to the nanosecond, by its clock; where it has none, what the ticks say.

    User and system time are each cut off to whole ticks: a connection's process seldom uses one. `schedstat` is as
    fine, but knows nothing of threads that have ended.
    """
    try:
        return max(in_ticks, time.clock_gettime(~pid << 3 | 2))  # how Linux numbers them: `clock_getcpuclockid(3)`
    except OSError:
        return in_ticks


def alive(pid: int, start_ticks: int | None = None) -> bool:
    """Returns whether the process runs; a zombie does not, nor another process under a recycled pid."""
    stat = read_stat(pid)
    if stat is None or stat.dead:
        return False
    return start_ticks is None or stat.start_ticks == start_ticks


def members(groups: Iterable[int]) -> list[ProcessStat]:
    """Returns all running processes of these process groups, helpers and orphans included."""
    wanted = frozenset(groups)
    return [stat for stat in _running() if stat.group in wanted]


def children_of(parent: int) -> list[ProcessStat]:
    """Returns the running processes that a process has started, whatever group they have made for themselves."""
    return [stat for stat in _running() if stat.parent == parent]


def childrens_cpu_s(parent: int) -> float:
    """Returns the CPU seconds of all children that a process has ever had: those that run, and those that are over.

    A child that ends while they are read would be missed or counted twice: then they are read again.
    """
    used = 0.0
    for _ in range(_TRIES):
        before = read_stat(parent)
        if before is None:
            break
        used = before.reaped_cpu_s + sum(stat.cpu_s for stat in _all() if stat.parent == parent)
        after = read_stat(parent)
        if after is not None and after.reaped_cpu_s == before.reaped_cpu_s:
            break
    return used


def _running() -> Iterator[ProcessStat]:
    return (stat for stat in _all() if not stat.dead)


def _all() -> Iterator[ProcessStat]:
    pids = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal())
    return (stat for stat in map(read_stat, pids) if stat is not None)


def kill(pid: int) -> None:
    """Kills a process at once, if it is still there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


class PidFiles:
    """One file for each child in a folder, so that a supervisor finds what an earlier one left behind.

    The kernel kills our children with us (PR_SET_PDEATHSIG). These files are the second net, for kernels and
    sandboxes that do not.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, name: str, pid: int) -> None:
        """Notes the pid of a child just started. On a full disk nothing is noted: this is only the second net."""
        stat = read_stat(pid)
        start = stat.start_ticks if stat else 0
        try:
            (self._folder / f"{name}.pid").write_text(f"{pid} {start}\n", encoding="ascii")
        except OSError as error:
            logger.warning("cannot note the pid of %s: %s", name, error, extra={"action": Action.CHILD_STARTED})

    def remove(self, name: str) -> None:
        """Forgets a child that has ended."""
        (self._folder / f"{name}.pid").unlink(missing_ok=True)

    def kill_leftovers(self) -> list[int]:
        """Kills what still runs of an earlier supervisor and forgets it.

        Call only while holding the folder's lock: the earlier supervisor is then certainly dead.

        Returns:
            The pids that were killed.
        """
        killed = []
        for path in sorted(self._folder.glob("*.pid")):
            with contextlib.suppress(ValueError):
                pid, start = (int(part) for part in path.read_text(encoding="ascii").split())
                if alive(pid, start):
                    kill(pid)
                    killed.append(pid)
            path.unlink(missing_ok=True)
        return killed

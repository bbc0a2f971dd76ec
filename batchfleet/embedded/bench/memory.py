"""How much memory each process of a fleet has held at most, as the kernel counts it (`/proc/<pid>/status`)."""

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from batchfleet.embedded.processes import ProcessStat, children_of, members
from batchfleet.embedded.stack import StackInfo

_RESET_PEAK = "5"
"""Written to `clear_refs`, it makes the peak begin anew (proc(5))."""


@dataclass(frozen=True, slots=True)
class Resident:
    """Resident memory of one process, in KiB.

    Attributes:
        peak: The most since its start, or since the last `forget_peaks`.
        shared: What it holds now of files and shared memory, which its siblings may hold as well.
    """

    peak: int
    shared: int

    @classmethod
    def parse(cls, status: str) -> "Resident | None":
        """Reads the text of `/proc/<pid>/status`; None of a process that has ended."""
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        try:
            sizes = {name: int(fields[name].split()[0]) for name in ("VmHWM", "RssFile", "RssShmem")}
        except KeyError:
            return None
        return cls(sizes["VmHWM"], sizes["RssFile"] + sizes["RssShmem"])


def together_mb(processes: Iterable[Resident]) -> float:
    """Returns the MiB that a program of several processes held at most: what they share counts once.

    An upper bound: they need not have been at their peaks at the same time.
    """
    every = list(processes)
    own = sum(max(0, one.peak - one.shared) for one in every)
    return (own + max((one.shared for one in every), default=0)) / 1024


def forget_peaks(info: StackInfo) -> None:
    """Lets the peaks of all processes of a fleet begin anew; where the kernel refuses, they are since the start."""
    for stats in _processes(info).values():
        for stat in stats:
            with contextlib.suppress(OSError):
                Path(f"/proc/{stat.pid}/clear_refs").write_text(_RESET_PEAK, encoding="ascii")


def peaks_mb(info: StackInfo) -> dict[str, float]:
    """Returns what each part of a fleet held at most, in MiB, its helper processes included, by its name."""
    found = {}
    for name, stats in _processes(info).items():
        residents = (_resident(stat.pid) for stat in stats)
        found[name] = round(together_mb(one for one in residents if one is not None), 1)
    return dict(sorted(found.items()))


def _processes(info: StackInfo) -> Mapping[str, list[ProcessStat]]:
    names = {pid: name for name, pid in info.pids.items()}
    found: defaultdict[str, list[ProcessStat]] = defaultdict(list)
    for stat in members(names):
        found[names[stat.group]].append(stat)
        if names[stat.group] == "postgres":  # a process a connection, each in a group of its own
            found["postgres"] += children_of(stat.pid)
    return found


def _resident(pid: int) -> Resident | None:
    try:
        return Resident.parse(Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None

"""How many cores this process may really use: affinity and cgroup quota, not the machine's count."""

import math
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

_CGROUP_ROOT = Path("/sys/fs/cgroup")
_TOPOLOGY_ROOT = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, slots=True)
class Cores:
    """What of the machine's CPUs this process may use.

    Attributes:
        logical: CPUs of its affinity; with hyperthreads, two of them share a core.
        physical: Cores that those CPUs belong to.
        quota: CPU seconds a second that its cgroups grant, or None where nothing limits them.
    """

    logical: int
    physical: int
    quota: float | None = None

    @property
    def usable(self) -> int:
        """Returns how many CPUs work can run on at the same time, all the time; at least 1."""
        return max(1, self.logical if self.quota is None else min(self.logical, int(self.quota)))

    def splits(self) -> tuple[tuple[int, int], ...]:
        """Returns the (workers, threads) worth measuring, most workers first.

        All cores as one worker each, as one worker, and as what lies between; one worker a physical core where
        hyperthreads are offered; and one more worker where a quota has a fraction that no whole core uses.
        """
        usable = self.usable
        found = {(usable // threads, threads) for threads in range(1, usable + 1) if usable % threads == 0}
        found.add((max(1, min(usable, self.physical)), 1))
        if self.quota is not None:
            found.add((max(1, min(self.logical, math.ceil(self.quota))), 1))
        return tuple(sorted(found, key=lambda split: (-split[0], split[1])))

    def key(self) -> str:
        """Returns what tells these cores from others, as text."""
        return f"{self.logical} CPUs of {self.physical} cores, quota {self.quota or 'none'}"


def read_cores() -> Cores:
    """Returns what this process may use."""
    affine = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    quota = cgroup_quota(_CGROUP_ROOT, Path("/proc/self/cgroup"))
    return Cores(logical=len(affine), physical=physical_cores(affine, _TOPOLOGY_ROOT), quota=quota)


def usable_cores() -> int:
    """Returns the number of cores that work can run on at the same time; at least 1."""
    return read_cores().usable


def physical_cores(cpus: Collection[int], root: Path) -> int:
    """Returns how many cores these CPUs belong to; where the kernel does not say, each is its own."""
    cores = set()
    for cpu in cpus:
        try:
            siblings = (root / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text(encoding="ascii").strip()
        except OSError:
            siblings = str(cpu)
        cores.add(siblings)
    return max(1, len(cores))


def cgroup_quota(root: Path, membership: Path) -> float | None:
    """Returns the smallest CPU quota, in cores, of the cgroups (v2 or v1) that hold us; None without one."""
    quotas = []
    for folder in _cgroup_folders(root, membership):
        for read in (_quota_v2, _quota_v1):
            quota = read(folder)
            if quota is not None:
                quotas.append(quota)
    return min(quotas, default=None)


def _cgroup_folders(root: Path, membership: Path) -> list[Path]:
    """Our cgroup and all its parents. In a container the path may lie outside of the mount: the root counts."""
    folders = {root, root / "cpu", root / "cpu,cpuacct"}
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        base = root / controllers if controllers else root
        folder = base / path.lstrip("/")
        while folder != base and base in folder.parents:
            folders.add(folder)
            folder = folder.parent
    return sorted(folders)


def _quota_v2(folder: Path) -> float | None:
    try:
        quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return None
    return None if quota == "max" else int(quota) / int(period)


def _quota_v1(folder: Path) -> float | None:
    try:
        quota = int((folder / "cpu.cfs_quota_us").read_text(encoding="ascii"))
        period = int((folder / "cpu.cfs_period_us").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return None if quota <= 0 else quota / period

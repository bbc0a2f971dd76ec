"""How many cores this process may really use: affinity and cgroup quota, not the machine's count."""

import os
from pathlib import Path

_CGROUP_ROOT = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Returns the number of cores that work can run on at the same time; at least 1."""
    affine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup_quota(_CGROUP_ROOT, Path("/proc/self/cgroup"))
    return max(1, affine if quota is None else min(affine, int(quota)))


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

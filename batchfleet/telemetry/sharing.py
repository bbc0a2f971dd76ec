"""How the processes of one machine share their metrics: one set of value files a process, in one folder.

A file is named after its process: its id and when it started, since ids come again (in a container each life of a
process may have the same one). What a dead process counted stays, so that totals never shrink; its gauges go.
"""

import os
from pathlib import Path
from typing import Final

from prometheus_client import values

_MULTIPROCESS_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
_VALUE_FILES: Final = ("counter", "histogram", "gauge_livesum")
"""Kinds of value files that our metrics have: one a process each."""
_VALUE_FILE_BYTES: Final = 256 * 1024


def share_values(metrics_dir: Path) -> None:
    """Has the metrics that are made from here on keep their values in the folder.

    Raises:
        OSError: If the folder cannot be written.
    """
    metrics_dir.mkdir(parents=True, exist_ok=True)
    forget_dead_processes(metrics_dir)
    # The library looks at the variable when it is imported, which may have happened long before the settings
    # were read. Its value class is looked up at each metric's creation, so setting both here is enough.
    os.environ[_MULTIPROCESS_VARIABLE] = str(metrics_dir)
    identity = _Identity()
    for kind in _VALUE_FILES:
        _allocate(metrics_dir / f"{kind}_{identity()}.db")
    values.ValueClass = values.MultiProcessValue(identity)  # type: ignore[no-untyped-call]


class _Identity:
    """Names this process in the folder; asked at each count, so it remembers (a fork has another one)."""

    def __init__(self) -> None:
        self._pid = 0
        self._name = ""

    def __call__(self) -> str:
        """Returns the name."""
        pid = os.getpid()
        if pid != self._pid:
            self._pid, self._name = pid, f"{pid}-{_started(pid) or 0}"
        return self._name


def _allocate(path: Path) -> None:
    """Gives a value file its blocks before the library maps it: a sparse map on a full disk kills with SIGBUS.

    Raises:
        OSError: If the disk is full; the process then says so instead of dying later.
    """
    if hasattr(os, "posix_fallocate"):  # not on macOS
        with path.open("ab") as file:
            os.posix_fallocate(file.fileno(), 0, _VALUE_FILE_BYTES)


def forget_dead_processes(metrics_dir: Path) -> None:
    """Removes the gauges of processes that are gone. Their counters stay: totals must not shrink."""
    for path in metrics_dir.glob("gauge_live*_*.db"):
        pid, _, started = path.stem.rpartition("_")[2].partition("-")
        if pid.isdecimal() and not process_alive(int(pid), int(started) if started.isdecimal() else 0):
            path.unlink(missing_ok=True)


def process_alive(pid: int, started: int = 0) -> bool:
    """Returns whether a process of this machine runs; one that waits for its parent to reap it does not.

    Args:
        pid: Its id.
        started: When it started, in the kernel's ticks: another process that has its id now is not it. 0 if unknown.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return not started or _started(pid) in {started, None}
    fields = _fields(pid)
    if not fields:
        return not Path("/proc/self").exists()  # without /proc, the signal's word must do
    return fields[0] != b"Z" and (not started or int(fields[19]) == started)


def _started(pid: int) -> int | None:
    fields = _fields(pid)
    return int(fields[19]) if fields else None


def _fields(pid: int) -> list[bytes]:
    """Returns what the kernel says of a process after its name (state first), nothing where it says nothing."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return []
    return text.rpartition(b")")[2].split()

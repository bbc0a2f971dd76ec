"""The turn to write, among the threads of a process and the processes of a machine.

SQLite lets its writers poll for their turn, which is neither fair nor cheap. An flock on a side file is both:
the kernel queues those who wait and wakes one. Whoever holds it writes into the file who and since when, so
that a supervisor can end a holder that hangs; the kernel frees the lock of a process that ends.
"""

import fcntl
import os
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_RECORD = struct.Struct("<qd")
_NOBODY = _RECORD.pack(0, 0.0)


@dataclass(frozen=True, slots=True)
class LockHolder:
    """Who holds the write lock.

    Attributes:
        pid: Its process.
        since: When it got the lock, on this machine's monotonic clock (`time.monotonic()`).
    """

    pid: int
    since: float


class WriteLock:
    """An exclusive lock on a side file. Threads of one process share one; so do not processes: see `reset`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread_lock = threading.Lock()
        self._fd = -1

    @contextmanager
    def held(self) -> Iterator[None]:
        """Waits for the turn, then holds it.

        Raises:
            OSError: If the side file cannot be opened.
        """
        with self._thread_lock:
            if self._fd < 0:
                self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            try:
                self._sign(_RECORD.pack(os.getpid(), time.monotonic()))
                yield
            finally:
                self._sign(_NOBODY)
                fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _sign(self, record: bytes) -> None:
        """Says who holds the lock. On a full disk nobody is named: the lock itself is what counts."""
        with suppress(OSError):
            os.pwrite(self._fd, record, 0)

    def close(self) -> None:
        """Closes the side file; the next holder opens it again."""
        with self._thread_lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1


def read_lock_holder(path: Path) -> LockHolder | None:
    """Returns who holds the lock on a side file, or None where nobody does.

    What a process wrote that was killed while it held the lock is not taken for a holder. Between getting the
    lock and writing its name a new holder goes by the old name for some microseconds: end a process only if two
    readings, a while apart, name the same holder and the same time.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            record = os.pread(fd, _RECORD.size, 0)
        else:
            return None
    finally:
        os.close(fd)
    if len(record) < _RECORD.size:
        return None
    pid, since = _RECORD.unpack(record)
    return LockHolder(pid, since) if pid else None

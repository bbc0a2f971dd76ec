"""A folder for one run of a command: gone at its end, however it is told to end, or at the start of the next run.

::

    /tmp/batchfleet-<purpose>-<random>/    locked by the process that uses it

The lock (`flock`) is the kernel's to free, whatever ends the holder: a folder that nobody has locked is an orphan.
Process ids would not tell, since containers that share /tmp count them differently.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

_NEW_S: Final = 60.0
"""A folder without a lock is left alone for so long: it may be about to get one."""


@contextlib.contextmanager
def scratch_folder(purpose: str) -> Iterator[Path]:
    """Makes a folder and removes it in the end, and those of earlier runs that were killed."""
    prefix = f"batchfleet-{purpose}-"
    _remove_orphans(Path(tempfile.gettempdir()), prefix)
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    held = os.open(folder, os.O_RDONLY)  # not inherited: a child must not keep it after us
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)


@contextlib.contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Lets SIGTERM and SIGHUP end what runs inside as ctrl-C does; on the main thread."""
    numbers = (signal.SIGTERM, signal.SIGHUP)

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)  # a second one must not break off the tidying up
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _remove_orphans(parent: Path, prefix: str) -> None:
    for folder in parent.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            told = folder.lstat()
            if stat.S_ISDIR(told.st_mode) and told.st_uid == os.getuid() and time.time() - told.st_mtime > _NEW_S:
                _remove_if_free(folder)


def _remove_if_free(folder: Path) -> None:
    held = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(held)

"""The turn to write: one at a time, and a supervisor sees who has it."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from batchfleet.database.write_lock import LockHolder, WriteLock, read_lock_holder

_HOLD = """
import sys
from pathlib import Path
from batchfleet.database.write_lock import WriteLock

with WriteLock(Path(sys.argv[1])).held():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db.lock"


def test_nobody_holds_what_is_not_there_or_free(path: Path) -> None:
    assert read_lock_holder(path) is None

    lock = WriteLock(path)
    with lock.held():
        pass

    assert read_lock_holder(path) is None
    lock.close()


def test_the_holder_says_who_and_since_when(path: Path) -> None:
    lock = WriteLock(path)
    before = time.monotonic()

    with lock.held():
        holder = read_lock_holder(path)

    lock.close()
    assert holder is not None
    assert holder.pid == os.getpid()
    assert before <= holder.since <= time.monotonic()


def test_threads_take_turns(path: Path) -> None:
    lock = WriteLock(path)
    inside = 0
    most = 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(200):
            with lock.held():
                inside += 1
                most = max(most, inside)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    lock.close()
    assert most == 1


def test_a_killed_holder_frees_the_lock(path: Path) -> None:
    """The kernel gives the lock on; what the dead process wrote is nobody's claim any more."""
    child = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        holder = read_lock_holder(path)
        child.kill()
        child.wait()

    assert holder is not None
    assert holder == LockHolder(child.pid, holder.since)
    assert read_lock_holder(path) is None
    lock = WriteLock(path)
    with lock.held():
        now = read_lock_holder(path)
    lock.close()
    assert now is not None
    assert now.pid == os.getpid()

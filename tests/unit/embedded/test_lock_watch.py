"""A holder of SQLite's write lock that hangs is found, killed, and the next one gets the lock."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from batchfleet.database.write_lock import LockHolder, WriteLock
from batchfleet.embedded.lock_watch import LockWatch

FILE = Path("unused")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_only_a_holder_seen_twice_for_too_long_is_overdue() -> None:
    clock = Clock()
    holders = iter([LockHolder(7, 100.0), LockHolder(7, 100.0), LockHolder(7, 100.0), LockHolder(7, 116.0), None])
    watch = LockWatch(FILE, bound_s=15.0, read=lambda _: next(holders), clock=clock)

    assert watch.overdue() is None
    clock.now = 114.0
    assert watch.overdue() is None
    clock.now = 116.0
    assert watch.overdue() == 7
    assert watch.overdue() is None  # the same process, but a fresh turn
    assert watch.overdue() is None  # nobody


def test_a_single_reading_is_not_believed() -> None:
    clock = Clock()
    watch = LockWatch(FILE, bound_s=1.0, read=lambda _: LockHolder(7, 0.0), clock=clock)

    assert watch.overdue() is None
    assert watch.overdue() == 7


def test_a_real_holder_that_hangs(tmp_path: Path) -> None:
    lock_file = tmp_path / "db.lock"
    program = (
        "import os, signal, sys\nfrom pathlib import Path\n"
        "from batchfleet.database.write_lock import WriteLock\n"
        "with WriteLock(Path(sys.argv[1])).held():\n"
        "    print('held', flush=True)\n    os.kill(os.getpid(), signal.SIGSTOP)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(lock_file)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        watch = LockWatch(lock_file, bound_s=0.0)
        watch.overdue()

        pid = watch.overdue()
        assert pid == holder.pid
        os.kill(pid, signal.SIGKILL)

    with WriteLock(lock_file).held():
        pass
    assert watch.overdue() is None

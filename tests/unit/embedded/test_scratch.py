"""The folder of one run is gone at its end, however it is told to end, and at the next start if it was killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from batchfleet.embedded.scratch import scratch_folder

RUN = """
import signal
from batchfleet.embedded.scratch import scratch_folder, terminated_as_interrupted
try:
    with terminated_as_interrupted(), scratch_folder("bench") as folder:
        (folder / "file").touch()
        print(folder, flush=True)
        signal.pause()
except KeyboardInterrupt:
    raise SystemExit(130)
"""


@contextmanager
def running(folder: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    command = [sys.executable, "-c", RUN]
    with subprocess.Popen(command, env={**os.environ, "TMPDIR": str(folder)}, stdout=subprocess.PIPE, text=True) as run:
        try:
            assert run.stdout is not None
            yield run, Path(run.stdout.readline().strip())
        finally:
            run.kill()


def grown_old(folder: Path) -> None:
    long_ago = time.time() - 3_600
    os.utime(folder, (long_ago, long_ago))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_run_that_is_told_to_end_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path) as (run, folder):
        assert (folder / "file").exists()
        run.send_signal(number)

        assert run.wait(20) == 130
        assert list(tmp_path.iterdir()) == []


def test_what_a_killed_run_left_goes_at_the_next_start_and_what_is_in_use_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    others = [tmp_path / "batchfleet-demo-x", tmp_path / "unrelated", tmp_path / "batchfleet-bench-new"]
    for other in others:
        other.mkdir()
    (tmp_path / "batchfleet-bench-link").symlink_to(others[1])
    with running(tmp_path) as (_, in_use), running(tmp_path) as (killed, orphan):
        killed.kill()
        killed.wait(20)
        for folder in (in_use, orphan, *others[:2]):
            grown_old(folder)

        with scratch_folder("bench") as mine:
            assert mine.is_dir()
            assert in_use.is_dir()
            assert not orphan.exists()
        assert all(other.is_dir() for other in others)
        assert not mine.exists()

"""A second supervisor on the same folder is told who is there."""

import os
from pathlib import Path

import pytest

from batchfleet.embedded.lock import AlreadyRunningError, DataDirLock


def test_the_second_learns_pid_and_url_of_the_first(tmp_path: Path) -> None:
    with DataDirLock(tmp_path) as lock:
        lock.publish(url="http://127.0.0.1:8080")

        with pytest.raises(AlreadyRunningError, match=f"process {os.getpid()}, at http://127.0.0.1:8080") as caught:
            DataDirLock(tmp_path)

    assert (caught.value.pid, caught.value.url) == (os.getpid(), "http://127.0.0.1:8080")


def test_the_folder_is_free_again_after_release(tmp_path: Path) -> None:
    with DataDirLock(tmp_path):
        pass

    with DataDirLock(tmp_path):
        pass


def test_a_holder_that_has_said_nothing_yet_is_still_refused(tmp_path: Path) -> None:
    with DataDirLock(tmp_path) as lock:
        (tmp_path / "lock").write_text("")

        with pytest.raises(AlreadyRunningError, match="another process"):
            DataDirLock(tmp_path)
        lock.publish(url=None)

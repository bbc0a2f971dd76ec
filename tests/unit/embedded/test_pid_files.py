"""Pid files are a second net; that they cannot be written must not end the fleet."""

import os
from pathlib import Path

from batchfleet.embedded.processes import PidFiles


def test_a_child_is_noted_and_forgotten(tmp_path: Path) -> None:
    files = PidFiles(tmp_path / "run")
    files.write("api", os.getpid())
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["api.pid"]

    files.remove("api")

    assert list((tmp_path / "run").iterdir()) == []


def test_a_file_that_cannot_be_written_is_no_reason_to_end(tmp_path: Path) -> None:
    files = PidFiles(tmp_path / "run")
    (tmp_path / "run" / "api.pid").mkdir()  # stands for a full disk: writing raises OSError

    files.write("api", os.getpid())

    assert (tmp_path / "run" / "api.pid").is_dir()

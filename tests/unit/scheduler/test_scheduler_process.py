"""`python -m scheduler` from outside: how it refuses to start."""

import os
import subprocess
import sys
from pathlib import Path

from batchfleet.settings import EXIT_CONFIG
from tests.support.stores import sqlite_url


def test_a_folder_for_blobs_that_cannot_be_used_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    environment = {
        **os.environ,
        "BATCHFLEET_DATABASE_URL": sqlite_url(tmp_path),
        "BATCHFLEET_STATE_DIR": str(tmp_path),
        "BATCHFLEET_BLOB_URL": f"file://{tmp_path}/file/blobs",
    }

    ended = subprocess.run(
        [sys.executable, "-m", "scheduler"], env=environment, capture_output=True, text=True, timeout=60, check=False
    )

    assert ended.returncode == EXIT_CONFIG
    (line,) = ended.stderr.splitlines()
    assert "cannot start" in line
    assert f"{tmp_path}/file/blobs" in line


def test_a_wrong_setting_is_named(tmp_path: Path) -> None:
    environment = {**os.environ, "BATCHFLEET_WEBHOOK_NETWORKS": "10.0.0.0/8,everything", "BATCHFLEET_SECRET_KEY": "x"}

    ended = subprocess.run(
        [sys.executable, "-m", "scheduler"], env=environment, capture_output=True, text=True, timeout=60, check=False
    )

    assert ended.returncode == EXIT_CONFIG
    assert "BATCHFLEET_WEBHOOK_NETWORKS: each must be a network" in ended.stderr
    assert "BATCHFLEET_SECRET_KEY: each key must be 32 bytes" in ended.stderr

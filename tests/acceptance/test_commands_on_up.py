"""The commands as a person types them, beside a real `batchfleet up` whose data folder is all that they are told."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batchfleet.embedded.exits import Exit
from batchfleet.pulse import age_of
from tests.support.models import TINY_NAME, build_tiny_encoder
from tests.support.upstack import UpStack, eventually, running_up


class Shell:
    """Runs commands as processes of their own."""

    def __init__(self, data_dir: Path) -> None:
        ours = {name: value for name, value in os.environ.items() if not name.startswith("BATCHFLEET_")}
        self.environment = {**ours, "BATCHFLEET_DATA_DIR": str(data_dir)}

    def run(self, *arguments: str, code: Exit = Exit.OK, stdin: str | None = None) -> str:
        """Runs one command, whose exit code must be `code`, and returns its stdout."""
        command = [sys.executable, "-m", "batchfleet.cli", *arguments]
        done = subprocess.run(
            command, env=self.environment, input=stdin, capture_output=True, text=True, timeout=90, check=False
        )
        assert done.returncode == code, (arguments, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done.stdout

    def json(self, *arguments: str, code: Exit = Exit.OK) -> Any:
        """Runs one command with `--json` and returns what it printed."""
        return json.loads(self.run(*arguments, "--json", code=code))


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpStack]:
    with running_up(tmp_path_factory.mktemp("up")) as stack:
        yield stack


@pytest.fixture
def shell(up: UpStack) -> Shell:
    return Shell(up.data_dir)


def test_each_part_is_found_and_well(shell: Shell) -> None:
    for part in ("api", "scheduler", "worker"):
        assert shell.run("healthy", part) == "healthy\n"


def test_nothing_of_the_data_folder_is_open_to_others(up: UpStack) -> None:
    ours = ("batchfleet.db", "batchfleet.db-wal", "batchfleet.db.lock", "stack.json", "blobs", "state", "run")
    for name in ours:
        assert (up.data_dir / name).stat().st_mode & 0o077 == 0, name


def test_a_worker_is_well_once_a_model_is_published(tmp_path: Path) -> None:
    with running_up(tmp_path, model=False) as up:
        shell = Shell(tmp_path)
        assert "no model to serve" in shell.json("healthy", "worker", code=Exit.FAILED)["reason"]

        build_tiny_encoder(tmp_path / "models")

        eventually(lambda: pulse_is_fresh(up), "the worker has loaded the model", 60)
        assert shell.run("healthy", "worker") == "healthy\n"


def pulse_is_fresh(up: UpStack) -> bool | None:
    (pulse,) = (up.data_dir / "state" / "pulses").glob("worker-*")
    return True if age_of(pulse, time.monotonic()) is not None else None


def test_a_job_from_submission_to_removal(shell: Shell, tmp_path: Path) -> None:
    job_id, status = shell.run("submit", TINY_NAME, "box of jam", "cat", "--wait", "60").split()
    assert status == "succeeded"

    shell.run("result", job_id, "--output", str(tmp_path / "vectors.npy"))
    vectors = np.load(tmp_path / "vectors.npy")
    assert vectors.shape[0] == 2
    np.testing.assert_array_equal(np.array(shell.json("result", job_id)["values"], dtype=np.float32), vectors)
    assert job_id in shell.run("jobs", "--status", "succeeded")

    shell.run("delete", job_id)
    shell.run("result", job_id, code=Exit.NOT_FOUND)


def test_lines_from_a_pipe(shell: Shell) -> None:
    said = shell.run("submit", TINY_NAME, "--file", "-", "--wait", "60", stdin="one\n\ntwo\n")
    assert [line.split()[1] for line in said.splitlines()] == ["succeeded", "succeeded"]


def test_the_doctor_finds_the_fleet_that_runs(shell: Shell, up: UpStack) -> None:
    report = shell.json("doctor")
    found = {entry["check"]: entry["status"] for entry in report["checks"]}
    told = {entry["check"]: entry["detail"] for entry in report["checks"]}

    assert report["ok"]
    assert str(up.data_dir) in told["settings"]
    for check in ("database", "schema", "clock", "workers", "keys", "broker", "blobs", "models", "disk", "api"):
        assert found[check] == "ok", (check, told[check])


def test_keys_and_tenants_are_those_of_its_database(shell: Shell) -> None:
    made = shell.json("keys", "create", "--tenant", "acme")
    assert [key["id"] for key in shell.json("keys", "list", "--tenant", "acme")["keys"]] == [made["id"]]
    assert [tenant["name"] for tenant in shell.json("tenants", "list")["tenants"]] == ["acme"]
    assert shell.json("db", "status")["status"] == "current"

    # A key counts also where none is asked for: its jobs are its tenant's.
    shell.environment["BATCHFLEET_API_KEY"] = made["key"]
    job = shell.json("submit", TINY_NAME, "a")
    assert [entry["id"] for entry in shell.json("jobs")["jobs"]] == [job["id"]]
    del shell.environment["BATCHFLEET_API_KEY"]
    shell.run("status", job["id"], code=Exit.NOT_FOUND)
    shell.run("keys", "revoke", made["id"])


def test_models_are_those_of_its_repository(shell: Shell) -> None:
    assert [model["name"] for model in shell.json("models", "verify")["models"]] == [TINY_NAME]

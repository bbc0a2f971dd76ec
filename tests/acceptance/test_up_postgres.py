"""`batchfleet up --postgres`: the same fleet with an embedded Postgres for its truth."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from batchfleet.build.demo_model import DEMO_MODEL
from batchfleet.build.key import builder_key
from batchfleet.client import Client
from batchfleet.embedded.exits import Exit
from batchfleet.embedded.session import FleetSession, clean_environment, is_clean_exit, up_command
from tests.support.models import TINY_NAME, build_tiny_encoder
from tests.support.upstack import eventually

WAIT_S = 90.0


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not pytest's own: where we are root, the server's user must reach it."""
    path = Path(tempfile.mkdtemp(prefix="bf-up-postgres-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def fleet(folder: Path) -> FleetSession:
    settings = {"BATCHFLEET_MODELS_URL": f"file://{folder}/repository", "BATCHFLEET_WORKER_VARIANT": "fp32"}
    return FleetSession(folder / "data", workers=1, postgres=True, environment=settings, ready_s=WAIT_S)


def servers(folder: Path) -> list[psutil.Process]:
    """Returns the processes of the folder's Postgres, those of its connections included."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(folder) in " ".join(process.cmdline()) and process.name() == "postgres":
                found += [process, *process.children(recursive=True)]
        except psutil.Error:
            continue
    return found


@pytest.mark.timeout(300)
def test_it_serves_survives_and_stops(folder: Path) -> None:
    """Postgres is killed, then the supervisor; what was answered is there each time, and nothing runs at the end."""
    build_tiny_encoder(folder / "repository")
    with fleet(folder) as session:
        with Client(session.url) as client:
            job = client.submit(TINY_NAME, ["box of jam", "cat"], wait_s=30)
            first = client.result(job.id)
        server = session.info().pids["postgres"]

        os.kill(server, signal.SIGKILL)
        eventually(lambda: session.info().pids.get("postgres", server) != server or None, "it is back", WAIT_S)
        with Client(session.url) as client:
            assert client.submit(TINY_NAME, ["cat"], wait_s=30).status == "succeeded"
            np.testing.assert_array_equal(client.result(job.id), first)

        everyone = servers(folder)
        assert len(everyone) > 3
        os.kill(session.pid, signal.SIGKILL)
        _, alive = psutil.wait_procs(everyone, timeout=WAIT_S)
        assert alive == []

    with fleet(folder) as session:
        with Client(session.url) as client:
            np.testing.assert_array_equal(client.result(job.id), first)
        code = session.stop()

    assert is_clean_exit(code), session.tail()
    assert session.leftovers() == []
    assert servers(folder) == []
    assert "database system is shut down" in (folder / "data" / "postgres" / "postgres.log").read_text()


def test_a_database_of_the_users_own_beside_it_is_refused(folder: Path) -> None:
    environment = {**clean_environment(), "BATCHFLEET_DATABASE_URL": "postgresql+psycopg://db/x"}

    done = subprocess.run(
        up_command(folder / "data", 1, ["--postgres"]), env=environment, capture_output=True, text=True, check=False
    )

    assert done.returncode == Exit.CONFIG
    assert "BATCHFLEET_DATABASE_URL" in done.stderr
    assert not (folder / "data").exists()


@pytest.mark.timeout(200)
def test_the_demo_runs_on_it_and_tells_as_json(folder: Path) -> None:
    models = folder / "cache" / "batchfleet" / f"models-{builder_key()}"
    build_tiny_encoder(models, name=DEMO_MODEL.name, version=DEMO_MODEL.version)
    environment = {**clean_environment(), "XDG_CACHE_HOME": str(folder / "cache"), "TMPDIR": str(folder)}
    command = [sys.executable, "-P", "-m", "batchfleet.cli", "demo", "--texts", "60", "--workers", "1"]
    command += ["--postgres", "--json"]

    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180, check=False)

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["texts"] == 60
    assert sum(count for _, count in found["batch_items"]) >= 1
    assert found["mean_tokens"] > 2
    assert found["cpu_ms_per_job"]["worker"] > 0
    assert found["cpu_ms_per_job"]["postgres"] > 0
    assert all(len(query["nearest"]) == 3 for query in found["queries"])
    assert not list(folder.glob("batchfleet-demo-*"))
    assert servers(folder) == []

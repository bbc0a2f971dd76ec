"""`python -m api` as a process: where it listens, how it stops, and when it refuses to start."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from api.__main__ import main
from batchfleet.lifecycle import PARENT_FD_VARIABLE
from batchfleet.settings import EXIT_CONFIG
from migrations.run import upgrade
from tests.support.apiprocess import api_process, environment_of
from tests.support.apiserver import WAIT_S, publish_model

JOB = {"model": "tiny", "inputs": ["a text"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    publish_model(tmp_path / "models")
    upgrade(f"sqlite:///{tmp_path}/batchfleet.db")
    return tmp_path


def test_a_stop_signal_answers_who_waits_and_ends_with_0(folder: Path) -> None:
    environment = environment_of(folder, BATCHFLEET_LOG_LEVEL="debug")
    with api_process(environment) as (process, url), ThreadPoolExecutor(1) as pool:
        assert process.stderr is not None
        job_id = httpx.post(f"{url}/v1/jobs", json=JOB).json()["id"]
        waiting = pool.submit(httpx.get, f"{url}/v1/jobs/{job_id}?wait=60", timeout=WAIT_S)
        # A second request proves that the loop has taken the first one in.
        httpx.get(f"{url}/healthz")
        process.send_signal(signal.SIGTERM)
        log = process.stderr.read()

        assert process.wait(WAIT_S) == 0
        assert "action=process_stopped" in log
        try:
            answer = waiting.result(WAIT_S)
        except httpx.TransportError:
            return  # the signal was faster than the request
        assert (answer.status_code, answer.json()["status"]) == (200, "queued")


def test_a_database_without_a_schema_is_told_in_its_log(tmp_path: Path) -> None:
    publish_model(tmp_path / "models")
    log = ""
    with subprocess.Popen(
        [sys.executable, "-m", "api"], env=environment_of(tmp_path), stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            log += line
            if "listening" in log and "no work can be done yet" in log:
                break
        process.kill()
    assert "no work can be done yet: the database has no (or an old) schema: run 'batchfleet db upgrade'" in log
    assert "__main__" not in log


def test_it_ends_with_the_parent_that_holds_its_pipe(folder: Path) -> None:
    reader, writer = os.pipe()
    environment = environment_of(folder, **{PARENT_FD_VARIABLE: str(reader)})
    with api_process(environment, (reader,)) as (process, _url):
        os.close(reader)
        os.close(writer)

        assert process.wait(WAIT_S) == 0


def test_two_processes_share_a_database(folder: Path) -> None:
    with api_process(environment_of(folder)) as (_, one), api_process(environment_of(folder)) as (_, other):
        job_id = httpx.post(f"{one}/v1/jobs", json=JOB).json()["id"]

        assert httpx.get(f"{other}/v1/jobs/{job_id}").json()["status"] == "queued"


def test_settings_that_cannot_be_used_end_with_78(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "api"],
        env=environment_of(folder, BATCHFLEET_REQUIRE_KEYS="false", BATCHFLEET_API_HOST="0.0.0.0"),  # noqa: S104
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )

    assert done.returncode == EXIT_CONFIG
    assert "without a key" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def own_logging() -> Iterator[None]:
    """A process sets its logging up for itself; the tests that come after this one have theirs back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("own_logging")
@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("BATCHFLEET_API_HOST", "::", "without a key"),
        ("BATCHFLEET_API_HOST", "example.org", "without a key"),
        ("BATCHFLEET_INPUT_PREFIXES", "/tmp", "BATCHFLEET_INPUT_PREFIXES"),
        ("BATCHFLEET_API_PORT", "many", "BATCHFLEET_API_PORT"),
        ("BATCHFLEET_BROKER_URL", "amqp://x", "BATCHFLEET_BROKER_URL"),
        ("BATCHFLEET_DATABASE_URL", "mysql://x", "BATCHFLEET_DATABASE_URL"),
    ],
)
def test_what_cannot_be_used_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variable: str,
    value: str,
    told: str,
) -> None:
    for name, given in environment_of(tmp_path, **{"BATCHFLEET_REQUIRE_KEYS": "false", variable: value}).items():
        monkeypatch.setenv(name, given)

    assert main() == EXIT_CONFIG
    assert told in capsys.readouterr().err


def test_a_port_that_is_taken_ends_with_1(folder: Path) -> None:
    with api_process(environment_of(folder)) as (_, url):
        done = subprocess.run(
            [sys.executable, "-m", "api"],
            env=environment_of(folder, BATCHFLEET_API_PORT=url.rpartition(":")[2]),
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )

        assert done.returncode == 1
        assert "address already in use" in done.stderr

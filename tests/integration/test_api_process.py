"""`python -m api` as a process: where it listens, how it stops, and when it refuses to start."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from batchfleet.lifecycle import PARENT_FD_VARIABLE
from batchfleet.settings import EXIT_CONFIG
from migrations.run import upgrade
from tests.support.apiserver import WAIT_S, publish_model

JOB = {"model": "tiny", "inputs": ["a text"]}


def _environment(folder: Path, **stated: str) -> dict[str, str]:
    return {
        **os.environ,
        "BATCHFLEET_DATABASE_URL": f"sqlite:///{folder}/batchfleet.db",
        "BATCHFLEET_MODELS_URL": f"file://{folder}/models",
        "BATCHFLEET_BLOB_URL": f"file://{folder}/blobs",
        "BATCHFLEET_API_PORT": "0",
        **stated,
    }


@contextmanager
def _process(
    environment: dict[str, str], pass_fds: tuple[int, ...] = ()
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Starts a process and yields it with its URL, which its log states."""
    process = subprocess.Popen(
        [sys.executable, "-m", "api"], env=environment, stderr=subprocess.PIPE, text=True, pass_fds=pass_fds
    )
    assert process.stderr is not None
    try:
        log = ""
        for line in process.stderr:
            log += line
            if found := re.search(r"url=(http\S+)", line):
                yield process, found[1]
                break
        else:
            pytest.fail(log)
    finally:
        process.kill()
        process.wait(WAIT_S)
        process.stderr.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    publish_model(tmp_path / "models")
    upgrade(f"sqlite:///{tmp_path}/batchfleet.db")
    return tmp_path


def test_a_stop_signal_answers_who_waits_and_ends_with_0(folder: Path) -> None:
    environment = _environment(folder, BATCHFLEET_LOG_LEVEL="debug")
    with _process(environment) as (process, url), ThreadPoolExecutor(1) as pool:
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


def test_it_ends_with_the_parent_that_holds_its_pipe(folder: Path) -> None:
    reader, writer = os.pipe()
    environment = _environment(folder, **{PARENT_FD_VARIABLE: str(reader)})
    with _process(environment, (reader,)) as (process, _url):
        os.close(reader)
        os.close(writer)

        assert process.wait(WAIT_S) == 0


def test_two_processes_share_a_database(folder: Path) -> None:
    with _process(_environment(folder)) as (_, one), _process(_environment(folder)) as (_, other):
        job_id = httpx.post(f"{one}/v1/jobs", json=JOB).json()["id"]

        assert httpx.get(f"{other}/v1/jobs/{job_id}").json()["status"] == "queued"


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("BATCHFLEET_API_HOST", "0.0.0.0", "no keys"),  # noqa: S104 - that is what is refused
        ("BATCHFLEET_API_HOST", "::", "no keys"),
        ("BATCHFLEET_API_HOST", "example.org", "no keys"),
        ("BATCHFLEET_API_PORT", "many", "BATCHFLEET_API_PORT"),
        ("BATCHFLEET_BROKER_URL", "amqp://x", "BATCHFLEET_BROKER_URL"),
        ("BATCHFLEET_DATABASE_URL", "mysql://x", "BATCHFLEET_DATABASE_URL"),
    ],
)
def test_settings_that_cannot_be_used_end_with_78(folder: Path, variable: str, value: str, told: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "api"],
        env=_environment(folder, **{variable: value}),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )

    assert done.returncode == EXIT_CONFIG
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken_ends_with_1(folder: Path) -> None:
    with _process(_environment(folder)) as (_, url):
        done = subprocess.run(
            [sys.executable, "-m", "api"],
            env=_environment(folder, BATCHFLEET_API_PORT=url.rpartition(":")[2]),
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )

        assert done.returncode == 1
        assert "address already in use" in done.stderr

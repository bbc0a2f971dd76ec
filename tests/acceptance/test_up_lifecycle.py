"""`batchfleet up` as a real process with real parts: it serves, survives its parts, and leaves nothing behind."""

import json
import os
import re
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from batchfleet.client import Client, ConnectionFailedError
from batchfleet.embedded.exits import Exit
from batchfleet.embedded.processes import members
from batchfleet.embedded.session import FleetSession, clean_environment, is_clean_exit, up_command
from batchfleet.embedded.stack import StackInfo
from tests.support.models import TINY_NAME, build_tiny_encoder

WAIT_S = 60.0


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    build_tiny_encoder(root)
    return root


def settings(models: Path) -> dict[str, str]:
    return {"BATCHFLEET_MODELS_URL": f"file://{models}", "BATCHFLEET_WORKER_VARIANT": "fp32"}


def fleet(folder: Path, models: Path) -> FleetSession:
    return FleetSession(folder, workers=1, environment=settings(models), ready_s=WAIT_S)


@contextmanager
def watching(pids: Iterable[int]) -> Iterator[list[int]]:
    """Opens a handle on each process, which becomes readable when that very process ends."""
    handles = [os.pidfd_open(pid) for pid in pids]
    try:
        yield handles
    finally:
        for handle in handles:
            os.close(handle)


def await_end(handles: Iterable[int]) -> None:
    left, deadline = set(handles), time.monotonic() + WAIT_S
    while left:
        ended, _, _ = select.select(left, [], [], max(0.0, deadline - time.monotonic()))
        assert ended, f"{len(left)} process(es) outlived the fleet"
        left -= set(ended)


def run_up(folder: Path, models: Path, *options: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = {**clean_environment(), **settings(models), **variables}
    command = [*up_command(folder, 1, ["--model", "none"]), *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WAIT_S, check=False)


def test_it_serves_refuses_a_second_stops_cleanly_and_keeps_its_jobs(tmp_path: Path, models: Path) -> None:
    with fleet(tmp_path, models) as session:
        second = run_up(tmp_path, models)  # on the same folder
        assert second.returncode == Exit.ALREADY_RUNNING
        assert re.search(rf"process {session.pid}, at {re.escape(session.url)}", second.stderr)
        with Client(session.url) as client:
            job = client.submit(TINY_NAME, ["box of jam", "cat"], wait_s=30)
            first = client.result(job.id)
            assert [model.id for model in client.models()] == [TINY_NAME]
        assert first.shape[0] == 2
        code = session.stop()

    assert is_clean_exit(code), session.tail()
    assert session.leftovers() == []
    assert StackInfo.read(tmp_path) is None
    with fleet(tmp_path, models) as session, Client(session.url) as client:
        np.testing.assert_array_equal(client.result(job.id), first)


def test_kill_minus_nine_of_the_supervisor_leaves_no_process_and_parts_come_back(tmp_path: Path, models: Path) -> None:
    with fleet(tmp_path, models) as session:
        everyone = [stat.pid for stat in members([*session.info().pids.values(), session.pid])]
        assert (
            len(everyone) >= 5
        )  # the supervisor, API, scheduler, worker and its keeper, and Valkey where there is one

        with watching(everyone) as handles:
            os.kill(session.pid, signal.SIGKILL)
            await_end(handles)

    with fleet(tmp_path, models) as session, Client(session.url) as client:  # the folder is usable at once
        assert client.submit(TINY_NAME, ["cat"], wait_s=30).status == "succeeded"
        first = session.info().pids
        for count, part in enumerate(first, start=1):
            with watching([first[part]]) as handles:
                os.kill(first[part], signal.SIGKILL)
                await_end(handles)
            await_restarts(session, count)
            assert submit_once_it_answers(client) == "succeeded", part

        assert first.keys() >= {"api", "scheduler", "worker-0"}
        assert all(session.info().pids[part] != pid for part, pid in first.items())
        assert is_clean_exit(session.stop()), session.tail()
    assert session.leftovers() == []


def await_restarts(session: FleetSession, count: int) -> None:
    """The supervisor publishes each restart in a file: reading it again until then is the only way to know."""
    deadline = time.monotonic() + WAIT_S
    while session.info().restarts < count:
        assert time.monotonic() < deadline
        select.select([], [], [], 0.05)


def submit_once_it_answers(client: Client) -> str:
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            job = client.submit(TINY_NAME, ["cat"])
            return client.wait_many([job.id], timeout_s=WAIT_S)[job.id]
        except ConnectionFailedError:
            assert time.monotonic() < deadline


def test_a_taken_port_is_told(tmp_path: Path, models: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        refused = run_up(tmp_path, models, "--port", str(server.getsockname()[1]))

    assert refused.returncode == Exit.PORT_IN_USE
    assert "cannot listen on 127.0.0.1" in refused.stderr


def test_settings_that_cannot_work_end_it_at_once(tmp_path: Path, models: Path) -> None:
    """An API without keys refuses to listen for strangers: a restart would not mend that."""
    refused = run_up(
        tmp_path,
        models,
        "--host",
        "0.0.0.0",  # noqa: S104 - it must be refused
        BATCHFLEET_REQUIRE_KEYS="false",
    )

    assert refused.returncode == Exit.CONFIG
    assert json.loads(refused.stderr)["error"]["code"] == "unsafe_host", "and not a word of starts and restarts"
    assert "others could reach it without a key" in refused.stderr
    assert not (tmp_path / "batchfleet.db").exists()


def test_what_keeps_failing_is_the_last_word_as_json(tmp_path: Path, models: Path) -> None:
    (tmp_path / "state").write_text("a file where a folder must be")

    refused = run_up(tmp_path, models)

    assert refused.returncode == Exit.FAILED
    assert json.loads(refused.stderr.splitlines()[-1])["error"]["code"] == "system_error"
    assert "Traceback" not in refused.stderr


def test_a_wrong_setting_is_named(tmp_path: Path, models: Path) -> None:
    environment = {**clean_environment(), **settings(models), "BATCHFLEET_LEASE_TTL_S": "soon"}

    refused = subprocess.run(
        up_command(tmp_path, 1), env=environment, capture_output=True, text=True, timeout=WAIT_S, check=False
    )

    assert refused.returncode == Exit.CONFIG
    assert "BATCHFLEET_LEASE_TTL_S" in json.loads(refused.stderr)["error"]["message"]
    assert "Traceback" not in refused.stderr


def test_a_demo_model_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "broken.whl").write_bytes(b"not a wheel")
    environment = {**clean_environment(), "BATCHFLEET_DEMO_WHEEL": str(tmp_path / "broken.whl")}
    environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    command = up_command(tmp_path / "data", 1, ["--model", "demo"])

    refused = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WAIT_S, check=False)

    assert refused.returncode == Exit.NO_MODEL, refused.stderr
    assert "it gets the demo model" in refused.stderr
    assert "broken.whl" in refused.stderr
    assert "Traceback" not in refused.stderr

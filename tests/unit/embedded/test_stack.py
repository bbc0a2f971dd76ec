"""The layout of a fleet: settings of all parts, the user's own respected, and what is published of it."""

import os
import socket
from pathlib import Path

import pytest

from batchfleet.embedded.stack import (
    PortInUseError,
    StackInfo,
    StackSpec,
    lay_out,
    python_environment,
)
from batchfleet.embedded.valkey import valkey_binary
from batchfleet.errors import BatchfleetError


def test_everything_lives_in_the_data_folder(tmp_path: Path) -> None:
    stack = lay_out(StackSpec(data_dir=tmp_path, port=0, workers=2), environ={})

    settings = stack.settings
    assert settings.database_url == f"sqlite:///{tmp_path}/batchfleet.db"
    assert (settings.models_url, settings.blob_url) == (f"file://{tmp_path}/models", f"file://{tmp_path}/blobs")
    assert (settings.state_dir, settings.metrics_dir) == (tmp_path / "state", tmp_path / "metrics")
    assert settings.api_port == stack.port != 0
    assert stack.url == f"http://127.0.0.1:{stack.port}"


def test_what_the_user_has_set_is_respected(tmp_path: Path) -> None:
    mine = {"BATCHFLEET_BROKER_URL": "none", "BATCHFLEET_DATABASE_URL": "postgresql+psycopg://db/x", "HOME": "/root"}

    stack = lay_out(StackSpec(data_dir=tmp_path, port=0), environ=mine)

    assert stack.settings.database_url == "postgresql+psycopg://db/x"
    assert stack.settings.broker_url == "none"
    assert stack.valkey is None
    assert "HOME" not in stack.environment


def test_workers_stop_first_and_the_doorbell_last(tmp_path: Path) -> None:
    children = lay_out(StackSpec(data_dir=tmp_path, port=0, workers=2), environ={}).children()

    order = [child.name for child in sorted(children, key=lambda child: child.stage)]
    expected = ["worker-0", "worker-1", "scheduler", "api"] + (["valkey"] if valkey_binary() else [])
    assert order == expected
    names = {child.environment["BATCHFLEET_WORKER_NAME"] for child in children if child.name.startswith("worker")}
    assert len(names) == 2


def test_a_worker_is_given_its_drain_time(tmp_path: Path) -> None:
    stack = lay_out(StackSpec(data_dir=tmp_path, port=0), environ={})

    worker = next(child for child in stack.children() if child.name == "worker-0")
    assert worker.stop_s > stack.settings.drain_s


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        with pytest.raises(PortInUseError, match=f"127.0.0.1:{port}"):
            lay_out(StackSpec(data_dir=tmp_path, port=port), environ={})


def test_a_folder_that_no_url_can_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BatchfleetError, match="must not hold any of"):
        lay_out(StackSpec(data_dir=tmp_path / "what?", port=0), environ={})


def test_counters_of_an_earlier_fleet_are_forgotten(tmp_path: Path) -> None:
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics" / "counter_1.db").write_bytes(b"old")

    lay_out(StackSpec(data_dir=tmp_path, port=0), environ={})

    assert list((tmp_path / "metrics").iterdir()) == []


def test_children_find_the_packages_where_we_found_them() -> None:
    root = str(Path(__file__).resolve().parents[3])

    path = python_environment({"PYTHONPATH": "/somewhere"})["PYTHONPATH"].split(os.pathsep)

    assert path[-1] == "/somewhere"
    assert root in path or len(path) == 1  # installed, the packages are found without help


def test_what_runs_is_published_whole(tmp_path: Path) -> None:
    info = StackInfo(url="http://127.0.0.1:1", pid=1, data_dir=str(tmp_path), pids={"api": 2}, restarts=3)
    assert StackInfo.read(tmp_path) is None

    info.write()

    assert StackInfo.read(tmp_path) == info
    StackInfo.remove(tmp_path)
    assert StackInfo.read(tmp_path) is None

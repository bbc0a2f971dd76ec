"""The doctor: what is wrong is found, told with what to do, and no secret is shown."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batchfleet.access.keys import DEFAULT_ROLES, new_key
from batchfleet.access.sql import SqlAccess
from batchfleet.access.tenants import DEFAULT_TENANT
from batchfleet.cli.doctor.findings import Verdict
from batchfleet.cli.doctor.store_checks import judge_mode, judge_skew
from batchfleet.cli.main import main
from batchfleet.database.schema import NEEDED
from batchfleet.embedded.exits import Exit
from batchfleet.embedded.stack import StackInfo
from batchfleet.embedded.tune.recall import here
from batchfleet.inference.tuning import Trial, Tuning, remember, tuning_file
from batchfleet.jobs.job import WorkerLease, WorkerState
from batchfleet.jobs.sql.store import SqlStore
from batchfleet.models.repository import ModelRef, ModelRepository
from migrations.run import upgrade
from tests.support.models import build_tiny_encoder
from tests.support.servers import ValkeyServer

Examine = Callable[..., dict[str, list[dict[str, str]]]]


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which everything is as it should be."""
    upgrade(f"sqlite:///{tmp_path}/batchfleet.db")
    build_tiny_encoder(tmp_path / "models")
    for name in [name for name in os.environ if name.startswith("BATCHFLEET_")]:
        monkeypatch.delenv(name)
    settings = {
        "DATABASE_URL": f"sqlite:///{tmp_path}/batchfleet.db",
        "BLOB_URL": f"file://{tmp_path}/blobs",
        "MODELS_URL": f"file://{tmp_path}/models",
        "STATE_DIR": f"{tmp_path}/state",
        "SECRET_KEY": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
        "URL": "http://127.0.0.1:1",
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"BATCHFLEET_{name}", value)
    (tmp_path / "blobs").mkdir()
    return tmp_path


@pytest.fixture
def examine(capsys: pytest.CaptureFixture[str]) -> Examine:
    def run(code: Exit = Exit.OK) -> dict[str, list[dict[str, str]]]:
        capsys.readouterr()
        assert main(["doctor", "--json"]) == code
        report = json.loads(capsys.readouterr().out)
        assert report["ok"] == (code is Exit.OK)
        found: dict[str, list[dict[str, str]]] = {}
        for entry in report["checks"]:
            found.setdefault(entry["check"], []).append(entry)
        return found

    return run


def statuses(found: dict[str, list[dict[str, str]]]) -> dict[str, str]:
    return {check: "/".join(entry["status"] for entry in entries) for check, entries in found.items()}


def test_a_machine_on_which_all_is_well(fleet: Path, examine: Examine) -> None:
    assert statuses(examine()) == {
        "settings": "ok",
        "database": "ok",
        "schema": "ok",
        "clock": "ok",
        "workers": "warn",  # none runs
        "keys": "ok",
        "tenants": "skip",
        "broker": "ok",
        "blobs": "ok",
        "s3": "skip",
        "models": "ok",
        "tuning": "skip",  # never measured
        "disk": "ok",
        "state": "ok",
        "secret_key": "ok",
        "api": "skip",
    }


def test_a_tuning_is_told_and_whether_it_still_holds(fleet: Path, examine: Examine) -> None:
    digest = ModelRepository(fleet / "models").open(ModelRef("tiny", "1")).digest
    file = tuning_file(fleet / "state")
    trial = Trial(2, 1, "tiny@1", "fp32", 512, 100.0)

    remember(file, here(), Tuning(2, 1, {digest: trial}, (trial,), "2026-01-01T00:00:00+00:00"))
    assert "2 worker(s) with 1 thread(s) each" in examine()["tuning"][0]["detail"]
    remember(file, here(), Tuning(2, 1, {"other": trial}, (trial,), "2026-01-01T00:00:00+00:00"))
    assert "1 model(s) came after" in examine()["tuning"][0]["detail"]
    doubtful = msgspec.structs.replace(trial, doubtful=True)
    remember(file, here(), Tuning(2, 1, {digest: doubtful}, (doubtful,), "2026-01-01T00:00:00+00:00"))
    assert "measured beside other work" in examine()["tuning"][0]["detail"]
    file.unlink()
    remember(file, "another machine", Tuning(2, 1, {digest: trial}, (trial,), "2026-01-01T00:00:00+00:00"))
    assert statuses(examine())["tuning"] == "warn"


def test_people_get_a_line_a_check(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == Exit.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ok    settings     those of the environment can work"
    assert lines[-1].endswith("0 wrong")


def test_settings_that_cannot_work_end_it(fleet: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHFLEET_API_PORT", "many")
    found = examine(Exit.FAILED)
    assert statuses(found) == {"settings": "fail"}
    assert "BATCHFLEET_API_PORT" in found["settings"][0]["detail"]


def test_a_misspelt_setting_is_told(fleet: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHFLEET_BLOB_ULR", "file:///x")
    assert examine()["settings"][1]["advice"] == "did you mean BATCHFLEET_BLOB_URL?"


def test_a_database_that_was_never_migrated(fleet: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHFLEET_DATABASE_URL", f"sqlite:///{fleet}/other.db")
    found = examine(Exit.FAILED)
    assert (found["database"][0]["status"], found["keys"][0]["status"]) == ("fail", "skip")
    assert "batchfleet db upgrade" in found["database"][0]["advice"]
    assert not (fleet / "other.db").exists()


def test_an_old_schema(fleet: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    upgrade(f"sqlite:///{fleet}/old.db", "0001")
    monkeypatch.setenv("BATCHFLEET_DATABASE_URL", f"sqlite:///{fleet}/old.db")
    found = examine(Exit.FAILED)
    assert statuses(found)["schema"] == "fail"
    assert found["schema"][0]["advice"] == "run `batchfleet db upgrade`"


def test_a_schema_without_its_last_steps_is_in_order(
    fleet: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warning, no failure: during a deployment processes of the version before still run."""
    upgrade(f"sqlite:///{fleet}/old.db", NEEDED)
    monkeypatch.setenv("BATCHFLEET_DATABASE_URL", f"sqlite:///{fleet}/old.db")
    found = examine()
    assert found["schema"][0]["status"] == "warn"
    assert found["schema"][0]["advice"].endswith("batchfleet db upgrade --post")


def test_a_database_that_does_not_answer_shows_no_password(
    fleet: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "postgresql+psycopg://fleet:hunter2@127.0.0.1:1/x"
    monkeypatch.setenv("BATCHFLEET_DATABASE_URL", url)
    found = examine(Exit.FAILED)
    assert found["database"][0]["status"] == "fail"
    assert "hunter2" not in json.dumps(found)
    assert "fleet:***@127.0.0.1:1" in found["database"][0]["detail"]


def test_a_broker_that_is_there_and_one_that_is_not(
    fleet: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch, valkey: ValkeyServer
) -> None:
    monkeypatch.setenv("BATCHFLEET_BROKER_URL", valkey.url)
    assert statuses(examine())["broker"] == "ok"
    monkeypatch.setenv("BATCHFLEET_BROKER_URL", "redis://:hunter2@127.0.0.1:1/0")
    found = examine(Exit.FAILED)
    assert found["broker"][0]["status"] == "fail"
    assert "hunter2" not in json.dumps(found)


def test_a_blob_folder_that_cannot_be_used(fleet: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    (fleet / "file").touch()
    monkeypatch.setenv("BATCHFLEET_BLOB_URL", f"file://{fleet}/file")
    assert statuses(examine(Exit.FAILED))["blobs"] == "fail"


def test_a_look_leaves_nothing_behind(fleet: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHFLEET_BLOB_URL", f"file://{fleet}/not/yet")
    before = sorted(str(path) for path in fleet.rglob("*") if path.is_dir())
    assert "can be made" in examine()["blobs"][0]["detail"]
    assert sorted(str(path) for path in fleet.rglob("*") if path.is_dir()) == before


def test_a_model_that_was_changed(fleet: Path, examine: Examine) -> None:
    graph = next((fleet / "models").rglob("*.onnx"))
    graph.write_bytes(graph.read_bytes() + b"x")
    found = examine(Exit.FAILED)
    assert found["models"][0]["status"] == "fail"
    assert graph.name in found["models"][0]["detail"]


def test_keys_are_asked_for_and_there_is_none(fleet: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHFLEET_API_HOST", "0.0.0.0")  # noqa: S104
    found = examine(Exit.FAILED)
    assert found["keys"][0]["advice"] == "run `batchfleet keys create`"

    access = SqlAccess(f"sqlite:///{fleet}/batchfleet.db")
    access.create_key(new_key(), tenant=DEFAULT_TENANT, name="", roles=DEFAULT_ROLES)
    access.close()
    assert "1 usable key" in examine()["keys"][0]["detail"]

    monkeypatch.setenv("BATCHFLEET_REQUIRE_KEYS", "false")
    assert "the API will not start" in examine(Exit.FAILED)["keys"][0]["detail"]


def test_webhook_secrets_that_are_not_sealed(fleet: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BATCHFLEET_SECRET_KEY")
    assert statuses(examine())["secret_key"] == "warn"
    monkeypatch.setenv("BATCHFLEET_SECRET_KEY", "hunter2")
    found = examine(Exit.FAILED)
    assert "BATCHFLEET_SECRET_KEY" in found["settings"][0]["detail"]
    assert "hunter2" not in json.dumps(found)


def test_s3_without_credentials(fleet: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(fleet / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(fleet / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("BATCHFLEET_BLOB_URL", "s3://bucket/prefix")
    monkeypatch.setenv("BATCHFLEET_S3_ENDPOINT_URL", "http://127.0.0.1:1")
    found = examine(Exit.FAILED)
    assert (found["s3"][0]["status"], found["blobs"][0]["status"]) == ("fail", "fail")

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    found = examine(Exit.FAILED)
    assert found["s3"][0]["status"] == "ok"
    assert "hunter2" not in json.dumps(found)
    assert "AKIAEXAMPLE" not in json.dumps(found)


@pytest.mark.parametrize(
    ("skew_s", "verdict"),
    [(0.3, Verdict.OK), (-0.3, Verdict.OK), (5.0, Verdict.WARN), (-5.0, Verdict.WARN), (-600.0, Verdict.FAIL)],
)
def test_clocks_that_differ(skew_s: float, verdict: Verdict) -> None:
    finding = judge_skew(skew_s)
    assert finding.verdict is verdict
    assert ("behind" in finding.detail) == (skew_s < 0)


def test_the_fleet_that_runs_on_the_data_folder_is_the_one_that_is_meant(
    fleet: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its settings are those of its API process, whatever else it was started with."""
    environment = dict(os.environ)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=environment)
    try:
        info: dict[str, Any] = {"url": "http://127.0.0.1:1", "pid": child.pid, "data_dir": str(fleet)}
        StackInfo(**info, pids={"api": child.pid}).write()
        for name in environment:
            if name.startswith("BATCHFLEET_"):
                monkeypatch.delenv(name)
        monkeypatch.setenv("BATCHFLEET_DATA_DIR", str(fleet))

        found = examine()
    finally:
        child.communicate(b"\n")
    assert "the fleet that runs on" in found["settings"][0]["detail"]
    assert str(fleet) in found["database"][0]["detail"]


def test_a_file_that_others_can_read_is_told(tmp_path: Path) -> None:
    file = tmp_path / "batchfleet.db"
    file.touch(mode=0o600)
    tmp_path.chmod(0o755)
    assert not list(judge_mode(file))

    file.chmod(0o644)

    (finding,) = judge_mode(file)
    assert (finding.verdict, finding.advice) == (Verdict.WARN, f"chmod 600 {file}*")


def test_two_live_workers_of_one_name_are_told(fleet: Path, examine: Examine) -> None:
    store = SqlStore(f"sqlite:///{fleet}/batchfleet.db")
    for boot in ("a" * 32, "b" * 32):
        store.register(WorkerLease(boot=boot, name="twin", pid=1, state=WorkerState.READY))
    store.close()

    found = examine()["workers"]

    assert [entry["status"] for entry in found] == ["warn", "ok"]
    assert "twin" in found[0]["detail"]

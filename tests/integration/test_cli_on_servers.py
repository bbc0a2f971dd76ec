"""Commands that look at the parts themselves, with a real Postgres and a real S3 server."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from batchfleet.cli.main import main
from batchfleet.embedded.exits import Exit
from tests.support.models import build_tiny_encoder
from tests.support.postgres import PostgresServer
from tests.support.s3servers import Bucket


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("BATCHFLEET_")]:
        monkeypatch.delenv(name)
    build_tiny_encoder(tmp_path / "models")
    monkeypatch.setenv("BATCHFLEET_BLOB_URL", f"file://{tmp_path}/blobs")
    monkeypatch.setenv("BATCHFLEET_MODELS_URL", f"file://{tmp_path}/models")
    monkeypatch.setenv("BATCHFLEET_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("BATCHFLEET_URL", "http://127.0.0.1:1")
    return tmp_path


def examined(capsys: pytest.CaptureFixture[str], code: Exit) -> tuple[dict[str, str], str]:
    capsys.readouterr()
    assert main(["doctor", "--json"]) == code
    text = capsys.readouterr().out
    return {entry["check"]: entry["status"] for entry in json.loads(text)["checks"]}, text


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: Exit = Exit.OK) -> Any:
    capsys.readouterr()
    assert main([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_keys_and_schema_on_postgres(
    machine: Path, postgres: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BATCHFLEET_DATABASE_URL", postgres)

    made = said(capsys, "keys", "create", "--tenant", "acme", "--role", "admin")
    assert [key["id"] for key in said(capsys, "keys", "list")["keys"]] == [made["id"]]
    said(capsys, "tenants", "set", "acme", "--output-prefix", "s3://outgoing/acme")
    assert said(capsys, "tenants", "show", "acme")["output_prefixes"] == ["s3://outgoing/acme/"]
    assert said(capsys, "keys", "revoke", made["id"])["keys"][0]["revoked_at"]
    assert said(capsys, "db", "status")["status"] == "current"

    found, _ = examined(capsys, Exit.OK)
    assert {found[name] for name in ("database", "schema", "clock", "keys", "tenants")} == {"ok"}


def test_a_database_that_went_away_is_told(
    machine: Path, own_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BATCHFLEET_DATABASE_URL", own_postgres.url)
    assert examined(capsys, Exit.OK)[0]["database"] == "ok"
    own_postgres.stop()

    found, text = examined(capsys, Exit.FAILED)

    assert (found["database"], found["workers"], found["blobs"]) == ("fail", "skip", "ok")
    assert "does not answer" in text
    assert main(["keys", "list"]) == Exit.FAILED
    told = capsys.readouterr().err
    assert told.startswith("batchfleet: the database does not answer")
    assert "Traceback" not in told


def test_blobs_in_s3_and_a_key_that_does_not_open_it(
    machine: Path, nanio_bucket: Bucket, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BATCHFLEET_DATABASE_URL", f"sqlite:///{machine}/batchfleet.db")
    assert main(["db", "upgrade"]) == Exit.OK
    for name, value in nanio_bucket.settings.items():
        monkeypatch.setenv(f"BATCHFLEET_{name.upper()}", value)

    found, _ = examined(capsys, Exit.OK)
    assert (found["blobs"], found["s3"]) == ("ok", "ok")
    assert nanio_bucket.keys() == []

    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2hunter2hunter2")
    found, text = examined(capsys, Exit.FAILED)
    assert found["blobs"] == "fail"
    assert "hunter2" not in text

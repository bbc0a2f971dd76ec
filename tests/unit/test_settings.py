"""Settings are checked at start, and what is wrong is named by its variable."""

import subprocess
import sys
from pathlib import Path

import pytest

from batchfleet.settings import EXIT_CONFIG, SettingsError, folder_of, read_settings


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("DATABASE_URL", "mysql://localhost/x", "must be sqlite"),
        ("BROKER_URL", "amqp://localhost", "must be none, redis"),
        ("BLOB_URL", "relative/path", "must be file:///folder"),
        ("MODELS_URL", "file://host/folder", "must be file:///folder"),
        ("API_PORT", "70000", "less than or equal to 65535"),
        ("WINDOW_S", "0", "greater than 0"),
        ("WORKER_THREADS", "two", "valid integer"),
        ("LOG_LEVEL", "loud", "'debug', 'info'"),
    ],
)
def test_a_wrong_setting_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str) -> None:
    monkeypatch.setenv(f"BATCHFLEET_{name}", value)

    with pytest.raises(SettingsError) as caught:
        read_settings()

    assert f"BATCHFLEET_{name}" in str(caught.value)
    assert says in str(caught.value)


def test_a_password_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHFLEET_DATABASE_URL", "mysql://me:hunter2@localhost/x")

    with pytest.raises(SettingsError) as caught:
        read_settings()

    assert "hunter2" not in str(caught.value)


def test_a_lease_outlives_a_late_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHFLEET_LEASE_TTL_S", "10")

    with pytest.raises(SettingsError, match="BATCHFLEET_LEASE_TTL_S=10 must be at least three times"):
        read_settings()


def test_lists_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHFLEET_WORKER_MODELS", "a, b,,c ")

    assert read_settings().worker_models == ("a", "b", "c")


def test_a_folders_url_may_hold_escapes() -> None:
    assert folder_of(Path("/tmp/a b#c").as_uri()) == Path("/tmp/a b#c")
    with pytest.raises(ValueError, match="not a file URL"):
        folder_of("s3://bucket/prefix")


@pytest.mark.parametrize("service", ["api", "scheduler", "workers"])
def test_every_service_says_what_is_wrong_and_is_not_worth_a_restart(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHFLEET_DATABASE_URL", "mysql://localhost/x")

    ended = subprocess.run([sys.executable, "-m", service], capture_output=True, text=True, timeout=60, check=False)

    assert ended.returncode == EXIT_CONFIG
    assert "BATCHFLEET_DATABASE_URL: must be" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("service", "variable", "value"),
    [
        ("api", "METRICS_DIR", "/dev/null/x"),
        ("api", "BLOB_URL", "file:///dev/null/x"),
        ("scheduler", "METRICS_DIR", "/dev/null/x"),
        ("workers", "METRICS_DIR", "/dev/null/x"),
        ("workers", "STATE_DIR", "/dev/null/x"),
        ("workers", "BLOB_URL", "file:///dev/null/x"),
    ],
)
def test_a_folder_that_cannot_be_is_no_reason_for_a_traceback(
    service: str, variable: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = {"STATE_DIR": str(tmp_path), "BLOB_URL": tmp_path.as_uri(), "MODELS_URL": tmp_path.as_uri()}
    for name, folder in folders.items():
        monkeypatch.setenv(f"BATCHFLEET_{name}", folder)
    monkeypatch.setenv("BATCHFLEET_DATABASE_URL", f"sqlite:///{tmp_path}/x.db")
    monkeypatch.setenv("BATCHFLEET_API_PORT", "0")
    monkeypatch.setenv(f"BATCHFLEET_{variable}", value)

    ended = subprocess.run([sys.executable, "-m", service], capture_output=True, text=True, timeout=60, check=False)

    assert ended.returncode == EXIT_CONFIG, ended.stderr
    assert "/dev/null" in ended.stderr
    assert "Traceback" not in ended.stderr

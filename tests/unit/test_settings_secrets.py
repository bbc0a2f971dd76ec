"""Secrets come from files as well: nothing secret need be in the environment."""

from pathlib import Path

import psycopg
import pytest

from batchfleet.settings import SettingsError, read_settings


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BATCHFLEET_SECRETS_DIR", str(tmp_path))
    return tmp_path


def test_a_setting_is_read_from_its_file_without_the_line_end(folder: Path) -> None:
    keys = f"{'a' * 43}=,{'b' * 43}="
    (folder / "batchfleet_secret_key").write_text(f"{keys}\n")

    secret = read_settings().secret_key

    assert secret is not None
    assert secret.get_secret_value() == keys


def test_the_environment_comes_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "batchfleet_log_level").write_text("debug")
    assert read_settings().log_level == "debug"

    monkeypatch.setenv("BATCHFLEET_LOG_LEVEL", "error")

    assert read_settings().log_level == "error"


def test_the_databases_password_joins_its_url(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever signs it has: the driver gets back the very same."""
    password = "p@ss:w/rd?#%41 é"
    (folder / "batchfleet_database_password").write_text(password)
    monkeypatch.setenv("BATCHFLEET_DATABASE_URL", "postgresql+psycopg://fleet@postgres:5432/batchfleet?sslmode=require")

    url = read_settings().database_url

    parsed = psycopg.conninfo.conninfo_to_dict(url.replace("+psycopg", ""))
    assert parsed["password"] == password
    assert (parsed["user"], parsed["host"], parsed["dbname"], parsed["sslmode"]) == (
        "fleet",
        "postgres",
        "batchfleet",
        "require",
    )


@pytest.mark.parametrize(
    "url",
    ["sqlite:///x.db", "postgresql+psycopg://postgres:5432/x", "postgresql+psycopg://fleet:other@postgres/x"],
)
def test_a_password_that_has_no_place_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    (folder / "batchfleet_database_password").write_text("hunter2")
    monkeypatch.setenv("BATCHFLEET_DATABASE_URL", url)

    with pytest.raises(SettingsError, match="BATCHFLEET_DATABASE_URL: must name a user and no password") as caught:
        read_settings()

    assert "hunter2" not in str(caught.value)


def test_a_folder_that_is_none_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHFLEET_SECRETS_DIR", str(tmp_path / "absent"))

    with pytest.raises(SettingsError, match=r"BATCHFLEET_SECRETS_DIR: .*absent is not a folder"):
        read_settings()


def test_a_wrong_setting_of_a_file_is_named_like_the_variable(folder: Path) -> None:
    (folder / "batchfleet_api_port").write_text("70000")

    with pytest.raises(SettingsError, match="BATCHFLEET_API_PORT: "):
        read_settings()


def test_what_is_no_text_is_told_by_its_folder(folder: Path) -> None:
    (folder / "batchfleet_secret_key").write_bytes(b"\xff\xfe")

    with pytest.raises(SettingsError, match=r"BATCHFLEET_SECRETS_DIR: .*secret_key"):
        read_settings()

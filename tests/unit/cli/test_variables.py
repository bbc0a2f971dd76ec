"""A misspelt setting is told, with the name that was meant; what is known is not."""

from pathlib import Path

import pytest

from batchfleet.cli.variables import (
    OTHERS,
    option_variables,
    settings_variables,
    unknown_variables,
    unread_secrets,
    warn_of_unknown_variables,
)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("BATCHFLEET_WORKER_THREDS", "BATCHFLEET_WORKER_THREADS"),
        ("BATCHFLEET_DATABSE_URL", "BATCHFLEET_DATABASE_URL"),
        ("BATCHFLEET_UP_WORKER", "BATCHFLEET_UP_WORKERS"),
        ("BATCHFLEET_DEMO_WHEL", "BATCHFLEET_DEMO_WHEEL"),
        ("BATCHFLEET_XYZZY", None),
    ],
)
def test_an_unknown_variable_and_the_nearest_known_one(name: str, meant: str | None) -> None:
    assert list(unknown_variables({name: "1", "HOME": "/"})) == [(name, meant)]


def test_known_variables_are_not_told() -> None:
    known = settings_variables() | option_variables() | OTHERS | {"BATCHFLEET_TEST_NO_SKIPS"}

    assert {"BATCHFLEET_URL", "BATCHFLEET_DATA_DIR", "BATCHFLEET_SUBMIT_FILE", "BATCHFLEET_PARENT_FD"} <= known
    assert list(unknown_variables(dict.fromkeys(known, "1"))) == []


def test_the_warning_is_one_line_and_shows_no_value(capsys: pytest.CaptureFixture[str]) -> None:
    warn_of_unknown_variables("batchfleet up", {"BATCHFLEET_DATABASE_ULR": "secret"})

    assert capsys.readouterr().err == (
        "batchfleet up: warning: there is no setting BATCHFLEET_DATABASE_ULR, it is ignored; "
        "did you mean BATCHFLEET_DATABASE_URL?\n"
    )


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("secret_key", "batchfleet_secret_key"),
        ("database_password", "batchfleet_database_password"),
        ("batchfleet_secret_key.txt", "batchfleet_secret_key"),
        ("batchfleet_s3_credentials", None),
    ],
)
def test_a_secret_that_no_setting_reads_is_told(name: str, meant: str | None, tmp_path: Path) -> None:
    (tmp_path / name).write_text("hunter2")

    assert list(unread_secrets({"BATCHFLEET_SECRETS_DIR": str(tmp_path)})) == [(tmp_path / name, meant)]


def test_secrets_that_are_read_and_those_of_others_are_not_told(tmp_path: Path) -> None:
    for name in ("batchfleet_secret_key", "BATCHFLEET_DATABASE_PASSWORD", "s3_credentials", "prometheus_key"):
        (tmp_path / name).write_text("hunter2")
    (tmp_path / "batchfleet").mkdir()

    assert list(unread_secrets({"BATCHFLEET_SECRETS_DIR": str(tmp_path)})) == []


def test_a_folder_of_secrets_that_is_none_is_told_of_elsewhere(tmp_path: Path) -> None:
    assert list(unread_secrets({"BATCHFLEET_SECRETS_DIR": str(tmp_path / "absent")})) == []


def test_the_start_warns_of_a_secret_that_nobody_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "secret_key").write_text("hunter2")

    warn_of_unknown_variables("batchfleet", {"BATCHFLEET_SECRETS_DIR": str(tmp_path)})

    assert capsys.readouterr().err == (
        f"batchfleet: warning: no setting reads the file {tmp_path}/secret_key; did you mean batchfleet_secret_key?\n"
    )

"""A misspelt setting is told, with the name that was meant; what is known is not."""

import pytest

from batchfleet.cli.variables import (
    OTHERS,
    option_variables,
    settings_variables,
    unknown_variables,
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

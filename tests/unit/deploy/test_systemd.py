"""The systemd units, read and not run: their commands, settings, folders and times are right."""

import os
import pwd
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from api.server import STOP_S
from batchfleet.cli.variables import unread_secrets
from batchfleet.settings import EXIT_CONFIG, read_settings
from tests.support.commands import check_command, use_environment
from tests.support.deployfiles import ROOT

FOLDER = ROOT / "deploy" / "systemd"
UNITS = sorted(path.name for path in FOLDER.glob("*.service"))
PROGRAM = "/opt/batchfleet/current/bin/batchfleet"
SERVICES = [name for name in UNITS if "migrate" not in name]
SETTINGS = dict(
    line.split("=", 1) for line in (FOLDER / "batchfleet.env").read_text().splitlines() if not line.startswith("#")
)


def read(name: str) -> dict[str, list[str]]:
    """Returns `Section.Directive` and the values of a unit's lines, in order."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in (FOLDER / name).read_text(encoding="utf-8").splitlines():
        if header := re.fullmatch(r"\[(\w+)\]", line):
            section = header[1]
        elif line and not line.startswith("#"):
            directive, separator, value = line.partition("=")
            assert separator, line
            found.setdefault(f"{section}.{directive}", []).append(value)
    return found


def environment(unit: dict[str, list[str]], secrets: str) -> dict[str, str]:
    lines = [word for value in unit.get("Service.Environment", []) for word in shlex.split(value)]
    expanded = [word.replace("%H-%i", "host-1") for word in lines]
    assert not any("%" in word for word in expanded)
    own = dict(word.split("=", 1) for word in expanded)
    return {**SETTINGS, **own, "BATCHFLEET_SECRETS_DIR": secrets}


def words_of(unit: dict[str, list[str]]) -> list[str]:
    """Returns the command of ours that a unit runs."""
    (command,) = unit["Service.ExecStart"]
    found = re.search(rf"{re.escape(PROGRAM)}([\w ]*)", command)
    assert found is not None, command
    return shlex.split(found[1])


def test_there_is_a_unit_for_each_part() -> None:
    parts = ("api", "migrate", "scheduler", "worker@")
    assert [f"batchfleet-{part}.service" for part in parts] == UNITS


@pytest.mark.parametrize("name", UNITS)
def test_commands_and_settings_are_accepted(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "batchfleet_secret_key").write_text("x" * 43 + "=")
    (tmp_path / "batchfleet_database_password").write_text("a")
    unit = read(name)
    use_environment(monkeypatch, environment(unit, str(tmp_path)))

    check_command(words_of(unit))
    settings = read_settings()
    assert settings.database_password is not None
    assert unit["Service.EnvironmentFile"] == ["/etc/batchfleet/batchfleet.env"]
    assert list(unread_secrets(environment(unit, str(tmp_path)))) == []


@pytest.mark.parametrize("name", UNITS)
def test_folders_of_the_settings_are_made_for_the_user(name: str) -> None:
    (folders,) = read(name)["Service.StateDirectory"]
    made = {f"/var/lib/{folder}" for folder in folders.split()}

    named = {value.removeprefix("file://") for value in SETTINGS.values() if value.removeprefix("file://")[0] == "/"}
    assert named - {SETTINGS["BATCHFLEET_SECRETS_DIR"]} <= made
    assert read(name)["Service.User"] == ["batchfleet"]


@pytest.mark.parametrize("name", SERVICES)
def test_a_restart_comes_when_it_can_mend_something(name: str) -> None:
    unit = read(name)

    assert unit["Service.Restart"] == ["on-failure"]
    assert unit["Service.RestartPreventExitStatus"] == [str(EXIT_CONFIG)]
    assert unit["Unit.StartLimitIntervalSec"] == ["0"]
    assert "batchfleet-migrate.service" in unit["Unit.Wants"]
    assert "batchfleet-migrate.service" in unit["Unit.After"][0].split()


@pytest.mark.parametrize("name", SERVICES)
def test_the_upgrade_of_the_schema_stops_nobody(name: str) -> None:
    """What is required and restarted takes those that require it along."""
    assert not {"Unit.Requires", "Unit.BindsTo", "Unit.PartOf", "Unit.Requisite"} & set(read(name))


@pytest.mark.parametrize(("codes", "ended"), [((1, 1, 0), 0), ((1, 78), 78)], ids=["database away", "wrong setting"])
def test_the_schema_waits_for_its_database_and_for_nothing_else(
    codes: tuple[int, ...], ended: int, tmp_path: Path
) -> None:
    unit, runs = read("batchfleet-migrate.service"), tmp_path / "runs"
    program = tmp_path / "batchfleet"
    program.write_text(
        f'#!/bin/sh\necho "$*" >> {runs}\ncase $(wc -l < {runs}) in\n'
        + "".join(f"{run}) exit {code};;\n" for run, code in enumerate(codes, start=1))
        + "esac\n"
    )
    program.chmod(0o755)
    (command,) = unit["Service.ExecStart"]
    # `$$` is systemd's `$`.
    here = command.replace("$$", "$").replace(PROGRAM, str(program)).replace("sleep 5", "true")

    assert subprocess.run(shlex.split(here), check=False).returncode == ended
    assert runs.read_text().splitlines() == ["db upgrade"] * len(codes)
    assert unit["Service.Type"] == ["oneshot"]
    assert unit["Service.TimeoutStartSec"] == ["infinity"]
    assert unit["Service.RestartPreventExitStatus"] == [str(EXIT_CONFIG)]


def test_by_hand_a_command_has_the_settings_of_the_units(tmp_path: Path) -> None:
    """Whatever signs a value has: the file is no shell script."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "batchfleet"
    program.write_text('#!/bin/sh\nenv\nprintf "<%s>" "$@"\n')
    program.chmod(0o755)
    file = tmp_path / "batchfleet.env"
    file.write_text("# A=1\nBATCHFLEET_DATABASE_URL=postgresql+psycopg://a@b/c?x=1&y=$z\n\nBATCHFLEET_DRAIN_S=25")
    user = pwd.getpwuid(os.getuid())
    ours = {"PATH": os.environ["PATH"], "PREFIX": str(tmp_path), "ENVIRONMENT_FILE": str(file), "RUN_AS": user.pw_name}

    ended = subprocess.run(
        ["sh", FOLDER / "batchfleet-run", "batchfleet", "keys", "create", "--name", "a b"],
        env={**ours, "BATCHFLEET_LOG_LEVEL": "debug"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert ended.stdout.endswith("<keys><create><--name><a b>")
    assert {line for line in ended.stdout.splitlines() if line.startswith("BATCHFLEET_")} == {
        "BATCHFLEET_DATABASE_URL=postgresql+psycopg://a@b/c?x=1&y=$z",
        "BATCHFLEET_DRAIN_S=25",
    }
    assert f"HOME={user.pw_dir}" in ended.stdout.splitlines()


def test_stops_are_given_their_time() -> None:
    assert (
        int(read("batchfleet-worker@.service")["Service.TimeoutStopSec"][0])
        >= float(SETTINGS["BATCHFLEET_DRAIN_S"]) + 10
    )
    assert int(read("batchfleet-api.service")["Service.TimeoutStopSec"][0]) > STOP_S


def test_each_worker_has_a_name_of_its_own_that_lasts() -> None:
    assert any("WORKER_NAME=%H-%i" in value for value in read("batchfleet-worker@.service")["Service.Environment"])


@pytest.mark.parametrize("name", UNITS)
def test_units_are_hardened(name: str) -> None:
    unit = read(name)

    for directive in ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "RestrictSUIDSGID"):
        assert unit[f"Service.{directive}"] == ["yes"]
    assert unit["Service.ProtectSystem"] == ["strict"]
    assert unit["Service.CapabilityBoundingSet"] == [""]

"""The command line: quick help, documented exits, errors as messages."""

import json
import subprocess
import sys
from typing import Any

import click
import pytest

from batchfleet import __version__
from batchfleet.cli.main import COMMANDS, cli, main
from batchfleet.client import ConnectionFailedError, NotFoundError, WaitTimeoutError
from batchfleet.client.errors import Problem
from batchfleet.embedded.exits import Exit
from batchfleet.errors import BatchfleetError, ModelNotFoundError

HEAVY = ("numpy", "sqlalchemy", "pydantic", "httpx", "rich", "onnxruntime", "tokenizers", "alembic")


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom batchfleet.cli.main import main\n"
        f"main(['--help']); print([name for name in {HEAVY!r} if name in sys.modules])"
    )

    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert output.splitlines()[-1] == "[]"
    assert all(name in output for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_there_and_begins_with_its_short_text(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)

    assert command is not None
    assert (command.help or "").splitlines()[0] == COMMANDS[name][1]
    assert main([name, "--help"]) == 0


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"batchfleet {__version__}\n"


def test_every_command_speaks_json_and_every_option_has_an_environment_twin() -> None:
    def leaves(command: click.Command, name: str) -> list[tuple[str, click.Command]]:
        if not isinstance(command, click.Group):
            return [(name, command)]
        context = click.Context(command)
        children = ((child, command.get_command(context, child)) for child in command.list_commands(context))
        return [leaf for child, found in children if found for leaf in leaves(found, f"{name} {child}".strip())]

    for name, command in leaves(cli, ""):
        options = [param for param in command.params if isinstance(param, click.Option)]
        assert any("--json" in option.opts for option in options), name
        assert all(option.show_envvar for option in options), name


def test_a_wrong_command_line_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", "m"]) == Exit.USAGE
    assert "give either INPUTS or --file" in capsys.readouterr().err
    assert main(["nonsense"]) == Exit.USAGE


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotFoundError(404, Problem(detail="no such job", code="job_not_found")), Exit.NOT_FOUND),
        (ModelNotFoundError("no model 'x'"), Exit.NOT_FOUND),
        (ConnectionFailedError("nobody"), Exit.UNREACHABLE),
        (WaitTimeoutError(["job_1"]), Exit.TIMEOUT),
        (BatchfleetError("boom"), Exit.FAILED),
    ],
)
def test_errors_become_messages_and_codes(
    error: BatchfleetError, code: Exit, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: Any) -> None:
        raise error

    monkeypatch.setattr(cli, "main", fail)

    assert main(["jobs"]) == code
    assert capsys.readouterr().err == f"batchfleet: {error}\n"
    assert main(["jobs", "--json"]) == code
    assert json.loads(capsys.readouterr().err)["error"]["message"] == str(error)


def test_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "job_1", "--url", "http://127.0.0.1:1"]) == Exit.UNREACHABLE
    assert "http://127.0.0.1:1" in capsys.readouterr().err

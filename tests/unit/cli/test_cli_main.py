"""The command line: quick help, documented exits, errors as messages."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from batchfleet import __version__
from batchfleet.build import offers
from batchfleet.cli.main import COMMANDS, cli, main
from batchfleet.cli.variables import variables_of
from batchfleet.client import (
    ConnectionFailedError,
    ForbiddenError,
    NotFoundError,
    UnauthenticatedError,
    WaitTimeoutError,
)
from batchfleet.client.errors import Problem
from batchfleet.embedded.exits import Exit
from batchfleet.errors import BatchfleetError, ModelNotFoundError
from batchfleet.inference.machine import Cpu
from tests.support.models import build_tiny_encoder

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
        assert all(option.help for option in options), name


def test_variables_are_called_like_their_options() -> None:
    def options(command: click.Command, context: click.Context) -> Iterator[tuple[str, list[str]]]:
        for param in command.params:
            if isinstance(param, click.Option) and param.opts != ["--version"]:
                yield param.opts[0], variables_of(param, context)
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                assert child is not None
                yield from options(child, click.Context(child, info_name=name, parent=context))

    for option, variables in options(cli, click.Context(cli, auto_envvar_prefix="BATCHFLEET")):
        suffix = option.removeprefix("--").replace("-", "_").upper()
        assert variables, option
        assert all(variable.endswith(f"_{suffix}") for variable in variables), (option, variables)


def test_a_wrong_command_line_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", "m"]) == Exit.USAGE
    assert "give either INPUTS or --file" in capsys.readouterr().err
    assert main(["nonsense"]) == Exit.USAGE


@pytest.mark.parametrize(
    ("arguments", "meant"), [(["sumbit"], "submit"), (["webhooks", "lits"], "list"), (["db", "upgrad"], "upgrade")]
)
def test_a_misspelt_command_is_answered_with_the_one_meant(
    capsys: pytest.CaptureFixture[str], arguments: list[str], meant: str
) -> None:
    assert main(arguments) == Exit.USAGE
    assert f"did you mean {meant}?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotFoundError(404, Problem(detail="no such job", code="job_not_found")), Exit.NOT_FOUND),
        (ModelNotFoundError("no model 'x'"), Exit.NOT_FOUND),
        (ConnectionFailedError("nobody"), Exit.UNREACHABLE),
        (WaitTimeoutError(["job_1"]), Exit.TIMEOUT),
        (ForbiddenError(403, Problem(detail="no", code="forbidden")), Exit.DENIED),
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


def test_who_has_no_key_is_told_where_one_comes_from(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: Any) -> None:
        raise UnauthenticatedError(401, Problem(detail="no key", code="unauthenticated"))

    monkeypatch.setattr(cli, "main", fail)

    assert main(["jobs"]) == Exit.DENIED
    assert "BATCHFLEET_API_KEY or --api-key" in capsys.readouterr().err


def test_ctrl_c_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(**_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "main", interrupted)

    assert main(["jobs"]) == Exit.INTERRUPTED
    assert capsys.readouterr().err == "batchfleet: interrupted\n"
    assert main(["jobs", "--json"]) == Exit.INTERRUPTED
    assert json.loads(capsys.readouterr().err)["error"]["code"] == "interrupted"


def test_a_key_that_no_header_can_hold_is_refused_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BATCHFLEET_API_KEY", "hunter2\n")

    assert main(["jobs"]) == Exit.USAGE
    assert capsys.readouterr().err == "batchfleet jobs: BATCHFLEET_API_KEY: a key is printable ASCII\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_completion_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == Exit.OK
    script = capsys.readouterr().out
    assert f"_BATCHFLEET_COMPLETE={shell}_complete" in script
    assert main(["completion", shell, "--json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out) == {"shell": shell, "script": script.removesuffix("\n")}
    assert main(["completion", "tcsh"]) == Exit.USAGE


def test_models_are_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build_tiny_encoder(tmp_path)
    command = ["models", "verify", "--models-url", str(tmp_path)]

    assert main(command) == Exit.OK
    assert "tiny  1        as published" in capsys.readouterr().out
    assert main([*command, "nobody"]) == Exit.NOT_FOUND
    capsys.readouterr()

    graph = next(tmp_path.rglob("*.onnx"))
    graph.write_bytes(graph.read_bytes()[:-1])

    assert main([*command, "tiny", "--json"]) == Exit.FAILED
    (model,) = json.loads(capsys.readouterr().out)["models"]
    assert graph.name in model["error"]


def test_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "job_1", "--url", "http://127.0.0.1:1"]) == Exit.UNREACHABLE
    said = capsys.readouterr().err
    assert "no fleet answers at http://127.0.0.1:1" in said
    assert "is `batchfleet up` running?" in said


USER_ERRORS: list[tuple[list[str], dict[str, str], Exit, str]] = [
    (["models", "list", "--models-url", "s3://b/x"], {}, Exit.USAGE, "--models-url: must be file:///folder"),
    (["models", "list"], {"BATCHFLEET_MODELS_URL": "s3://b/x"}, Exit.USAGE, "BATCHFLEET_MODELS_URL: must be"),
    (["models", "build-demo", "--models-url", "file://host/x"], {}, Exit.USAGE, "--models-url: must be file"),
    (["db", "upgrade", "--database-url", "mysql://x"], {}, Exit.USAGE, "--database-url: must be sqlite"),
    (["db", "upgrade"], {"BATCHFLEET_DATABASE_URL": "mysql://x"}, Exit.USAGE, "BATCHFLEET_DATABASE_URL: must be"),
    (["db", "upgrade", "--database-url", "sqlite:///:memory:"], {}, Exit.USAGE, "--database-url: must name a file"),
    (["db", "upgrade", "--database-url", "sqlite:////proc/x/y.db"], {}, Exit.FAILED, "/proc/x/y.db"),
    (["result", "j", "--output", "/nonexistent/x.npy"], {}, Exit.USAGE, "--output: there is no folder"),
    (["submit", "m", "--file", "/nonexistent/x"], {}, Exit.USAGE, "--file"),
    (["up", "--data-dir", "/proc/x"], {}, Exit.USAGE, "--data-dir (BATCHFLEET_DATA_DIR) /proc/x cannot be used"),
    (
        ["up", "--host", "0.0.0.0"],  # noqa: S104
        {"BATCHFLEET_REQUIRE_KEYS": "false"},
        Exit.CONFIG,
        "--host (BATCHFLEET_API_HOST) 0.0.0.0",
    ),
    (["up", "--data-dir", "/proc/x"], {"BATCHFLEET_DATABASE_URL": "mysql://x"}, Exit.CONFIG, "BATCHFLEET_DATABASE_URL"),
    (
        ["up", "--data-dir", "/proc/x"],
        {"BATCHFLEET_DATABASE_URL": "sqlite:///"},
        Exit.CONFIG,
        "BATCHFLEET_DATABASE_URL",
    ),
    (["up", "--port", "70000"], {}, Exit.USAGE, "--port: 70000"),
    (["jobs", "--url", "nowhere"], {}, Exit.USAGE, "--url: 'nowhere' is no URL"),
    (["bench", "--url", "nowhere"], {}, Exit.USAGE, "--url: 'nowhere' is no URL"),
]


@pytest.mark.parametrize(("arguments", "environment", "code", "says"), USER_ERRORS)
def test_what_a_user_got_wrong_is_told_in_a_line(
    arguments: list[str],
    environment: dict[str, str],
    code: Exit,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert main(arguments) == code
    said = capsys.readouterr()
    assert says in said.err
    assert said.err.count("\n") == 1
    assert main([*arguments, "--json"]) == code
    said = capsys.readouterr()
    error = json.loads(said.err)["error"]
    assert says in error["message"]
    assert error["code"]
    assert said.out == ""


def test_json_is_also_asked_for_by_the_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BATCHFLEET_JSON", "1")

    assert main(["submit", "m"]) == Exit.USAGE
    assert json.loads(capsys.readouterr().err)["error"]["code"] == "usage"


def test_a_repository_can_be_named_by_its_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "list", "--models-url", str(tmp_path)]) == Exit.OK
    assert capsys.readouterr().out.startswith(f"no models in {tmp_path} ")

    build_tiny_encoder(tmp_path)

    assert main(["models", "list", "--models-url", str(tmp_path), "--json"]) == Exit.OK
    (model,) = json.loads(capsys.readouterr().out)["models"]
    assert (model["name"], model["versions"], model["task"]) == ("tiny", ["1"], "embed")
    assert set(model["skipped"]) < set(model["variants"])


def test_a_variant_for_other_machines_does_not_read_like_a_defect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    build_tiny_encoder(tmp_path)
    amd = Cpu(machine="x86_64", model="AMD EPYC", flags=frozenset({"avx512_vnni", "avx512_bf16"}))
    monkeypatch.setattr(offers, "read_cpu", lambda: amd)
    monkeypatch.setitem(sys.modules, "onnxruntime_ep_openvino", None)  # as on that machine: not installed

    assert main(["models", "list", "--models-url", str(tmp_path)]) == Exit.OK
    assert "openvino-bf16 needs an Intel CPU with bf16 instructions: skipped" in capsys.readouterr().out
    assert main(["models", "show", "tiny", "--models-url", str(tmp_path)]) == Exit.OK
    assert "needs an Intel CPU with bf16 instructions: skipped" in capsys.readouterr().out

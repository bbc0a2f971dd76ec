"""The entry point: finds the command, runs it, and turns errors into messages and exit codes."""

import importlib
import json
import sys
from collections.abc import Mapping, Sequence

import click

import batchfleet
from batchfleet.embedded.exits import Exit
from batchfleet.errors import BatchfleetError

COMMANDS: Mapping[str, tuple[str, str]] = {
    "up": ("batchfleet.cli.fleet:up", "Run a whole fleet on this machine."),
    "demo": ("batchfleet.cli.fleet:demo", "Show it working: real model, real texts, measured."),
    "bench": ("batchfleet.cli.fleet:bench", "Compare the fleet with the best in-process loop."),
    "api": ("batchfleet.cli.services:api", "Run one API process."),
    "worker": ("batchfleet.cli.services:worker", "Run one worker process."),
    "scheduler": ("batchfleet.cli.services:scheduler", "Run one scheduler process."),
    "submit": ("batchfleet.cli.jobs:submit", "Submit a job, or one job a line of a file."),
    "status": ("batchfleet.cli.jobs:status", "Show where jobs stand."),
    "result": ("batchfleet.cli.jobs:result", "Fetch a job's result."),
    "cancel": ("batchfleet.cli.jobs:cancel", "Cancel jobs."),
    "jobs": ("batchfleet.cli.jobs:jobs", "List jobs, newest first."),
    "models": ("batchfleet.cli.models:models", "List, show and build models."),
    "db": ("batchfleet.cli.db:db", "Look after the database."),
}
"""Where each command lives and what it is for: `--help` needs no more, so it imports none of them."""


class LazyGroup(click.Group):
    """Imports a command's module when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Returns the names in the order of use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Imports and returns a command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Lists the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"auto_envvar_prefix": "BATCHFLEET", "help_option_names": ["-h", "--help"]},
    epilog="Begin with `batchfleet demo`, go on with `batchfleet up`. Every option can be set by an environment "
    "variable (shown in the command's --help). Exit codes: docs/reference/cli.md.",
)
@click.version_option(batchfleet.__version__, prog_name="batchfleet", message="%(prog)s %(version)s")
def cli() -> None:
    """A message-queue-driven, asynchronous inference worker fleet."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        code = cli.main(args=list(arguments), prog_name="batchfleet", standalone_mode=False)
    except click.exceptions.Abort:
        return Exit.INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except BatchfleetError as error:
        _tell(error, as_json="--json" in arguments)
        return code_of(error)
    except BrokenPipeError:  # the reader (`| head`) has seen enough
        sys.stdout = None  # or the interpreter would complain once more at its exit
        return Exit.OK
    return code if isinstance(code, int) else Exit.OK


def code_of(error: BatchfleetError) -> Exit:
    """Returns the exit code that an error means."""
    by_name = {
        "NotFoundError": Exit.NOT_FOUND,
        "ModelNotFoundError": Exit.NOT_FOUND,
        "ConnectionFailedError": Exit.UNREACHABLE,
        "WaitTimeoutError": Exit.TIMEOUT,
    }
    # By name: importing the client's errors for this would make every `--help` pay for it.
    return by_name.get(type(error).__name__, Exit.FAILED)


def _tell(error: BatchfleetError, *, as_json: bool) -> None:
    code = getattr(error, "error_code", "") or error.code
    if as_json:
        print(json.dumps({"error": {"code": code, "message": str(error)}}), file=sys.stderr)
    else:
        print(f"batchfleet: {error}", file=sys.stderr)

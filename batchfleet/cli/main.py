"""The entry point: finds the command, runs it, and turns errors into messages and exit codes."""

import importlib
import os
import sys
from collections.abc import Mapping, Sequence

import click
from click.core import ParameterSource

import batchfleet
from batchfleet.cli.suggesting import SuggestingGroup
from batchfleet.cli.variables import variables_of
from batchfleet.embedded.exits import Exit
from batchfleet.embedded.telling import tell_error, words_of
from batchfleet.errors import BatchfleetError, InvalidRequestError

_TRUE = frozenset({"1", "true", "t", "yes", "y", "on"})

COMMANDS: Mapping[str, tuple[str, str]] = {
    "up": ("batchfleet.cli.fleet:up", "Run a whole fleet on this machine."),
    "demo": ("batchfleet.cli.fleet:demo", "Show it working: real model, real texts, measured."),
    "bench": ("batchfleet.cli.fleet:bench", "Compare the fleet with the best in-process loop."),
    "api": ("batchfleet.cli.services:api", "Run one API process."),
    "worker": ("batchfleet.cli.services:worker", "Run one worker process."),
    "scheduler": ("batchfleet.cli.services:scheduler", "Run one scheduler process."),
    "healthy": ("batchfleet.cli.healthy:healthy", "Ask whether a process of this machine is well."),
    "submit": ("batchfleet.cli.submit:submit", "Submit a job, or one job a line of a file."),
    "status": ("batchfleet.cli.jobs:status", "Show where jobs stand."),
    "result": ("batchfleet.cli.jobs:result", "Fetch a job's result."),
    "cancel": ("batchfleet.cli.jobs:cancel", "Cancel jobs."),
    "delete": ("batchfleet.cli.jobs:delete", "Remove jobs that have ended, with their results."),
    "jobs": ("batchfleet.cli.jobs:jobs", "List jobs, newest first."),
    "models": ("batchfleet.cli.models:models", "List, show, copy, verify and build models, and what is learned."),
    "keys": ("batchfleet.cli.keys:keys", "Make, list and revoke API keys."),
    "tenants": ("batchfleet.cli.tenants:tenants", "List, show and change tenants."),
    "webhooks": ("batchfleet.cli.webhooks:webhooks", "Look at deliveries, repeat them, change signing secrets."),
    "db": ("batchfleet.cli.db:db", "Look after the database."),
    "doctor": ("batchfleet.cli.doctor:doctor", "Check each part with the settings of the environment."),
    "completion": ("batchfleet.cli.completion:completion", "Print the completion script for a shell."),
}
"""Where each command lives and what it is for: `--help` needs no more, so it imports none of them."""


class LazyGroup(SuggestingGroup):
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
    as_json = _wants_json(arguments)
    try:
        code = cli.main(args=list(arguments), prog_name="batchfleet", standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt):
        tell_error("interrupted", code="interrupted", as_json=as_json)
        return Exit.INTERRUPTED
    except click.ClickException as error:
        _tell_usage(error, as_json=as_json)
        return error.exit_code
    except BatchfleetError as error:
        tell_error(_words_for(error), code=error.code, as_json=as_json)
        return code_of(error)
    except BrokenPipeError:  # the reader (`| head`) has seen enough
        sys.stdout = None  # or the interpreter would complain once more at its exit
        return Exit.OK
    except OSError as error:  # a folder that is not ours, a full disk: the user's to mend, a traceback would not help
        tell_error(words_of(error), code="system_error", as_json=as_json)
        return Exit.FAILED
    return code if isinstance(code, int) else Exit.OK


def code_of(error: BatchfleetError) -> Exit:
    """Returns the exit code that an error means."""
    by_name = {
        "NotFoundError": Exit.NOT_FOUND,
        "ModelNotFoundError": Exit.NOT_FOUND,
        "UnauthenticatedError": Exit.DENIED,
        "ForbiddenError": Exit.DENIED,
        "ConnectionFailedError": Exit.UNREACHABLE,
        "ClientConfigError": Exit.USAGE,
        "SettingsError": Exit.CONFIG,
        "WaitTimeoutError": Exit.TIMEOUT,
    }
    # By name: importing the client's errors for this would make every `--help` pay for it.
    return by_name.get(type(error).__name__, Exit.FAILED)


def _words_for(error: BatchfleetError) -> str:
    """Returns what a person reads: what went wrong and, where that is not obvious, what to do."""
    if type(error).__name__ == "UnauthenticatedError":
        return f"{error}; give a key by BATCHFLEET_API_KEY or --api-key (`batchfleet keys create` makes one)"
    field = error.field if isinstance(error, InvalidRequestError) else None
    return f"{field}: {error}" if field else str(error)


def _tell_usage(error: click.ClickException, *, as_json: bool) -> None:
    """A wrong value is told in one line, with the option or variable that it came from; the rest as click does."""
    wrong_value = isinstance(error, click.BadParameter) and not isinstance(error, click.MissingParameter)
    if as_json or wrong_value:
        message = (
            _wrong_value(error) if isinstance(error, click.BadParameter) and wrong_value else error.format_message()
        )
        who = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "batchfleet"
        tell_error(message, code="usage", as_json=as_json, who=who)
    else:
        error.show()


def _wrong_value(error: click.BadParameter) -> str:
    option, context = error.param, error.ctx
    if isinstance(option, click.Option) and context is not None and option.name is not None:
        from_environment = context.get_parameter_source(option.name) is ParameterSource.ENVIRONMENT
        variables = variables_of(option, context) if from_environment else []
        return f"{variables[0] if variables else option.opts[0]}: {error.message}"
    return f"{error.param_hint}: {error.message}" if isinstance(error.param_hint, str) else error.format_message()


def _wants_json(arguments: Sequence[str]) -> bool:
    return "--json" in arguments or os.environ.get("BATCHFLEET_JSON", "").lower() in _TRUE

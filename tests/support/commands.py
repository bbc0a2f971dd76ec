"""Whether a command line of ours could be run: parsed by the program itself, not run."""

from collections.abc import Mapping, Sequence

import click
import pytest

from batchfleet.cli.main import cli
from batchfleet.cli.variables import unknown_variables


def check_command(words: Sequence[str]) -> None:
    """Parses the arguments of `batchfleet`, its callbacks included.

    Raises:
        AssertionError: If it is no such command line.
    """
    command: click.Command = cli
    context = click.Context(cli, info_name="batchfleet", auto_envvar_prefix="BATCHFLEET")
    rest = list(words)
    while isinstance(command, click.Group):
        assert rest, f"no command: {words}"
        found = command.get_command(context, rest[0])
        assert found is not None, f"no such command: {words}"
        command, context = found, click.Context(found, info_name=rest.pop(0), parent=context)
    try:
        command.make_context(command.name, rest, parent=context.parent)
    except click.ClickException as error:
        raise AssertionError(f"{words}: {error.format_message()}") from error


def use_environment(monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str]) -> None:
    """Makes the environment's settings these, and checks that each means something."""
    assert list(unknown_variables(environment)) == []
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

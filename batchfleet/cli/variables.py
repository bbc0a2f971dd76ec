"""Which `BATCHFLEET_*` variables and secret files mean something, and a warning for those that do not."""

import difflib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from batchfleet.lifecycle import PARENT_FD_VARIABLE

PREFIX = "BATCHFLEET_"
TEST_PREFIX = "BATCHFLEET_TEST_"
OTHERS = frozenset({PARENT_FD_VARIABLE, "BATCHFLEET_API_KEY", "BATCHFLEET_DEMO_WHEEL"})
"""Neither a setting nor an option: set by a supervisor, read by the client, read by the model's build."""


def warn_of_unknown_variables(who: str, environ: Mapping[str, str] = os.environ) -> None:
    """Says on stderr which variables and secret files mean nothing: most likely they are misspelt, and are missed."""
    for name, nearest in unknown_variables(environ):
        hint = f"; did you mean {nearest}?" if nearest else ""
        print(f"{who}: warning: there is no setting {name}, it is ignored{hint}", file=sys.stderr, flush=True)
    for path, nearest in unread_secrets(environ):
        hint = f"; did you mean {nearest}?" if nearest else ""
        print(f"{who}: warning: no setting reads the file {path}{hint}", file=sys.stderr, flush=True)


def unknown_variables(environ: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
    """Yields the name of each variable that means nothing, and the known name that is nearest, if one is near."""
    names = [name for name in environ if name.startswith(PREFIX) and not name.startswith(TEST_PREFIX)]
    left = [name for name in sorted(names) if name not in OTHERS]
    if not left:
        return
    known = settings_variables()
    if any(name not in known for name in left):  # only now: all commands must be imported for it
        known |= option_variables()
    for name in left:
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known | OTHERS), n=1, cutoff=0.8)
            yield name, near[0] if near else None


def unread_secrets(environ: Mapping[str, str]) -> Iterator[tuple[Path, str | None]]:
    """Yields each file of the secrets folder that looks like one of ours and is none, and the name that is nearest.

    It looks like one if it begins like one, or is called like a setting without the prefix: others may keep files of
    their own in that folder. A folder that cannot be read is told of where the settings are read.
    """
    from batchfleet.settings import SettingsError, secrets_folder  # noqa: PLC0415 - not for `--help`

    try:
        folder = secrets_folder(environ)
        files = sorted(path for path in folder.iterdir() if path.is_file()) if folder else []
    except (OSError, SettingsError):
        return
    prefix = PREFIX.lower()
    known = {name.lower() for name in settings_variables()}
    for path in files:
        name = path.name.lower()
        meant = name if name.startswith(prefix) else prefix + name
        if name not in known and (name.startswith(prefix) or meant in known):
            near = difflib.get_close_matches(meant, sorted(known), n=1, cutoff=0.8)
            yield path, near[0] if near else None


def settings_variables() -> frozenset[str]:
    """Returns the variables of all settings."""
    from batchfleet.settings import Settings  # noqa: PLC0415 - not for `--help`

    return frozenset(f"{PREFIX}{name.upper()}" for name in Settings.model_fields)


def option_variables() -> frozenset[str]:
    """Returns the variables of the options of all commands."""
    from batchfleet.cli.main import cli  # noqa: PLC0415 - it imports this package's commands

    context = click.Context(cli, auto_envvar_prefix="BATCHFLEET")
    return frozenset(_variables(cli, context))


def _variables(command: click.Command, context: click.Context) -> Iterator[str]:
    for option in command.params:
        if isinstance(option, click.Option):
            yield from variables_of(option, context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None:
                yield from _variables(child, click.Context(child, info_name=name, parent=context))


def variables_of(option: click.Option, context: click.Context) -> list[str]:
    """Returns the variables that set an option."""
    if option.envvar is not None:
        return [option.envvar] if isinstance(option.envvar, str) else list(option.envvar)
    if option.allow_from_autoenv and context.auto_envvar_prefix and option.name:
        return [f"{context.auto_envvar_prefix}_{option.name.upper()}"]
    return []

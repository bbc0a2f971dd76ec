"""Options that several commands share, and how they print."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

import click
import msgspec

from batchfleet.cli.complete import job_ids, model_names
from batchfleet.cli.running import running_url, up_database
from batchfleet.client import Client
from batchfleet.client.client import DEFAULT_URL, KEY_VARIABLE, URL_VARIABLE
from batchfleet.client.errors import ClientConfigError
from batchfleet.client.transport import check_url
from batchfleet.client.values import JobFailure
from batchfleet.embedded.telling import tell_error
from batchfleet.errors import InvalidRequestError

as_json_option = click.option(
    "--json",
    "as_json",
    is_flag=True,
    envvar="BATCHFLEET_JSON",
    show_envvar=True,
    help="Print JSON on stdout and nothing else there.",
)


def checked_url(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """Callback: lets the URL of a fleet pass."""
    if value is not None:
        try:
            check_url(value)
        except ClientConfigError as error:
            raise click.BadParameter(str(error)) from None
    return value


def _fleet_url(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    return checked_url(ctx, param, value or running_url() or DEFAULT_URL)


def _usable_key(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """The message must not show it."""
    if value and not (value.isascii() and value.isprintable()):
        raise click.BadParameter("a key is printable ASCII")
    return value or None


url_option = click.option(
    "--url",
    envvar=URL_VARIABLE,
    callback=_fleet_url,
    show_default=f"that of the running `batchfleet up`, else {DEFAULT_URL}",
    show_envvar=True,
    help="Where the fleet answers.",
)
api_key_option = click.option(
    "--api-key",
    envvar=KEY_VARIABLE,
    callback=_usable_key,
    show_envvar=True,
    metavar="KEY",
    help="The API key; better in the environment: others on this machine can read command lines.",
)
model_argument = click.argument("model", shell_complete=model_names)
job_argument = click.argument("job_id", shell_complete=job_ids)
jobs_argument = click.argument("ids", nargs=-1, required=True, shell_complete=job_ids)

_PATIENCE_S = 1.0
"""After so long a command says what it waits for."""

Command = TypeVar("Command", bound=Callable[..., Any])


def fleet_options(command: Command) -> Command:
    """Adds what every command has that asks a fleet: `--url`, `--api-key` and `--json`."""
    return url_option(api_key_option(as_json_option(command)))


@contextmanager
def fleet(url: str, api_key: str | None) -> Iterator[Client]:
    """Opens a client of the fleet that a command was told of. What it waits for it says, without `--json`."""
    context = click.get_current_context(silent=True)
    quiet = context is not None and bool(context.params.get("as_json"))
    with Client(url, api_key, on_retry=None if quiet else _TellsRetries()) as client:
        yield client


class _TellsRetries:
    """Says on stderr that, and why, a request is tried again: each reason once, and not of a hiccup."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def __call__(self, error: Exception, waited_s: float) -> None:
        """Takes the reason for the next try, and how long the caller will have waited for an answer by then."""
        why = str(error)
        if waited_s >= _PATIENCE_S and why not in self._told:
            self._told.add(why)
            tell_error(f"still trying: {why}", code="retrying", as_json=False)


def database_option(*, required: bool = False) -> Callable[[Command], Command]:
    """Returns the option `--database-url`; without it and its variable, that of `batchfleet up` is taken.

    Args:
        required: Whether the database of `batchfleet up` is no choice.
    """
    return click.option(
        "--database-url",
        envvar="BATCHFLEET_DATABASE_URL",
        required=required,
        callback=_usable_database,
        show_envvar=True,
        show_default=None if required else "the database of `batchfleet up`",
        help="For example sqlite:////var/lib/batchfleet/batchfleet.db or postgresql+psycopg://…",
    )


def _usable_database(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    from batchfleet.embedded.database import require_usable_database  # noqa: PLC0415 - not for `--help`

    if value is None:
        value = up_database()
        if value is None:
            raise click.MissingParameter("no fleet was run in the data folder", ctx=ctx, param=param)
    url = str(checked_setting("database_url")(ctx, param, value))
    try:
        require_usable_database(url)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return url


@contextmanager
def told_as_options(**options: str) -> Iterator[None]:
    """Turns a refusal of a value into one of the option that it came from, by the refused field's name."""
    try:
        yield
    except InvalidRequestError as error:
        field = (error.field or "").partition("[")[0]
        if field not in options:
            raise
        raise click.BadParameter(str(error), param_hint=options[field]) from None


def checked_setting(field: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Returns a callback that checks an option as the setting of that name is, and completes it by the secrets."""

    def check(_ctx: click.Context, _param: click.Parameter, value: Any) -> Any:
        from pydantic import ValidationError  # noqa: PLC0415 - with the next one: not for `--help`

        from batchfleet.settings import Settings  # noqa: PLC0415

        if value is None:
            return None
        try:
            return getattr(Settings(**{field: value}), field)
        except ValidationError as error:
            for wrong in error.errors(include_url=False, include_input=False):
                if wrong["loc"][:1] == (field,):  # others are none of this command's business
                    raise click.BadParameter(str(wrong["msg"]).removeprefix("Value error, ")) from None
        return value

    return check


def print_json(value: Any) -> None:
    """Prints one JSON document on one line. Times are RFC 3339; members of structs that do not apply are left out."""
    print(json.dumps(msgspec.to_builtins(value, enc_hook=str)), flush=True)


def time_of(moment: datetime | None) -> str:
    """Returns a time in RFC 3339, nothing where there is none."""
    return str(msgspec.to_builtins(moment)) if moment is not None else ""


def moment_of(seconds: float | None) -> datetime | None:
    """Returns the time that Unix seconds mean."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def reason_of(failure: JobFailure | None) -> str:
    """Returns why a job has no result, in one line; nothing where nothing is wrong."""
    if failure is None:
        return ""
    subject = f"{failure.field}: " if failure.field else ""
    return f"{failure.code}: {subject}{failure.message}"


def print_table(header: Sequence[str] | None, rows: Sequence[Sequence[object]]) -> None:
    """Prints aligned columns; the last one as wide as it likes."""
    cells = [tuple("" if cell is None else str(cell) for cell in row) for row in rows]
    if header is not None:
        cells.insert(0, tuple(header))
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def progress_line(done: int, of: int | None, what: str) -> None:
    """Shows how far it is, on a terminal only: a log has no use for it."""
    if sys.stderr.isatty():
        total = f" of {of}" if of else ""
        print(f"\r{done}{total} {what}", end="", file=sys.stderr, flush=True)


def end_progress() -> None:
    """Ends the line of `progress_line`."""
    if sys.stderr.isatty():
        print(file=sys.stderr)

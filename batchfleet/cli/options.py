"""Options that several commands share, and how they print."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from batchfleet.client.client import DEFAULT_URL, URL_VARIABLE
from batchfleet.client.errors import ClientConfigError
from batchfleet.client.transport import check_url
from batchfleet.client.values import JobFailure

DATA_DIR_VARIABLE = "BATCHFLEET_DATA_DIR"

as_json_option = click.option(
    "--json",
    "as_json",
    is_flag=True,
    envvar="BATCHFLEET_JSON",
    show_envvar=True,
    help="Print JSON on stdout and nothing else there.",
)


def data_dir() -> Path:
    """Returns the data folder of `batchfleet up`, where nothing else is said."""
    return Path.home() / ".batchfleet"


def checked_url(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """Callback: lets the URL of a fleet pass."""
    if value is not None:
        try:
            check_url(value)
        except ClientConfigError as error:
            raise click.BadParameter(str(error)) from None
    return value


def _fleet_url(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    return checked_url(ctx, param, value or _running_url() or DEFAULT_URL)


def _running_url() -> str | None:
    """The fleet of the data folder says where it answers; what cannot be read says nothing."""
    folder = os.environ.get(DATA_DIR_VARIABLE)
    try:
        info = json.loads(((Path(folder) if folder else data_dir()) / "stack.json").read_bytes())
        return str(info["url"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


url_option = click.option(
    "--url",
    envvar=URL_VARIABLE,
    callback=_fleet_url,
    show_default=f"that of the running `batchfleet up`, else {DEFAULT_URL}",
    show_envvar=True,
    help="Where the fleet answers.",
)


def checked_setting(field: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Returns a callback that checks an option as the setting of that name is checked."""

    def check(_ctx: click.Context, _param: click.Parameter, value: Any) -> Any:
        from pydantic import ValidationError  # noqa: PLC0415 - with the next one: not for `--help`

        from batchfleet.settings import Settings  # noqa: PLC0415

        if value is None:
            return None
        try:
            Settings(**{field: value})
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


def reason_of(failure: JobFailure | None) -> str:
    """Returns why a job has no result, in one line; nothing where nothing is wrong."""
    return f"{failure.code}: {failure.message}" if failure else ""


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Prints aligned columns; the last one as wide as it likes."""
    cells = [tuple(header), *(tuple("" if cell is None else str(cell) for cell in row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
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

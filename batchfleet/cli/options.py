"""Options that several commands share, and how they print."""

import json
import sys
from collections.abc import Sequence
from typing import Any

import click

from batchfleet.client.client import DEFAULT_URL, URL_VARIABLE

as_json_option = click.option(
    "--json",
    "as_json",
    is_flag=True,
    envvar="BATCHFLEET_JSON",
    show_envvar=True,
    help="Print JSON on stdout and nothing else there.",
)
url_option = click.option(
    "--url",
    envvar=URL_VARIABLE,
    default=DEFAULT_URL,
    show_default=True,
    show_envvar=True,
    help="Where the fleet answers.",
)


def print_json(value: Any) -> None:
    """Prints one JSON document on one line."""
    print(json.dumps(value, default=str), flush=True)


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

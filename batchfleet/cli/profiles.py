"""`batchfleet models profile`: what the fleet has learned of a model, from the database itself."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from batchfleet.batching.ceilings import Ceiling
from batchfleet.cli.options import as_json_option, database_option, print_json, print_table
from batchfleet.errors import ModelNotFoundError
from batchfleet.profiles.port import Profile, ProfileKey, ProfileStore, Rate


@contextmanager
def _profiles(database_url: str) -> Iterator[ProfileStore]:
    from batchfleet.profiles.sql import SqlProfiles  # noqa: PLC0415 - not for `--help`

    store = SqlProfiles(database_url)
    try:
        yield store
    finally:
        store.close()


@click.command()
@click.argument("name")
@click.option("--version", "version", show_envvar=True, help="Default: all that any worker has run.")
@database_option()
@as_json_option
def profile(name: str, version: str | None, database_url: str, as_json: bool) -> None:
    """Show what the fleet has learned of model NAME.

    For each version, variant and device: what its work has cost lately, what passes cost by rows and padded length,
    and how many rows memory has been seen to hold. Exits 8 if no worker has run it.
    """
    with _profiles(database_url) as store:
        found = store.find(name, version)
    if not found:
        which = f"{name}{f' {version}' if version else ''}"
        raise ModelNotFoundError(f"no worker has run {which} yet (`batchfleet models list` says what models there are)")
    if as_json:
        print_json({"profiles": [_shown(key, known) for key, known in found]})
    else:
        for key, known in found:
            _print(key, known)


def _binding(known: Profile) -> Sequence[Ceiling]:
    """Returns the ceilings as they are now."""
    return known.ceilings.regrown(known.now).known


def _shown(key: ProfileKey, known: Profile) -> dict[str, Any]:
    return {
        "model": key.model,
        "version": key.version,
        "variant": key.variant,
        "device": key.device,
        "told_s_ago": known.told_s,
        "rate": {
            "items": known.rate.items,
            "input_bytes": known.rate.input_bytes,
            "seconds": known.rate.seconds,
            "items_per_s": _a_second(known.rate),
        },
        "costs": [
            {"rows": cost.count, "length": cost.length, "seconds": cost.seconds, "passes": cost.weight}
            for cost in known.costs
        ],
        "ceilings": [{"length": ceiling.length, "rows": ceiling.rows} for ceiling in _binding(known)],
    }


def _a_second(rate: Rate) -> float | None:
    return rate.items / rate.seconds if rate.seconds > 0 else None


def _print(key: ProfileKey, known: Profile) -> None:
    speed = _a_second(known.rate)
    told = "no work yet" if speed is None else f"{speed:.0f} items a second of device time"
    print(f"{key.model}/{key.version} {key.variant} on {key.device}: {told}, told {known.told_s or 0:.0f} s ago")
    lengths = sorted({cost.length for cost in known.costs})
    rows = sorted({cost.count for cost in known.costs})
    seconds = {(cost.length, cost.count): f"{cost.seconds * 1e3:.1f} ({cost.weight:.3g})" for cost in known.costs}
    if known.costs:
        table = [(length, *(seconds.get((length, count), "") for count in rows)) for length in lengths]
        print_table(("LENGTH", *(f"{count} ROW{'S' if count > 1 else ''}, MS (PASSES)" for count in rows)), table)
    for ceiling in _binding(known):
        print(f"from length {ceiling.length} on, memory holds {ceiling.rows} rows")

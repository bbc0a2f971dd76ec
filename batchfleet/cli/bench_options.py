"""The options of `batchfleet bench` that say what to measure; each becomes a field of `BenchSpec`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from batchfleet.cli.options import checked_url
from batchfleet.embedded.bench.spec import LaneMix, Lengths, parse_loads, parse_scenarios

Command = TypeVar("Command", bound=Callable[..., Any])


def _read_by(parse: Callable[[str], object]) -> Callable[[click.Context, click.Parameter, str], object]:
    """Returns a callback that reads an option's text, and tells of what is wrong with it as of the option."""

    def read(_ctx: click.Context, _param: click.Parameter, value: str) -> object:
        try:
            return parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return read


_OPTIONS = (
    click.option(
        "--scenario",
        "scenarios",
        envvar="BATCHFLEET_BENCH_SCENARIO",
        default="bulk",
        callback=_read_by(parse_scenarios),
        show_default=True,
        show_envvar=True,
        help="Some of bulk, requests, idle, load, mixed, overload, comma-separated; or all.",
    ),
    click.option(
        "--texts", type=click.IntRange(100), default=10_000, show_default=True, show_envvar=True, help="Texts a round."
    ),
    click.option(
        "--rounds",
        type=click.IntRange(1),
        default=3,
        show_default=True,
        show_envvar=True,
        help="How often loop and fleet take turns, in bulk and requests.",
    ),
    click.option(
        "--callers",
        type=click.IntRange(1, 4096),
        default=64,
        show_default=True,
        show_envvar=True,
        help="Callers at once in requests.",
    ),
    click.option(
        "--duration",
        "duration_s",
        envvar="BATCHFLEET_BENCH_DURATION",
        type=click.FloatRange(0.1, 3600),
        default=10.0,
        show_default=True,
        show_envvar=True,
        help="Seconds of idle, of each load, of each half of mixed, and of overload.",
    ),
    click.option(
        "--loads",
        default="0.3,0.5,0.7,0.9,1.0",
        callback=_read_by(parse_loads),
        show_default=True,
        show_envvar=True,
        help="Offered loads of load, as shares of the peak.",
    ),
    click.option(
        "--lane-mix",
        default="online=1",
        callback=_read_by(LaneMix.parse),
        show_default=True,
        show_envvar=True,
        metavar="LANE=SHARE,…",
        help="Lanes of the requests of requests, load and overload.",
    ),
    click.option(
        "--lengths",
        default="lognormal:40:0.8",
        callback=_read_by(Lengths.parse),
        show_default=True,
        show_envvar=True,
        metavar="lognormal:MEAN[:SIGMA]",
        help="Lengths of the texts, in tokens.",
    ),
    click.option(
        "--texts-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        show_envvar=True,
        help="Texts of your own, one a line, instead.",
    ),
    click.option("--variant", show_envvar=True, help="Build of the model; default: the fastest here."),
    click.option(
        "--seed",
        type=click.IntRange(0),
        default=7,
        show_default=True,
        show_envvar=True,
        help="Of texts, arrivals and lanes.",
    ),
    click.option(
        "--svg",
        type=click.Path(dir_okay=False, writable=True, path_type=Path),
        show_envvar=True,
        help="Draw latency against load into this file.",
    ),
    click.option(
        "--url",
        envvar="BATCHFLEET_BENCH_URL",
        callback=checked_url,
        show_envvar=True,
        help="A fleet that runs; default: a fresh one.",
    ),
)


def bench_options(command: Command) -> Command:
    """Adds them, in this order."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command

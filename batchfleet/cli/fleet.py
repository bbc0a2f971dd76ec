"""`batchfleet up | demo | bench`: a whole fleet on this machine."""

import sys
from pathlib import Path

import click

from batchfleet.cli.options import as_json_option, checked_url, print_json
from batchfleet.cli.running import DATA_DIR_VARIABLE, data_dir
from batchfleet.cli.variables import warn_of_unknown_variables

_workers_help = "Worker processes; default: one a core that may be used."
_postgres_option = click.option(
    "--postgres",
    is_flag=True,
    show_envvar=True,
    help="Keep the jobs in an embedded Postgres instead of SQLite (needs the extra 'postgres').",
)


@click.command()
@click.option(
    "--data-dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=data_dir,
    envvar=DATA_DIR_VARIABLE,
    show_envvar=True,
    show_default="~/.batchfleet",
    help="Holds everything of the fleet.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    envvar="BATCHFLEET_API_HOST",
    show_envvar=True,
    show_default=True,
    help="Address to listen on; where others can reach it, requests need a key.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    envvar="BATCHFLEET_API_PORT",
    show_envvar=True,
    show_default=True,
    help="0 takes a free one (see stack.json in the data folder).",
)
@click.option("--workers", type=click.IntRange(1), show_envvar=True, help=_workers_help)
@click.option(
    "--model",
    type=click.Choice(["demo", "none"]),
    default="demo",
    show_envvar=True,
    show_default=True,
    help="Make the demo model if the repository is empty, or not.",
)
@_postgres_option
@as_json_option
def up(folder: Path, host: str, port: int, workers: int | None, model: str, postgres: bool, as_json: bool) -> int:
    """Run a whole fleet on this machine.

    API, scheduler, workers, an embedded Valkey, and SQLite or an embedded Postgres, all in one folder, in the
    foreground. Ctrl-C drains and stops, a second one stops at once. With --json, one line on stdout says when it is
    ready; the log goes to stderr.

    Exits 0 after a clean stop, 3 if a fleet is up on this folder already, 4 if a part keeps failing before it is
    ready, 5 if a part had to be killed, 6 if the port is taken, 7 if the demo model cannot be made, 78 if a setting
    cannot work.
    """
    from batchfleet.embedded.cores import usable_cores  # noqa: PLC0415 - not for `--help`
    from batchfleet.embedded.stack import StackSpec  # noqa: PLC0415
    from batchfleet.embedded.up import run_up  # noqa: PLC0415

    warn_of_unknown_variables("batchfleet up")
    spec = StackSpec(
        data_dir=folder.expanduser(), host=host, port=port, workers=workers or usable_cores(), postgres=postgres
    )
    return run_up(spec, model=model, as_json=as_json)


@click.command()
@click.option(
    "--texts", type=click.IntRange(10), default=3000, show_default=True, show_envvar=True, help="Sentences to embed."
)
@click.option("--workers", type=click.IntRange(1), show_envvar=True, help=_workers_help)
@_postgres_option
@as_json_option
def demo(texts: int, workers: int | None, postgres: bool, as_json: bool) -> int:
    """Show it working: real model, real texts, measured.

    Starts a fresh fleet, embeds English sentences, and says how fast that was and where the time went. Leaves
    nothing running, and only the model in the cache. Exits 0 if everything went well, else 1 (the end of the
    fleet's log is shown).
    """
    from batchfleet.embedded.demo import run_demo  # noqa: PLC0415 - not for `--help`

    return run_demo(texts=texts, workers=workers, postgres=postgres, as_json=as_json)


@click.command()
@click.option(
    "--texts", type=click.IntRange(100), default=10_000, show_default=True, show_envvar=True, help="Texts a round."
)
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    show_envvar=True,
    help="How often loop and fleet take turns.",
)
@click.option(
    "--url",
    envvar="BATCHFLEET_BENCH_URL",
    callback=checked_url,
    show_envvar=True,
    help="A fleet that runs; default: a fresh one.",
)
@click.option("--workers", type=click.IntRange(1), show_envvar=True, help=_workers_help)
@_postgres_option
@as_json_option
def bench(texts: int, rounds: int, url: str | None, workers: int | None, postgres: bool, as_json: bool) -> int:
    """Compare the fleet with the best in-process loop.

    Over the same texts, with the same build on the same cores, in turns; docs/benchmarks.md says how to read it.
    Exits 1 if a job did not succeed or the fleet's vectors are not the loop's.
    """
    from batchfleet.embedded.bench.run import BenchSpec, run_bench  # noqa: PLC0415 - not for `--help`

    report = run_bench(
        BenchSpec(texts=texts, rounds=rounds, url=url, workers=workers, postgres=postgres),
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )
    if as_json:
        print_json(report.to_json())
    else:
        print(report.to_text())
    return 0 if report.ok else 1

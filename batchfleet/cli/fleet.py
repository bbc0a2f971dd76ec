"""`batchfleet up | demo | bench`: a whole fleet on this machine."""

import os
import sys
from pathlib import Path
from typing import Any

import click

from batchfleet.cli.bench_options import bench_options
from batchfleet.cli.options import as_json_option, print_json
from batchfleet.cli.running import DATA_DIR_VARIABLE, data_dir
from batchfleet.cli.variables import warn_of_unknown_variables


def _checked_devices(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    from batchfleet.settings.values import check_devices  # noqa: PLC0415 - not for `--help`

    if value is not None:
        try:
            check_devices(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    return value


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
@click.option(
    "--workers",
    type=click.IntRange(1),
    show_envvar=True,
    help="Worker processes; default: as tuned, else one a GPU where models run on those, else one a core.",
)
@click.option(
    "--tune", is_flag=True, show_envvar=True, help="Measure first how many workers and threads are fastest here."
)
@click.option(
    "--devices",
    envvar="BATCHFLEET_WORKER_DEVICES",
    callback=_checked_devices,
    show_envvar=True,
    help="GPUs for the workers, one each in turn: auto, none, or numbers and ids by comma.  [default: auto]",
)
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
def up(
    folder: Path,
    host: str,
    port: int,
    workers: int | None,
    tune: bool,
    devices: str | None,
    model: str,
    postgres: bool,
    as_json: bool,
) -> int:
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
    if devices is not None:
        os.environ["BATCHFLEET_WORKER_DEVICES"] = devices
    spec = StackSpec(
        data_dir=folder.expanduser(), host=host, port=port, workers=workers or usable_cores(), postgres=postgres
    )
    return run_up(spec, model=model, workers=workers, tune=tune, as_json=as_json)


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
    from batchfleet.embedded.scratch import terminated_as_interrupted  # noqa: PLC0415

    with terminated_as_interrupted():
        return run_demo(texts=texts, workers=workers, postgres=postgres, as_json=as_json)


@click.command()
@bench_options
@click.option("--workers", type=click.IntRange(1), show_envvar=True, help=_workers_help)
@_postgres_option
@as_json_option
def bench(svg: Path | None, as_json: bool, **options: Any) -> int:
    """Compare the fleet with the best in-process loop.

    Over the same texts, with the same build on the same cores; docs/benchmarks.md says what the scenarios are and how
    to read them. Exits 1 if a job did not succeed or the fleet's vectors are not the loop's.
    """
    from batchfleet.embedded.bench.errors import UnknownVariantError  # noqa: PLC0415
    from batchfleet.embedded.bench.run import run_bench  # noqa: PLC0415 - not for `--help`
    from batchfleet.embedded.bench.spec import BenchSpec  # noqa: PLC0415
    from batchfleet.embedded.scratch import terminated_as_interrupted  # noqa: PLC0415

    spec = BenchSpec(**options)
    if svg is not None and "load" not in spec.scenarios:
        raise click.UsageError("--svg shows latency against load: it needs the scenario 'load'")
    with terminated_as_interrupted():
        try:
            report = run_bench(spec, say=lambda text: print(text, file=sys.stderr, flush=True))
        except UnknownVariantError as error:
            raise click.BadParameter(str(error), param_hint="--variant") from None
    if svg is not None:
        svg.write_text(report.to_svg(), encoding="utf-8")
    if as_json:
        print_json(report.to_json())
    else:
        print(report.to_text())
    return 0 if report.ok else 1

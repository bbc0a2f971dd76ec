"""`batchfleet api | worker | scheduler`: one process of a fleet, configured by the environment."""

import os
import sys
from typing import NoReturn

import click

from batchfleet.cli.variables import warn_of_unknown_variables
from batchfleet.embedded.stack import python_environment

json_logs = click.option(
    "--json",
    "as_json",
    is_flag=True,
    envvar="BATCHFLEET_JSON",
    show_envvar=True,
    help="Write logs as JSON, one object a line.",
)


@click.command(epilog="All settings: docs/reference/settings.md.")
@click.option("--host", envvar="BATCHFLEET_API_HOST", show_envvar=True, help="Address to listen on.")
@click.option("--port", type=int, envvar="BATCHFLEET_API_PORT", show_envvar=True, help="Port to listen on.")
@json_logs
def api(host: str | None, port: int | None, as_json: bool) -> None:
    """Run one API process.

    Exits 0 after a stop signal, 78 if a setting cannot work, 1 if it could not start, 70 if it crashed.
    """
    become("api", as_json=as_json, api_host=host, api_port=port)


@click.command(epilog="All settings: docs/reference/settings.md.")
@click.option("--name", envvar="BATCHFLEET_WORKER_NAME", show_envvar=True, help="Name; two at once must differ.")
@click.option("--models", envvar="BATCHFLEET_WORKER_MODELS", show_envvar=True, help="Models to serve, by comma.")
@click.option("--variant", envvar="BATCHFLEET_WORKER_VARIANT", show_envvar=True, help="Build to run, or auto.")
@click.option("--threads", type=int, envvar="BATCHFLEET_WORKER_THREADS", show_envvar=True, help="Threads of a pass.")
@click.option(
    "--tune",
    is_flag=True,
    show_envvar=True,
    help="Run none: measure how many workers and threads are fastest here, and remember it.",
)
@json_logs
def worker(
    name: str | None, models: str | None, variant: str | None, threads: int | None, tune: bool, as_json: bool
) -> int:
    """Run one worker process.

    Exits 0 after a drain, 75 if its device is sick or its lease was lost (restart it), 78 if a setting cannot
    work, 70 if it crashed; with --tune, 0 once it is measured and 1 if it cannot be.
    """
    if not tune:
        become(
            "workers",
            as_json=as_json,
            worker_name=name,
            worker_models=models,
            worker_variant=variant,
            worker_threads=threads,
        )
    return _tune(models, variant, as_json=as_json)


def _tune(models: str | None, variant: str | None, *, as_json: bool) -> int:
    from batchfleet.cli.tuning import run_tune  # noqa: PLC0415 - not for `--help`

    for given, setting in ((models, "BATCHFLEET_WORKER_MODELS"), (variant, "BATCHFLEET_WORKER_VARIANT")):
        if given is not None:
            os.environ[setting] = given
    return run_tune(as_json=as_json)


@click.command(epilog="All settings: docs/reference/settings.md.")
@json_logs
def scheduler(as_json: bool) -> None:
    """Run one scheduler process.

    Any number may run. Exits 0 after a stop signal, 70 if it crashed.
    """
    become("scheduler", as_json=as_json)


def become(module: str, *, as_json: bool, **settings: object) -> NoReturn:
    """Replaces this process by a service: signals and exit code are then its own."""
    warn_of_unknown_variables("batchfleet")
    given = {f"BATCHFLEET_{name.upper()}": str(value) for name, value in settings.items() if value is not None}
    if as_json:
        given["BATCHFLEET_LOG_FORMAT"] = "json"
    os.execve(sys.executable, [sys.executable, "-P", "-m", module], {**python_environment(), **given})  # noqa: S606

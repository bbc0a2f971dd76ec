"""`batchfleet status | result | cancel | jobs`: a fleet's client on the command line."""

import os
from pathlib import Path

import click
import numpy as np

from batchfleet.cli.options import (
    as_json_option,
    print_json,
    print_table,
    reason_of,
    time_of,
    url_option,
)
from batchfleet.client import Client, Job, NotFoundError, NotReadyError
from batchfleet.embedded.exits import Exit
from batchfleet.embedded.telling import tell_error

_STATUSES = ("queued", "running", "succeeded", "failed", "cancelled", "expired")


def _states(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    states = tuple(dict.fromkeys(part.strip() for value in values for part in value.split(",") if part.strip()))
    for state in states:
        if state not in _STATUSES:
            raise click.BadParameter(f"{state!r} is no state; they are {', '.join(_STATUSES)}")
    return states


def _in_a_folder(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """Asked before the result is fetched: the file can be made."""
    if value is not None:
        folder = Path(value).parent
        if not folder.is_dir():
            raise click.BadParameter(f"there is no folder {folder}")
        if not Path(value).exists() and not os.access(folder, os.W_OK):
            raise click.BadParameter(f"the folder {folder} cannot be written")
    return value


@click.command()
@click.argument("ids", nargs=-1, required=True)
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0),
    default=0.0,
    envvar="BATCHFLEET_STATUS_WAIT",
    show_envvar=True,
    help="Seconds to wait for their end.",
)
@url_option
@as_json_option
def status(ids: tuple[str, ...], wait_s: float, url: str, as_json: bool) -> int:
    """Show where jobs stand.

    Exits 8 if one is unknown, and 10 if --wait was too short.
    """
    with Client(url) as client:
        if wait_s > 0:
            client.wait_many(ids, timeout_s=wait_s)
        found = client.look_up(ids) if len(ids) > 1 else [client.get(ids[0])]
    if as_json:
        print_json({"jobs": found})
    else:
        print_table(("ID", "STATUS", "MODEL", "NOTE"), [(job.id, job.status, job.model, _note(job)) for job in found])
    return Exit.NOT_FOUND if any(job.status == "unknown" for job in found) else Exit.OK


@click.command()
@click.argument("job_id")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, writable=True),
    callback=_in_a_folder,
    show_envvar=True,
    help="Write a NumPy file (.npy) there.",
)
@url_option
@as_json_option
def result(job_id: str, output: str | None, url: str, as_json: bool) -> int:
    """Fetch a job's result.

    Prints it as JSON, or writes a NumPy file. Exits 1 if the job has none (yet), 8 if there is no such job.
    """
    with Client(url) as client:
        try:
            if output is None:
                print_json(client.result_json(job_id))
                return Exit.OK
            array = client.result(job_id)
        except NotReadyError as error:
            hint = f"{error}; wait with `batchfleet status {job_id} --wait 60`"
            tell_error(hint, code=error.error_code, as_json=as_json)
            return Exit.FAILED
    with open(output, "wb") as file:  # noqa: PTH123 - not np.save(path): it would append a suffix of its own
        np.save(file, array)
    if as_json:
        print_json({"output": output, "shape": array.shape, "dtype": str(array.dtype)})
    else:
        print(f"{output}: {array.dtype} {list(array.shape)}")
    return Exit.OK


@click.command()
@click.argument("ids", nargs=-1, required=True)
@url_option
@as_json_option
def cancel(ids: tuple[str, ...], url: str, as_json: bool) -> int:
    """Cancel jobs.

    Those that have ended stay as they are. Exits 8 if one is unknown; the others are cancelled all the same.
    """
    with Client(url) as client:
        found = [_cancelled(client, job_id) for job_id in ids]
    unknown = [job.id for job in found if job.status == "unknown"]
    if as_json:
        print_json({"jobs": found})
    else:
        print_table(("ID", "STATUS"), [(job.id, job.status) for job in found])
    if unknown:
        tell_error(f"{', '.join(unknown)}: no such job", code="job_not_found", as_json=as_json)
        return Exit.NOT_FOUND
    return Exit.OK


def _cancelled(client: Client, job_id: str) -> Job:
    """One that does not exist must not keep the others from being cancelled."""
    try:
        return client.cancel(job_id)
    except NotFoundError:
        return Job(id=job_id, status="unknown")


@click.command()
@click.option(
    "--status",
    "states",
    multiple=True,
    callback=_states,
    envvar="BATCHFLEET_JOBS_STATUS",
    show_envvar=True,
    help=f"Only jobs in these states ({', '.join(_STATUSES)}); several by comma, or by repeating it.",
)
@click.option("--model", show_envvar=True, help="Only jobs of this model.")
@click.option("--dead-letter", is_flag=True, show_envvar=True, help="Only jobs that used up attempts or crashes.")
@click.option("--after", show_envvar=True, help="The last id of the page before.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, show_envvar=True, help="Jobs at most."
)
@url_option
@as_json_option
def jobs(
    states: tuple[str, ...],
    model: str | None,
    dead_letter: bool,
    after: str | None,
    limit: int,
    url: str,
    as_json: bool,
) -> int:
    """List jobs, newest first."""
    with Client(url) as client:
        page = client.list_jobs(status=states, model=model, dead_letter=dead_letter, after=after, limit=limit)
    if as_json:
        print_json(page)
    elif not page.jobs:
        print("no jobs")
    else:
        rows = [(job.id, job.status, job.model, job.lane, time_of(job.submitted_at), _note(job)) for job in page.jobs]
        print_table(("ID", "STATUS", "MODEL", "LANE", "SUBMITTED", "NOTE"), rows)
    return Exit.OK


def _note(job: Job) -> str:
    return reason_of(job.error) or job.notice or ""

"""`batchfleet status | result | cancel | delete | jobs`: a fleet's client on the command line."""

import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from batchfleet.cli.complete import model_names
from batchfleet.cli.options import (
    fleet,
    fleet_options,
    job_argument,
    jobs_argument,
    print_json,
    print_table,
    reason_of,
    time_of,
)
from batchfleet.client import Client, ConflictError, Job, NotFoundError, NotReadyError, WaitTimeoutError
from batchfleet.client.payload import CONTENT_TYPES, ResultForm, described
from batchfleet.embedded.exits import Exit
from batchfleet.embedded.telling import tell_error

_STATUSES = ("queued", "running", "succeeded", "failed", "cancelled", "expired")
_PAGE = 500


def _states(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    states = tuple(dict.fromkeys(part.strip() for value in values for part in value.split(",") if part.strip()))
    for state in states:
        if state not in _STATUSES:
            raise click.BadParameter(f"{state!r} is no state; they are {', '.join(_STATUSES)}")
    return states


def _in_a_folder(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """Asked before the result is fetched: the file can be made."""
    if value is not None and value != "-":
        folder = Path(value).parent
        if not folder.is_dir():
            raise click.BadParameter(f"there is no folder {folder}")
        if not Path(value).exists() and not os.access(folder, os.W_OK):
            raise click.BadParameter(f"the folder {folder} cannot be written")
    return value


@click.command()
@jobs_argument
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0),
    default=0.0,
    envvar="BATCHFLEET_STATUS_WAIT",
    show_envvar=True,
    help="Seconds to wait for their end.",
)
@fleet_options
def status(ids: tuple[str, ...], wait_s: float, url: str, api_key: str | None, as_json: bool) -> int:
    """Show where jobs stand.

    Exits 8 if one is unknown, and 10 if --wait was too short; they are shown all the same.
    """
    late: WaitTimeoutError | None = None
    with fleet(url, api_key) as client:
        if wait_s > 0:
            try:
                client.wait_many(ids, timeout_s=wait_s)
            except WaitTimeoutError as error:
                late = error
        found = client.look_up(ids) if len(ids) > 1 else [_found(client, ids[0])]
    if as_json:
        print_json({"jobs": found})
    else:
        print_table(("ID", "STATUS", "MODEL", "NOTE"), [(job.id, job.status, job.model, _note(job)) for job in found])
    if late is not None:
        tell_error(str(late), code=late.code, as_json=as_json)
        return Exit.TIMEOUT
    return _tell_unknown(found, as_json=as_json)


@click.command()
@job_argument
@click.option(
    "--format",
    "form",
    type=click.Choice(list(CONTENT_TYPES)),
    envvar="BATCHFLEET_RESULT_FORMAT",
    show_envvar=True,
    show_default="json, and npy with --output",
    help="JSON, a NumPy file, or msgpack.",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, writable=True),
    callback=_in_a_folder,
    show_envvar=True,
    help="Write it into this file; - is stdout.",
)
@fleet_options
def result(
    job_id: str, form: ResultForm | None, output: str | None, url: str, api_key: str | None, as_json: bool
) -> int:
    """Fetch a job's result.

    Prints it as JSON, or writes a file. Exits 1 if the job has none (yet), 8 if there is no such job.
    """
    to_file = output not in {None, "-"}
    form = form or ("npy" if to_file else "json")
    if as_json and not to_file and form != "json":
        raise click.UsageError(f"--json prints JSON: name a file for the {form} with --output")
    if not to_file and form != "json" and sys.stdout.isatty():
        raise click.UsageError(f"{form} is no text: name a file with --output, or - to force it")
    with fleet(url, api_key) as client:
        try:
            data = client.download(job_id, form)
        except NotReadyError as error:
            hint = f"{error}; wait with `batchfleet status {job_id} --wait 60`"
            tell_error(hint, code=error.code, as_json=as_json)
            return Exit.FAILED
    if output is None or output == "-":
        sys.stdout.buffer.write(data + b"\n" if form == "json" else data)
        sys.stdout.buffer.flush()
        return Exit.OK
    about = described(data, form)
    Path(output).write_bytes(data)
    if as_json:
        print_json({"output": output, "format": form, "bytes": len(data), **about})
    else:
        shape = f"{about['dtype']} {about['shape']}" if about else f"{form}, {len(data)} bytes"
        print(f"{output}: {shape}")
    return Exit.OK


@click.command()
@jobs_argument
@fleet_options
def cancel(ids: tuple[str, ...], url: str, api_key: str | None, as_json: bool) -> int:
    """Cancel jobs.

    Those that have ended stay as they are. Exits 8 if one is unknown; the others are cancelled all the same.
    """
    with fleet(url, api_key) as client:
        found = [_cancelled(client, job_id) for job_id in ids]
    return _tell_fates(found, as_json=as_json)


@click.command()
@jobs_argument
@fleet_options
def delete(ids: tuple[str, ...], url: str, api_key: str | None, as_json: bool) -> int:
    """Remove jobs that have ended, with their results.

    Exits 8 if one is unknown, and 1 if one has not ended (cancel it first) or its output is still to be written; the
    others are removed all the same.
    """
    with fleet(url, api_key) as client:
        found = [_deleted(client, job_id) for job_id in ids]
    code = _tell_fates(found, as_json=as_json)
    left = [job.id for job in found if job.status in {"queued", "running"}]
    if left:
        tell_error(f"{', '.join(left)}: not ended; cancel first", code="job_not_ended", as_json=as_json)
        return Exit.FAILED
    owing = [job.id for job in found if job.status not in {"queued", "running", "deleted", "unknown"}]
    if owing:
        told = f"{', '.join(owing)}: the output is still to be written; try again after that"
        tell_error(told, code="output_pending", as_json=as_json)
        return Exit.FAILED
    return code


def _found(client: Client, job_id: str) -> Job:
    """One alone is asked for itself: only so its result and its notice come with it."""
    try:
        return client.get(job_id)
    except NotFoundError:
        return Job(id=job_id, status="unknown")


def _cancelled(client: Client, job_id: str) -> Job:
    """One that does not exist must not keep the others from being cancelled."""
    try:
        return client.cancel(job_id)
    except NotFoundError:
        return Job(id=job_id, status="unknown")


def _deleted(client: Client, job_id: str) -> Job:
    try:
        client.delete(job_id)
    except NotFoundError:
        return Job(id=job_id, status="unknown")
    except ConflictError:
        return client.get(job_id)
    return Job(id=job_id, status="deleted")


def _tell_fates(found: list[Job], *, as_json: bool) -> Exit:
    if as_json:
        print_json({"jobs": found})
    else:
        print_table(("ID", "STATUS"), [(job.id, job.status) for job in found])
    return _tell_unknown(found, as_json=as_json)


def _tell_unknown(found: list[Job], *, as_json: bool) -> Exit:
    unknown = [job.id for job in found if job.status == "unknown"]
    if unknown:
        tell_error(f"{', '.join(unknown)}: no such job", code="job_not_found", as_json=as_json)
        return Exit.NOT_FOUND
    return Exit.OK


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
@click.option("--model", show_envvar=True, shell_complete=model_names, help="Only jobs of this model.")
@click.option("--dead-letter", is_flag=True, show_envvar=True, help="Only jobs that used up attempts or crashes.")
@click.option("--after", show_envvar=True, help="The last id of the page before.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, show_envvar=True, help="Jobs at most."
)
@click.option(
    "--all",
    "every",
    is_flag=True,
    envvar="BATCHFLEET_JOBS_ALL",
    show_envvar=True,
    help="All pages, not only the first.",
)
@fleet_options
def jobs(
    states: tuple[str, ...],
    model: str | None,
    dead_letter: bool,
    after: str | None,
    limit: int,
    every: bool,
    url: str,
    api_key: str | None,
    as_json: bool,
) -> int:
    """List jobs, newest first."""
    with fleet(url, api_key) as client:
        if every:
            if after:
                raise click.UsageError("--all begins at the newest job: it goes without --after")
            listed = client.jobs(status=states, model=model, dead_letter=dead_letter)
            return _print_all(listed, as_json=as_json)
        page = client.list_jobs(status=states, model=model, dead_letter=dead_letter, after=after, limit=limit)
    if as_json:
        print_json(page)
    elif not page.jobs:
        print("no jobs")
    else:
        print_table(_COLUMNS, [_row(job) for job in page.jobs])
        if page.next is not None:
            print(f"more: --after {page.next}, or --all", file=sys.stderr)
    return Exit.OK


_COLUMNS = ("ID", "STATUS", "MODEL", "LANE", "SUBMITTED", "NOTE")


def _print_all(listed: Iterator[Job], *, as_json: bool) -> Exit:
    """Page by page, so that a long list begins to appear at once; as JSON one document, as everywhere."""
    if as_json:
        print_json({"jobs": list(listed), "next": None})
        return Exit.OK
    first = True
    while part := list(itertools.islice(listed, _PAGE)):
        print_table(_COLUMNS if first else None, [_row(job) for job in part])
        first = False
    if first:
        print("no jobs")
    return Exit.OK


def _row(job: Job) -> tuple[str, ...]:
    return (job.id, job.status, job.model, job.lane, time_of(job.submitted_at), _note(job))


def _note(job: Job) -> str:
    return reason_of(job.error) or job.notice or ""

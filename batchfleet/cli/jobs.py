"""`batchfleet submit | status | result | cancel | jobs`: a fleet's client on the command line."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import click
import msgspec
import numpy as np

from batchfleet.cli.options import (
    as_json_option,
    end_progress,
    print_json,
    print_table,
    progress_line,
    time_of,
    url_option,
)
from batchfleet.client import Client, Job, JobRequest, NotFoundError, NotReadyError, WaitTimeoutError
from batchfleet.embedded.exits import Exit
from batchfleet.embedded.telling import tell_error

_STATUSES = ("queued", "running", "succeeded", "failed", "cancelled", "expired")


def _json_object(_ctx: click.Context, _param: click.Parameter, value: str | None) -> dict[str, Any] | None:
    if value is None:
        return None
    try:
        parsed = json.loads(value)
    except ValueError as error:
        raise click.BadParameter(f"not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise click.BadParameter("must be a JSON object")
    return parsed


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
@click.argument("model")
@click.argument("inputs", nargs=-1)
@click.option(
    "--file",
    "lines",
    type=click.File(encoding="utf-8"),
    envvar="BATCHFLEET_SUBMIT_FILE",
    show_envvar=True,
    help="One job a line, blank lines skipped; - reads stdin.",
)
@click.option("--lane", type=click.Choice(["online", "standard", "bulk"]), show_envvar=True, help="Service class.")
@click.option("--parameters", callback=_json_object, show_envvar=True, help="The task's parameters, a JSON object.")
@click.option(
    "--ttl",
    "ttl_s",
    type=click.FloatRange(min=0, min_open=True),
    envvar="BATCHFLEET_SUBMIT_TTL",
    show_envvar=True,
    help="Seconds within which it must start.",
)
@click.option("--idempotency-key", show_envvar=True, help="A second submission with it gets the first job.")
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0),
    default=0.0,
    envvar="BATCHFLEET_SUBMIT_WAIT",
    show_envvar=True,
    help="Seconds to wait for the end.",
)
@url_option
@as_json_option
def submit(
    model: str,
    inputs: tuple[str, ...],
    lines: TextIO | None,
    lane: str | None,
    parameters: dict[str, Any] | None,
    ttl_s: float | None,
    idempotency_key: str | None,
    wait_s: float,
    url: str,
    as_json: bool,
) -> int:
    """Submit a job, or one job a line of a file.

    INPUTS are the items of one job; with --file, every line is a job of its own.

    Prints the ids, one a line. With --wait, exits 1 if a job did not succeed and 10 if one did not end in time.
    """
    if bool(inputs) == (lines is not None):
        raise click.UsageError("give either INPUTS or --file")
    options = {"lane": lane, "parameters": parameters, "ttl_s": ttl_s}
    with Client(url) as client:
        if lines is not None:
            if idempotency_key:
                raise click.UsageError("--idempotency-key is for a single job")
            return _submit_lines(client, model, lines, options, wait_s, as_json=as_json)
        began = time.monotonic()
        job = client.submit(model, inputs, wait_s=wait_s, idempotency_key=idempotency_key, **options)
        while not job.ended and (left_s := wait_s - (time.monotonic() - began)) > 0:
            job = client.get(job.id, wait_s=left_s)  # the server holds an answer for a minute at most
    if as_json:
        print_json(job)
    else:
        print(job.id if wait_s <= 0 else f"{job.id} {job.status}")
    return _code_of([job]) if wait_s > 0 else Exit.OK


def _submit_lines(
    client: Client, model: str, lines: TextIO, options: dict[str, Any], wait_s: float, *, as_json: bool
) -> int:
    numbers: list[int] = []  # of the lines that became jobs

    def requests() -> Iterator[JobRequest]:
        for number, text in _texts(lines):
            numbers.append(number)
            yield JobRequest(model=model, inputs=[text], **options)

    submissions = client.submit_many(requests(), progress=lambda done: progress_line(done, None, "submitted"))
    ids = [submission.id for submission in submissions if submission.id]
    refused = [submission for submission in submissions if submission.id is None]
    statuses, too_late = _await_all(client, ids, wait_s) if wait_s > 0 and ids else ({}, None)
    end_progress()
    entries = [
        msgspec.structs.replace(entry, status=statuses.get(entry.id or "", entry.status)) for entry in submissions
    ]
    if as_json:
        shown = [{"line": number, **msgspec.to_builtins(entry)} for number, entry in zip(numbers, entries, strict=True)]
        print_json({"jobs": shown})
    else:
        for number, entry in zip(numbers, entries, strict=True):
            status = entry.status if wait_s > 0 else ""
            print(f"{entry.id} {status}".rstrip() if entry.id else f"line {number}: {_reason(entry.error)}")
    if too_late is not None:
        raise too_late
    succeeded = all(status == "succeeded" for status in statuses.values())
    return Exit.OK if succeeded and not refused else Exit.FAILED


def _await_all(client: Client, ids: list[str], wait_s: float) -> tuple[dict[str, str], WaitTimeoutError | None]:
    """Waits; a time that was too short is handed back, so that the ids are printed all the same."""
    try:
        ended = client.wait_many(
            ids, timeout_s=wait_s, progress=lambda done: progress_line(done, len(ids), "ended    ")
        )
    except WaitTimeoutError as error:
        return {job.id: job.status for job in client.look_up(ids)}, error
    return ended, None


def _texts(lines: TextIO) -> Iterator[tuple[int, str]]:
    """Yields the lines that are not blank, with their number in the file, from 1."""
    number = 0
    try:
        for number, line in enumerate(lines, start=1):
            text = line.rstrip("\r\n")
            if text.strip():
                yield number, text
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"not UTF-8 text after line {number}: {error.reason}", param_hint="--file") from None


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


def _code_of(found: list[Job]) -> Exit:
    if not all(job.ended for job in found):
        raise WaitTimeoutError([job.id for job in found if not job.ended])
    return Exit.OK if all(job.status == "succeeded" for job in found) else Exit.FAILED


def _note(job: Job) -> str:
    return _reason(job.error) or job.notice or ""


def _reason(error: Any) -> str:
    return f"{error.code}: {error.message}" if error else ""

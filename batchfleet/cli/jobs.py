"""`batchfleet submit | status | result | cancel | jobs`: a fleet's client on the command line."""

import json
import sys
from collections.abc import Iterator
from typing import Any, TextIO

import click
import msgspec
import numpy as np

from batchfleet.cli.options import as_json_option, end_progress, print_json, print_table, progress_line, url_option
from batchfleet.client import Client, Job, JobRequest
from batchfleet.embedded.exits import Exit

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


@click.command()
@click.argument("model")
@click.argument("inputs", nargs=-1)
@click.option(
    "--file", "lines", type=click.File(encoding="utf-8"), show_envvar=True, help="One job a line; - reads stdin."
)
@click.option("--lane", type=click.Choice(["online", "standard", "bulk"]), show_envvar=True, help="Service class.")
@click.option("--parameters", callback=_json_object, show_envvar=True, help="The task's parameters, a JSON object.")
@click.option("--ttl", "ttl_s", type=float, show_envvar=True, help="Seconds within which it must start.")
@click.option("--idempotency-key", show_envvar=True, help="A second submission with it gets the first job.")
@click.option("--wait", "wait_s", type=float, default=0.0, show_envvar=True, help="Seconds to wait for the end.")
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
        job = client.submit(model, inputs, wait_s=wait_s, idempotency_key=idempotency_key, **options)
    if as_json:
        print_json(msgspec.to_builtins(job))
    else:
        print(job.id if wait_s <= 0 else f"{job.id} {job.status}")
    return _code_of([job]) if wait_s > 0 else Exit.OK


def _submit_lines(
    client: Client, model: str, lines: TextIO, options: dict[str, Any], wait_s: float, *, as_json: bool
) -> int:
    requests = (JobRequest(model=model, inputs=[text], **options) for text in _texts(lines))
    submissions = client.submit_many(requests, progress=lambda done: progress_line(done, None, "submitted"))
    ids = [submission.id for submission in submissions if submission.id]
    refused = [submission for submission in submissions if submission.id is None]
    statuses: dict[str, str] = {}
    if wait_s > 0 and ids:
        statuses = client.wait_many(
            ids, timeout_s=wait_s, progress=lambda done: progress_line(done, len(ids), "ended    ")
        )
    end_progress()
    if as_json:
        print_json(
            [
                {**msgspec.to_builtins(entry), "status": statuses.get(entry.id or "", entry.status)}
                for entry in submissions
            ]
        )
    else:
        for entry in submissions:
            status = statuses.get(entry.id or "", "")
            print(f"{entry.id} {status}".rstrip() if entry.id else f"line {entry.index + 1}: {_reason(entry.error)}")
    succeeded = all(status == "succeeded" for status in statuses.values())
    return Exit.OK if succeeded and not refused else Exit.FAILED


def _texts(lines: TextIO) -> Iterator[str]:
    return (text for line in lines if (text := line.rstrip("\r\n")))


@click.command()
@click.argument("ids", nargs=-1, required=True)
@click.option("--wait", "wait_s", type=float, default=0.0, show_envvar=True, help="Seconds to wait for their end.")
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
        print_json([msgspec.to_builtins(job) for job in found])
    else:
        print_table(("ID", "STATUS", "MODEL", "NOTE"), [(job.id, job.status, job.model, _note(job)) for job in found])
    return Exit.NOT_FOUND if any(job.status == "unknown" for job in found) else Exit.OK


@click.command()
@click.argument("job_id")
@click.option("--output", type=click.Path(dir_okay=False), show_envvar=True, help="Write a NumPy file (.npy) there.")
@url_option
@as_json_option
def result(job_id: str, output: str | None, url: str, as_json: bool) -> int:
    """Fetch a job's result.

    Prints it as JSON, or writes a NumPy file. Exits 1 if the job has none, 8 if there is no such job.
    """
    with Client(url) as client:
        if output is None:
            value = client.result_json(job_id)
            print_json(value)
            return Exit.OK
        array = client.result(job_id)
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

    Those that have ended stay as they are.
    """
    with Client(url) as client:
        found = [client.cancel(job_id) for job_id in ids]
    if as_json:
        print_json([msgspec.to_builtins(job) for job in found])
    else:
        print_table(("ID", "STATUS"), [(job.id, job.status) for job in found])
    return Exit.OK


@click.command()
@click.option("--status", "state", type=click.Choice(_STATUSES), show_envvar=True, help="Only jobs in this state.")
@click.option("--model", show_envvar=True, help="Only jobs of this model.")
@click.option("--dead-letter", is_flag=True, show_envvar=True, help="Only jobs that used up attempts or crashes.")
@click.option("--after", show_envvar=True, help="The last id of the page before.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, show_envvar=True)
@url_option
@as_json_option
def jobs(
    state: str | None, model: str | None, dead_letter: bool, after: str | None, limit: int, url: str, as_json: bool
) -> int:
    """List jobs, newest first."""
    with Client(url) as client:
        found = client.list_jobs(status=state, model=model, dead_letter=dead_letter, after=after, limit=limit)
    if as_json:
        print_json([msgspec.to_builtins(job) for job in found])
    else:
        rows = [(job.id, job.status, job.model, job.lane, job.submitted_at, _note(job)) for job in found]
        print_table(("ID", "STATUS", "MODEL", "LANE", "SUBMITTED", "NOTE"), rows)
    return Exit.OK


def _code_of(found: list[Job]) -> Exit:
    if not all(job.ended for job in found):
        print("batchfleet: not ended yet", file=sys.stderr)
        return Exit.TIMEOUT
    return Exit.OK if all(job.status == "succeeded" for job in found) else Exit.FAILED


def _note(job: Job) -> str:
    return _reason(job.error) or job.notice or ""


def _reason(error: Any) -> str:
    return f"{error.code}: {error.message}" if error else ""

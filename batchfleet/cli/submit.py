"""`batchfleet submit`: one job, or one job a line of a file."""

import json
import time
from collections.abc import Iterator
from typing import Any, TextIO

import click
import msgspec

from batchfleet.cli.options import as_json_option, end_progress, print_json, progress_line, reason_of, url_option
from batchfleet.client import Client, Job, JobRequest, WaitTimeoutError
from batchfleet.embedded.exits import Exit


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
            print(f"{entry.id} {status}".rstrip() if entry.id else f"line {number}: {reason_of(entry.error)}")
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


def _code_of(found: list[Job]) -> Exit:
    if not all(job.ended for job in found):
        raise WaitTimeoutError([job.id for job in found if not job.ended])
    return Exit.OK if all(job.status == "succeeded" for job in found) else Exit.FAILED

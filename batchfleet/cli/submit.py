"""`batchfleet submit`: one job, or one job a line of a file."""

import json
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Any, TextIO

import click
import msgspec

from batchfleet.cli.options import (
    end_progress,
    fleet,
    fleet_options,
    model_argument,
    print_json,
    progress_line,
    reason_of,
)
from batchfleet.client import Client, Job, JobOptions, JobRequest, Submission, WaitTimeoutError
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


def _moment(_ctx: click.Context, _param: click.Parameter, value: str | None) -> datetime | None:
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter("must be a time like 2026-12-24T18:00:00Z") from None
    # Without a zone it is this machine's time: a person typed it here.
    return moment if moment.tzinfo else moment.astimezone()


@click.command()
@model_argument
@click.argument("inputs", nargs=-1)
@click.option(
    "--file",
    "lines",
    type=click.File(encoding="utf-8"),
    envvar="BATCHFLEET_SUBMIT_FILE",
    show_envvar=True,
    help="One job a line, blank lines skipped; - reads stdin.",
)
@click.option("--input-uri", show_envvar=True, help="s3://bucket/key of an object that holds the inputs.")
@click.option("--output-uri", show_envvar=True, help="s3://bucket/key that the result is written to as well.")
@click.option("--callback-url", show_envvar=True, help="Who is told when the job has ended.")
@click.option("--version", show_envvar=True, help="Of the model; default: its newest.")
@click.option("--lane", type=click.Choice(["online", "standard", "bulk"]), show_envvar=True, help="Service class.")
@click.option("--parameters", callback=_json_object, show_envvar=True, help="The task's parameters, a JSON object.")
@click.option("--metadata", callback=_json_object, show_envvar=True, help="Shown with the job, a JSON object.")
@click.option(
    "--on-item-error",
    type=click.Choice(["fail", "partial"]),
    show_envvar=True,
    help="What one bad input means: the job fails, or its result has values and errors.",
)
@click.option("--run-at", callback=_moment, show_envvar=True, help="Time before which it must not start.")
@click.option(
    "--ttl",
    "ttl_s",
    type=click.FloatRange(min=0, min_open=True),
    envvar="BATCHFLEET_SUBMIT_TTL",
    show_envvar=True,
    help="Seconds within which it must start.",
)
@click.option(
    "--run-timeout",
    "run_timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    envvar="BATCHFLEET_SUBMIT_RUN_TIMEOUT",
    show_envvar=True,
    help="Seconds for which one run may take.",
)
@click.option("--max-attempts", type=click.IntRange(1), show_envvar=True, help="Runs that may fail.")
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
@fleet_options
def submit(
    model: str,
    inputs: tuple[str, ...],
    lines: TextIO | None,
    idempotency_key: str | None,
    wait_s: float,
    url: str,
    api_key: str | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Submit a job, or one job a line of a file.

    INPUTS are the items of one job; with --file, every line is a job of its own.

    Prints the ids, one a line. With --wait, exits 1 if a job did not succeed and 10 if one did not end in time.
    """
    if sum((bool(inputs), lines is not None, given["input_uri"] is not None)) != 1:
        raise click.UsageError("give either INPUTS or --file or --input-uri")
    options = JobOptions(**{name: value for name, value in given.items() if value is not None})  # type: ignore[typeddict-item]
    with fleet(url, api_key) as client:
        if lines is not None:
            if idempotency_key or given["output_uri"]:
                wrong = "--idempotency-key" if idempotency_key else "--output-uri"
                raise click.UsageError(f"{wrong} is for a single job")
            return _submit_lines(client, model, lines, options, wait_s, as_json=as_json)
        job = _submit_one(client, model, inputs, options, idempotency_key, wait_s)
    if as_json:
        print_json(job)
    else:
        print(job.id if wait_s <= 0 else f"{job.id} {job.status}")
    return _code_of([job]) if wait_s > 0 else Exit.OK


def _submit_one(
    client: Client, model: str, inputs: tuple[str, ...], options: JobOptions, key: str | None, wait_s: float
) -> Job:
    """Submits first and waits then: whoever interrupts the wait must know the job's id."""
    if key is not None:
        options["idempotency_key"] = key
    if wait_s > 0:
        options.setdefault("lane", "online")
    job = client.submit(model, inputs or None, **options)
    if wait_s <= 0 or job.ended:
        return job
    try:
        return client.wait(job.id, timeout_s=wait_s)
    except WaitTimeoutError:
        return client.get(job.id)
    except KeyboardInterrupt:
        print(f"{job.id} goes on", file=sys.stderr)
        raise


def _submit_lines(
    client: Client, model: str, lines: TextIO, options: JobOptions, wait_s: float, *, as_json: bool
) -> int:
    numbers: list[int] = []  # of the lines that became jobs

    def requests() -> Iterator[JobRequest]:
        for number, text in _texts(lines):
            numbers.append(number)
            yield JobRequest(model=model, inputs=[text], **options)

    entries: list[Submission] = []
    for entry in client.submit_each(requests()):
        entries.append(entry)
        if wait_s <= 0 and not as_json:  # at once: a pipe may go on with it, and ctrl-C loses none
            _print_line(numbers[entry.index], entry, wait_s)
        elif entry.index % 1_000 == 0:
            progress_line(entry.index + 1, None, "submitted")
    ids = [entry.id for entry in entries if entry.id]
    statuses, too_late = _await_all(client, ids, wait_s) if wait_s > 0 and ids else ({}, None)
    end_progress()
    entries = [msgspec.structs.replace(entry, status=statuses.get(entry.id or "", entry.status)) for entry in entries]
    if as_json:
        shown = [{"line": number, **msgspec.to_builtins(entry)} for number, entry in zip(numbers, entries, strict=True)]
        print_json({"jobs": shown})
    elif wait_s > 0:
        for number, entry in zip(numbers, entries, strict=True):
            _print_line(number, entry, wait_s)
    if too_late is not None:
        raise too_late
    succeeded = all(status == "succeeded" for status in statuses.values())
    return Exit.OK if succeeded and all(entry.id for entry in entries) else Exit.FAILED


def _print_line(number: int, entry: Submission, wait_s: float) -> None:
    status = entry.status if wait_s > 0 else ""
    print(f"{entry.id} {status}".rstrip() if entry.id else f"line {number}: {reason_of(entry.error)}")


def _await_all(client: Client, ids: list[str], wait_s: float) -> tuple[dict[str, str], BaseException | None]:
    """Waits; a time that was too short, or ctrl-C, is handed back, so that the ids are printed all the same."""
    try:
        ended = client.wait_many(
            ids, timeout_s=wait_s, progress=lambda done: progress_line(done, len(ids), "ended    ")
        )
    except WaitTimeoutError as error:
        return {job.id: job.status for job in client.look_up(ids)}, error
    except KeyboardInterrupt as interrupt:
        return {}, interrupt
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

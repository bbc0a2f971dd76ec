"""`batchfleet demo`: a fresh fleet, a real model, thousands of real sentences, and what was measured."""

import contextlib
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from batchfleet.build.offers import in_words
from batchfleet.client import Client, JobRequest
from batchfleet.embedded.bench.fleet import latencies, patience_s, vectors
from batchfleet.embedded.cache import cache_dir, cached_demo_model
from batchfleet.embedded.cores import usable_cores
from batchfleet.embedded.cpu import snapshot, spent
from batchfleet.embedded.demo_report import DemoReport, Query, show
from batchfleet.embedded.exits import Exit
from batchfleet.embedded.figures import Figures
from batchfleet.embedded.scratch import scratch_folder
from batchfleet.embedded.sentences import english_sentences
from batchfleet.embedded.session import FleetSession, StackFailedError, is_clean_exit
from batchfleet.embedded.telling import tell_error, words_of
from batchfleet.errors import BatchfleetError
from batchfleet.inference.select import Selection, choose_variant

QUERIES = (
    "How do I open a file for reading?",
    "What happens when a number is divided by zero?",
    "Sending an e-mail over the network",
    "Run something later in another thread.",
)
_NEIGHBOURS = 3
_QUERY_WAIT_S = 30.0
PROBE = (
    "64 texts of lognormal length (about 40 tokens on average) on one core; the demo's own sentences are shorter, "
    "so a core does more of them a second:"
)
"""What `choose_variant` runs."""
_WIDTH = 110
"""Of the output where it is no terminal: a pipe or a file."""


def run_demo(*, texts: int, workers: int | None, postgres: bool = False, as_json: bool) -> Exit:
    """Runs the demo and cleans up after itself; returns the exit code."""
    console = Console(stderr=as_json, highlight=False, width=None if sys.stdout.isatty() else _WIDTH)
    session: FleetSession | None = None
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(scratch_folder("demo"))
            console.rule("[bold]batchfleet demo")
            selection, session = _prepare(console, folder, workers, postgres)
            with session:
                report = _work(console, session, english_sentences(texts), selection, workers or usable_cores())
            _check_stopped(session)
            console.print("Stopped; nothing of it runs any more.")
        except KeyboardInterrupt:
            return Exit.INTERRUPTED
        except Exception as error:  # noqa: BLE001 - whatever it was, the fleet's log says more
            return _explain(error, session, as_json=as_json)
    if as_json:
        sys.stdout.write(report.to_json() + "\n")
    return Exit.OK


def _prepare(console: Console, folder: Path, workers: int | None, postgres: bool) -> tuple[Selection, FleetSession]:
    console.print(f"Model: all-MiniLM-L6-v2, kept in {cache_dir()}")
    repository, files = cached_demo_model(lambda text: console.print(f"  {escape(text)}", style="dim"))
    selection = choose_variant(files, state_file=folder / "state" / "variants.json")
    if selection.speeds:
        console.print(f"Which build is fastest here? {PROBE}")
    for speed in selection.speeds:
        console.print(f"  {speed.variant:15} {speed.texts_per_s:7.0f} texts/s")
    for name, why in selection.refused.items():
        console.print(f"  {name:15} {escape(in_words(files.config.variant(name), why))}")
    console.print(f"Serving [bold]{selection.chosen}[/]")
    settings = {
        "BATCHFLEET_MODELS_URL": f"file://{repository.root.resolve()}",
        "BATCHFLEET_WORKER_VARIANT": selection.chosen,
    }
    return selection, FleetSession(folder, workers=workers, postgres=postgres, environment=settings)


def _work(
    console: Console, session: FleetSession, texts: Sequence[str], selection: Selection, workers: int
) -> DemoReport:
    info = session.info()
    console.print(f"Fleet: {workers} worker(s), API at {info.url}")
    with Client(info.url) as client:
        model = client.models()[0].id
        before, began = snapshot(info), time.perf_counter()
        ids = _run(console, client, model, texts)
        seconds = time.perf_counter() - began
        cpu_s = spent(before, snapshot(session.info()))
        figures = Figures.parse(client.metrics())
        queries = _ask(client, model, texts, ids)
        report = DemoReport(
            texts=len(texts),
            seconds=seconds,
            workers=workers,
            variant=selection.chosen,
            reason=selection.reason,
            latencies_s=latencies(client.look_up(ids)),
            figures=figures,
            cpu_s=cpu_s,
            queries=queries,
        )
    show(console, report)
    return report


def _run(console: Console, client: Client, model: str, texts: Sequence[str]) -> list[str]:
    """Submits one job a text and waits until all have succeeded."""
    bar = Progress(
        TextColumn("{task.description:10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=console,
    )
    with bar:
        submitting = bar.add_task("submit", total=len(texts))
        working = bar.add_task("embed", total=len(texts))
        requests = (JobRequest(model=model, inputs=[text], lane="bulk") for text in texts)
        submissions = client.submit_many(requests, progress=lambda done: bar.update(submitting, completed=done))
        ids = [entry.id for entry in submissions if entry.id is not None]
        statuses = client.wait_many(
            ids, timeout_s=patience_s(len(ids)), progress=lambda done: bar.update(working, completed=done)
        )
    counts = Counter(statuses.values())
    if len(ids) != len(texts) or counts["succeeded"] != len(texts):
        raise StackFailedError(f"{len(texts)} texts were sent, {len(ids)} taken, and ended so: {dict(counts)}")
    return ids


def _ask(client: Client, model: str, texts: Sequence[str], ids: Sequence[str]) -> list[Query]:
    """Embeds a few questions, one request each, and finds the sentences nearest to them."""
    corpus = vectors(client, ids)
    queries = []
    for text in QUERIES:
        began = time.perf_counter()
        job = client.submit(model, [text], lane="online", wait_s=_QUERY_WAIT_S)
        seconds = time.perf_counter() - began
        if job.status != "succeeded" or job.result is None:
            raise StackFailedError(f"the query {text!r} is {job.status}: {job.error}")
        scores = corpus @ np.asarray(job.result["values"][0], np.float32)
        best = np.argsort(-scores)[:_NEIGHBOURS]
        queries.append(Query(text, seconds, [(float(scores[index]), texts[index]) for index in best]))
    return queries


def _check_stopped(session: FleetSession) -> None:
    code = session.stop()
    left = session.leftovers()
    if left or not is_clean_exit(code):
        raise StackFailedError(f"the fleet did not stop cleanly (exit code {code}, still running: {left or 'nothing'})")


def _explain(error: Exception, session: FleetSession | None, *, as_json: bool) -> Exit:
    """The log's end first: what went wrong is the last word, and with --json the last line."""
    if not isinstance(error, BatchfleetError | OSError):
        traceback.print_exc()
    if session is not None and (tail := session.tail()):
        print(f"--- the end of the fleet's log ---\n{tail}\n---", file=sys.stderr)
    message = words_of(error) if isinstance(error, OSError) else str(error)
    tell_error(message, code=getattr(error, "code", "internal_error"), as_json=as_json, who="batchfleet demo")
    return Exit.FAILED

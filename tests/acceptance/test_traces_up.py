"""One trace from submit to settle over real processes, also where a worker dies with the job."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.models import tiny_text
from tests.support.otlp import Collector, ReceivedSpan
from tests.support.upstack import UpStack, eventually, running_up
from workers.journal import read_journal

TRACE = "0af7651916cd43dd8448eb211c80319c"
OTHER = "1bf7651916cd43dd8448eb211c80319d"
SPAN = "b7ad6b7169203331"
LONG = tiny_text(500)
"""One pass of it takes long enough to be caught in."""


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


@pytest.fixture(scope="module")
def stack(collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpStack]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BATCHFLEET_OTLP_ENDPOINT", collector.url)
        with running_up(tmp_path_factory.mktemp("traced"), workers=1, slow=True) as running:
            yield running


def submit(stack: UpStack, trace: str, text: str, count: int = 1) -> str:
    answer = httpx.post(
        f"{stack.url}/v1/jobs",
        json={"model": "tiny", "inputs": [text] * count},
        headers={"traceparent": f"00-{trace}-{SPAN}-01"},
        timeout=30,
    )
    return str(answer.raise_for_status().json()["id"])


def journal_of(stack: UpStack) -> Path:
    (path,) = (stack.data_dir / "state" / "journals").glob("*.journal")
    return path


@pytest.mark.timeout(120)
def test_one_trace_goes_from_the_submission_to_the_settle(stack: UpStack, collector: Collector) -> None:
    job = submit(stack, TRACE, "sun")
    assert stack.finish([job], 60) == {"succeeded": 1}

    collector.wait(lambda: collector.named("settle") and collector.named("POST /v1/jobs"), "the job's spans")
    (server,) = collector.named("POST /v1/jobs")
    (run,) = collector.named("run")
    (queue,) = collector.named("queue")
    assert (server.trace_id, server.parent_id) == (TRACE, SPAN)
    assert {(span.trace_id, span.parent_id) for span in (run, queue)} == {(TRACE, server.span_id)}
    assert run.attributes["batchfleet.job.id"] == job
    assert server.resource["service.name"] == "batchfleet-api"
    assert run.resource["service.name"] == "batchfleet-worker"
    (batch,) = (span for span in collector.named("batch") if span.place in run.links)
    assert run.resource["service.instance.id"] == batch.attributes["batchfleet.boot"]
    assert batch.links == {run.place}


@pytest.mark.timeout(180)
def test_a_rescued_job_stays_in_its_trace(stack: UpStack, collector: Collector) -> None:
    job = submit(stack, OTHER, LONG, count=8)

    def caught() -> str | None:
        entry = read_journal(journal_of(stack))
        pid = stack.info["pids"].get("worker-0")
        if entry is None or pid is None or job.removeprefix("job_") not in entry.jobs:
            return None
        os.kill(pid, signal.SIGKILL)
        return entry.boot

    dead = eventually(caught, "the job is on the device", 60)
    assert stack.finish([job], 90) == {"succeeded": 1}

    def runs() -> list[ReceivedSpan]:
        return [span for span in collector.named("run") if span.trace_id == OTHER]

    (run,) = collector.wait(runs, "the second run")
    assert run.attributes["batchfleet.job.id"] == job
    assert run.attributes["batchfleet.job.crashes"] == 1
    assert run.resource["service.instance.id"] != dead

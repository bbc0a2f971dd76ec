"""Traces as a collector sees them: over OTLP, from the parts of the fleet in this process."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchfleet.jobs.job import JobLinks, new_job_id
from batchfleet.jobs.memory import MemoryStore
from batchfleet.jobs.states import JobState
from batchfleet.outbox.delivery import DeliveryState
from batchfleet.settings import EXIT_CONFIG, Settings
from batchfleet.tracing import Tracer, setup_tracing
from batchfleet.tracing.otel import traces_url
from tests.support.apiserver import running_api
from tests.support.control import fleet, running_control
from tests.support.otlp import WAIT_S, Collector, ReceivedSpan
from tests.support.pipeline import Gate, Pipeline
from tests.support.receivers import receiver
from tests.support.sessions import StubSession
from tests.support.stores import new_job, sqlite_url

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
CALLER = f"00-{TRACE}-{SPAN}-01"

OFF = """
import sys
import api.__main__, workers.main, scheduler.main
from batchfleet.settings import Settings
from batchfleet.tracing import setup_tracing
assert setup_tracing(Settings(), "api", "1") is None
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
WITHOUT_EXTRA = "import runpy, sys; sys.modules['opentelemetry'] = None; runpy.run_module({!r}, run_name='__main__')"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


@pytest.fixture
def tracer(collector: Collector) -> Iterator[Tracer]:
    made = setup_tracing(Settings(otlp_endpoint=collector.url), "worker", "boot-1")
    assert made is not None
    yield made
    made.close()


def test_a_submission_is_a_server_span_under_the_callers(collector: Collector, tmp_path: Path) -> None:
    with running_api(tmp_path, otlp_endpoint=collector.url, trace_sample=0.0) as api:
        headers = {"traceparent": CALLER}
        api.client.post("/v1/jobs", json={"model": "tiny", "inputs": ["a"]}, headers=headers).raise_for_status()
        answer = api.client.post("/v1/jobs/bulk", json=[{"model": "tiny", "inputs": ["a"]}] * 2, headers=headers)
        ids = [entry["id"].removeprefix("job_") for entry in answer.json()["jobs"]]
        stored = {record.id: record.traceparent for record in api.store.look_up(ids)}

        (bulk,) = collector.wait(lambda: collector.named("POST /v1/jobs/bulk"), "the server span")
        (single,) = collector.named("POST /v1/jobs")

    assert (bulk.trace_id, bulk.parent_id, bulk.kind) == (TRACE, SPAN, "SPAN_KIND_SERVER")
    assert bulk.attributes["http.response.status_code"] == 202
    assert bulk.resource["service.name"] == "batchfleet-api"
    assert stored == dict.fromkeys(ids, f"00-{TRACE}-{bulk.span_id}-01")
    assert single.parent_id == SPAN
    assert single.span_id != bulk.span_id
    assert collector.paths == {"/v1/traces"}


def test_what_is_not_sampled_leaves_no_trace(collector: Collector, tmp_path: Path) -> None:
    with running_api(tmp_path, otlp_endpoint=collector.url, trace_sample=0.0) as api:
        for headers in ({}, {"traceparent": f"00-{TRACE}-{SPAN}-00"}, {"traceparent": "nonsense"}):
            answer = api.client.post("/v1/jobs", json={"model": "tiny", "inputs": ["a"]}, headers=headers)
            (record,) = api.store.look_up([answer.json()["id"].removeprefix("job_")])
            assert record.traceparent is None
        assert api.parts.tracer is not None
        api.parts.tracer.close()

    assert collector.spans == []


def test_a_request_that_fails_is_told_of_and_reads_are_not(collector: Collector, tmp_path: Path) -> None:
    with running_api(tmp_path, otlp_endpoint=collector.url) as api:
        api.client.get("/v1/jobs")
        api.store.down = True
        answer = api.client.post("/v1/jobs", json={"model": "tiny", "inputs": ["a"]})
        assert answer.status_code == 503

    (span,) = collector.spans
    assert span.name == "POST /v1/jobs"
    assert span.failed
    assert span.parent_id == ""


def test_a_run_is_told_with_its_parts_and_linked_to_its_batch(
    collector: Collector, tracer: Tracer, tmp_path: Path
) -> None:
    pipeline = Pipeline(tmp_path, tracer=tracer)
    traced = pipeline.submit((1.0, 2.0), announce=False, traceparent=CALLER)
    plain = pipeline.submit((3.0,), announce=False)
    pipeline.start()
    pipeline.finish([*traced, *plain])
    pipeline.close()

    (settle,) = collector.wait(lambda: collector.named("settle"), "the job was settled")
    (queue,), (run,), (prepare,) = (collector.named(name) for name in ("queue", "run", "prepare"))
    batches = collector.named("batch")
    assert {span.trace_id for span in (settle, queue, run, prepare)} == {TRACE}
    assert {queue.parent_id, run.parent_id} == {SPAN}
    assert {prepare.parent_id, settle.parent_id} == {run.span_id}
    assert run.kind == "SPAN_KIND_CONSUMER"
    assert run.attributes["batchfleet.job.id"] == f"job_{traced[0]}"
    assert run.attributes["batchfleet.job.outcome"] == "succeeded"
    assert run.links == {batch.place for batch in batches}
    assert all(batch.links == {run.place} for batch in batches)
    assert TRACE not in {batch.trace_id for batch in batches}
    assert queue.begin_ns <= queue.end_ns == run.begin_ns <= prepare.begin_ns <= prepare.end_ns <= settle.begin_ns
    assert settle.end_ns == run.end_ns
    (record,) = pipeline.records(traced)
    assert record.provenance is not None
    assert any(batch.attributes["batchfleet.batch.id"] in record.provenance for batch in batches)


def test_jobs_that_share_a_batch_are_linked_to_the_same_one(
    collector: Collector, tracer: Tracer, tmp_path: Path
) -> None:
    gate = Gate(lambda values: 0.0 in values)
    pipeline = Pipeline(tmp_path, StubSession(gate), tracer=tracer).start()
    first = pipeline.submit((0.0,))
    assert gate.entered.wait(WAIT_S)
    together = [pipeline.submit((float(number),), traceparent=_child(number))[0] for number in (1, 2, 3)]
    _until(lambda: pipeline.drain.assembler.backlog == 3)
    gate.open.set()
    pipeline.finish([*first, *together])
    pipeline.close()

    runs = collector.wait(lambda: len(collector.named("settle")) == 3 and collector.named("run"), "all were settled")
    assert len({run.trace_id for run in runs}) == 3
    for batch in collector.named("batch"):
        assert batch.links == {run.place for run in runs if batch.place in run.links}
    assert {link for run in runs for link in run.links} == {batch.place for batch in collector.named("batch")}


def test_the_passes_of_a_bisected_batch_are_told(collector: Collector, tracer: Tracer, tmp_path: Path) -> None:
    gate = Gate(lambda values: 0.0 in values)

    def poison(values: list[float]) -> None:
        gate(values)
        if 13.0 in values:
            raise RuntimeError("no")

    pipeline = Pipeline(tmp_path, StubSession(poison), tracer=tracer).start()
    first = pipeline.submit((0.0,))
    assert gate.entered.wait(WAIT_S)
    jobs = pipeline.submit((13.0,), (2.0,), traceparent=CALLER)
    _until(lambda: pipeline.drain.assembler.backlog == 2)
    gate.open.set()
    records = pipeline.finish([*first, *jobs])
    pipeline.close()

    assert [record.state for record in records[1:]] == [JobState.FAILED, JobState.SUCCEEDED]
    runs = collector.wait(lambda: len(collector.named("settle")) == 2 and collector.named("run"), "all were settled")
    assert sorted(run.failed for run in runs) == [False, True]
    broken = [batch for batch in collector.named("batch") if batch.attributes["batchfleet.batch.passes"] > 1]
    passes = [span for span in collector.named("pass") if span.parent_id == broken[0].span_id]
    assert len(passes) == broken[0].attributes["batchfleet.batch.passes"]
    assert {span.trace_id for span in passes} == {broken[0].trace_id}


def test_a_second_run_is_a_second_span_of_the_same_trace(collector: Collector, tracer: Tracer, tmp_path: Path) -> None:
    store = MemoryStore()
    gate = Gate(lambda values: 0.0 in values)
    first = Pipeline(tmp_path / "first", StubSession(gate), store=store, tracer=tracer).start()
    blocker = first.submit((0.0,))
    assert gate.entered.wait(WAIT_S)
    (job,) = first.submit((1.0,), traceparent=CALLER)
    _until(lambda: first.drain.assembler.backlog == 1)
    closing = threading.Thread(target=first.close)
    closing.start()
    collector.wait(lambda: collector.named("run"), "the job was handed back")
    gate.open.set()
    closing.join(WAIT_S)
    second = Pipeline(tmp_path / "second", store=store, tracer=tracer).start()
    _until(lambda: second.records([job])[0].state.terminal)
    second.close()

    runs: list[ReceivedSpan] = collector.wait(
        lambda: len(collector.named("run")) == 2 and collector.named("run"), "it ran again"
    )
    assert [run.attributes["batchfleet.job.outcome"] for run in runs] == ["handed_back", "succeeded"]
    assert {(run.trace_id, run.parent_id) for run in runs} == {(TRACE, SPAN)}
    assert runs[0].attributes["batchfleet.job.epoch"] < runs[1].attributes["batchfleet.job.epoch"]
    assert first.records(blocker)[0].state is JobState.SUCCEEDED


@pytest.mark.parametrize("traced", [True, False])
def test_a_webhook_carries_the_trace_on(collector: Collector, tracer: Tracer, tmp_path: Path, traced: bool) -> None:
    with fleet(sqlite_url(tmp_path), tmp_path, broker_url="none") as made, receiver() as hook:
        job = new_job(id=new_job_id(), links=JobLinks(callback_url=f"{hook.url}?token=secret"), traceparent=CALLER)
        made.jobs.submit([job])
        with running_control(made, tracer=tracer if traced else None):
            made.succeed(job.id)
            carried = hook.next().headers["traceparent"]
            made.await_state(job.id, DeliveryState.DELIVERED)

    if not traced:
        assert carried == CALLER
        return
    (span,) = collector.wait(lambda: collector.named("webhook"), "the webhook's span")
    assert carried == f"00-{TRACE}-{span.span_id}-01"
    assert (span.trace_id, span.parent_id, span.kind) == (TRACE, SPAN, "SPAN_KIND_CLIENT")
    assert span.attributes["http.response.status_code"] == 204
    assert "secret" not in str(span.attributes)


def test_a_webhook_of_a_job_without_a_trace_has_no_header(tracer: Tracer, tmp_path: Path) -> None:
    with fleet(sqlite_url(tmp_path), tmp_path, broker_url="none") as made, receiver() as hook:
        job = made.submit(callback_url=hook.url)
        with running_control(made, tracer=tracer):
            made.cancel(job)
            assert "traceparent" not in hook.next().headers


def test_a_stop_does_not_wait_for_a_collector_that_hangs() -> None:
    taken, release = threading.Event(), threading.Event()

    def hang() -> None:
        taken.set()
        assert release.wait(WAIT_S)

    with Collector(before=hang) as collector:
        tracer = setup_tracing(Settings(otlp_endpoint=collector.url), "api", "1")
        assert tracer is not None
        tracer.put("lost", tracer.root(), None, 1, 2)
        tracer.close(0.2)

        assert taken.wait(WAIT_S)
        assert collector.spans == []
        release.set()


def test_a_collector_that_is_away_costs_spans_and_nothing_else(tmp_path: Path) -> None:
    tracer = setup_tracing(Settings(otlp_endpoint="http://127.0.0.1:9"), "worker", "1")
    pipeline = Pipeline(tmp_path, tracer=tracer).start()
    (record,) = pipeline.finish(pipeline.submit((1.0,), traceparent=CALLER))
    pipeline.close()
    assert tracer is not None
    tracer.close(0.2)

    assert record.state is JobState.SUCCEEDED


def test_a_process_without_traces_imports_nothing_for_them() -> None:
    done = subprocess.run([sys.executable, "-c", OFF], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout == "[]\n"


@pytest.mark.parametrize("module", ["api", "workers", "scheduler"])
def test_traces_without_the_extra_end_a_process_with_78(module: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRA.format(module)],
        env=_environment(tmp_path, BATCHFLEET_OTLP_ENDPOINT="http://127.0.0.1:4318"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == EXIT_CONFIG, done.stderr
    assert "pip install 'batchfleet[otel]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "value", ["collector:4318", "ftp://h", "http://", "http://me:pw@h:4318", "http://h:x", "http://h?a"]
)
def test_an_endpoint_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="otlp_endpoint"):
        Settings(otlp_endpoint=value)


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://h:4318", "http://h:4318/v1/traces"),
        ("http://h:4318/", "http://h:4318/v1/traces"),
        ("https://h/otlp/v1/traces", "https://h/otlp/v1/traces"),
    ],
)
def test_traces_go_to_the_path_that_otlp_names_or_to_the_stated_one(endpoint: str, url: str) -> None:
    assert traces_url(endpoint) == url


def _child(number: int) -> str:
    return f"00-{number:032x}-{SPAN}-01"


def _until(holds: Any) -> None:
    """Waits for a condition of another thread that has no event."""
    pause = threading.Event()
    for _ in range(3_000):
        if holds():
            return
        pause.wait(0.01)
    pytest.fail("not in time")


def _environment(folder: Path, **stated: str) -> dict[str, str]:
    return {
        "PATH": "",
        "BATCHFLEET_DATABASE_URL": f"sqlite:///{folder}/batchfleet.db",
        "BATCHFLEET_MODELS_URL": f"file://{folder}/models",
        "BATCHFLEET_BLOB_URL": f"file://{folder}/blobs",
        "BATCHFLEET_STATE_DIR": f"{folder}/state",
        "BATCHFLEET_API_PORT": "0",
        **stated,
    }

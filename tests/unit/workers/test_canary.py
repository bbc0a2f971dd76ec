"""The canary: a few items run again alone; drift alarms, results stay, and nobody is charged for it."""

import dataclasses
import itertools
import logging
import re
import sqlite3
import threading
from collections.abc import Mapping
from pathlib import Path

import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from batchfleet.inference.onnx_runtime import OnnxSession
from batchfleet.inference.registry import LoadedModel
from batchfleet.inference.task import Array, Output
from batchfleet.jobs.job import Lane, format_job_id
from batchfleet.jobs.sql.store import SqlStore
from batchfleet.jobs.states import JobState
from batchfleet.models.config import Limits, Precision, Variant
from batchfleet.models.repository import ModelFiles
from batchfleet.telemetry import Metrics
from tests.support.docpages import blocks_of
from tests.support.pipeline import WAIT_S, Gate, Pipeline
from tests.support.sessions import NumberTask, StubSession
from tests.support.stores import sqlite_url
from workers.active import ActiveJobs
from workers.canary import Canary
from workers.journal import Journal, read_journal

VARIANT = Variant(name="fp32", file="x", runtime="onnx", provider="cpu", precision="fp32")


class DoublingGraph(OnnxSession):
    """Doubles `[rows, 1]`; with `quantised`, at a scale that is taken over the whole batch, as dynamic INT8 does."""

    def __init__(self, *, quantised: bool) -> None:
        nodes = [helper.make_node("Add", ["values", "values"], ["sum" if quantised else "doubled"])]
        if quantised:
            nodes.append(helper.make_node("DynamicQuantizeLinear", ["sum"], ["q", "scale", "zero"]))
            nodes.append(helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["doubled"]))
        sides = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["r", 1]) for name in ("values", "doubled")]
        graph = helper.make_graph(nodes, "doubles", sides[:1], sides[1:])
        model: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        made = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        super().__init__(made, VARIANT)
        self.again = Counted()

    def run(self, feeds: Mapping[str, Array], *, shrink: bool = False) -> dict[str, Array]:
        outputs = super().run(feeds, shrink=shrink)
        self.again(feeds["values"][:, 0].tolist())
        return outputs


class Counted:
    """Counts passes over a single one of the numbers 1 to 8, and lets a test wait for them."""

    def __init__(self) -> None:
        self._seen = 0
        self._changed = threading.Condition()

    def __call__(self, values: list[float]) -> None:
        if len(values) == 1 and 1 <= values[0] <= 8:
            with self._changed:
                self._seen += 1
                self._changed.notify_all()

    def wait(self, number: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._seen >= number, WAIT_S), self._seen


def canary_runs(worker: Pipeline) -> dict[str, float]:
    (family,) = worker.metrics.canary_runs.collect()
    return {sample.labels["outcome"]: sample.value for sample in family.samples if sample.name.endswith("_total")}


@pytest.mark.parametrize("quantised", [True, False])
def test_an_answer_that_depends_on_its_company_alarms_and_stays_as_it_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, quantised: bool
) -> None:
    """Per-tensor dynamic quantisation: 8 small numbers beside a large one lose what they have alone."""
    session = DoublingGraph(quantised=quantised)
    worker = Pipeline(tmp_path, session, canary_share=1.0).start()
    (company,) = worker.submit([*range(1, 9), 1000.0])
    before = worker.finish([company])[0]
    worker.finish(worker.submit([1001.0]))  # the canary looks between two batches
    session.again.wait(8)
    worker.close()

    (after,) = worker.records([company])
    assert after == before
    alarms = [record for record in caplog.records if getattr(record, "action", "") == "canary_drifted"]
    if quantised:
        assert canary_runs(worker)["drifted"] >= 8
        assert [record.levelno for record in alarms] == [logging.ERROR], "one line a minute, not one an item"
        fields = vars(alarms[0])
        assert fields["batch"] in (before.provenance or "")
        assert (fields["model"], fields["batch_items"]) == (str(worker.model), 9)
        assert fields["agreement"] < fields["least"]
    else:
        assert canary_runs(worker) == {"agreed": 9.0}
        assert alarms == []


def test_a_crash_in_the_canary_accuses_a_job_that_has_ended(tmp_path: Path) -> None:
    """It is journaled as any pass, and yet the burial of the boot charges nobody."""
    gate = Gate(lambda values: len(values) == 1 and values[0] in {1.0, 2.0})
    worker = Pipeline(tmp_path, StubSession(gate), canary_share=0.5).start()
    ids = worker.submit([1.0, 2.0])
    worker.finish(ids)
    worker.finish(worker.submit([50.0]))
    assert gate.entered.wait(WAIT_S), "alone, after its job had ended"

    journal = read_journal(worker.journal.path)
    assert journal is not None
    buried = worker.store.bury(worker.boot, journal.accused)
    gate.open.set()
    worker.close()

    assert journal.jobs == tuple(ids)
    assert (buried.requeued, buried.ended) == ((), ())
    (record,) = worker.records(ids)
    assert (record.state, record.crashes) == (JobState.SUCCEEDED, 0)


@pytest.mark.parametrize("fault", ["no memory", "kernel fault"])
def test_an_item_that_fails_in_the_canary_fails_nothing(tmp_path: Path, fault: str) -> None:
    again = Counted()

    def behave(values: list[float]) -> None:
        again(values)
        if values in ([1.0], [2.0]):
            raise RuntimeError(fault)

    worker = Pipeline(tmp_path, StubSession(behave), canary_share=0.5).start()
    ids = worker.submit([1.0, 2.0])
    (before,) = worker.finish(ids)
    worker.finish(worker.submit([50.0]))
    again.wait(1)
    worker.close()

    assert worker.records(ids) == [before]
    assert not worker.unfit.is_set()
    assert canary_runs(worker) == {"failed": 1.0}
    assert b"oom_splits_total{" not in worker.metrics.render()


@pytest.mark.parametrize("lane", [Lane.ONLINE, Lane.STANDARD])
def test_work_that_somebody_asks_for_is_not_held_up(tmp_path: Path, lane: Lane) -> None:
    """While such an item waits the canary does not run; once none does it makes up for it."""
    session = StubSession()
    again, gate = Counted(), Gate(lambda values: 50.0 in values)

    def behave(values: list[float]) -> None:
        again(values)
        gate(values)

    session.behave = behave
    limits = Limits(max_batch_items=2, max_item_tokens=100)
    worker = Pipeline(tmp_path, session, canary_share=0.5, limits=limits).start()
    worker.finish(worker.submit([1.0, 2.0]))
    worker.submit([50.0])
    assert gate.entered.wait(WAIT_S)
    urgent = worker.submit([60.0, 61.0], lane=lane)
    worker.wait_until_waiting(2)
    gate.open.set()
    worker.finish(urgent)
    again.wait(1)
    worker.close()

    looked = next(place for place, run in enumerate(session.runs) if run in ([1.0], [2.0]))
    assert looked > session.runs.index([60.0, 61.0])


def test_behind_a_backlog_one_item_is_looked_at_between_two_batches(tmp_path: Path) -> None:
    session = StubSession()
    gate = Gate(lambda values: 50.0 in values)
    session.behave = gate
    limits = Limits(max_batch_items=2, max_item_tokens=100)
    worker = Pipeline(tmp_path, session, canary_share=1.0, limits=limits).start()
    worker.submit([50.0])
    assert gate.entered.wait(WAIT_S)
    bulk = worker.submit(*([60.0 + 2 * n, 61.0 + 2 * n] for n in range(12)))
    worker.wait_until_waiting(24)
    gate.open.set()
    worker.finish(bulk)
    worker.close()

    last = max(place for place, run in enumerate(session.runs) if len(run) == 2)
    looks = [len(run) == 1 for run in session.runs[:last]]
    assert not any(one and other for one, other in itertools.pairwise(looks[session.runs.index([60.0, 61.0]) :]))


class Rounding(NumberTask):
    """Answers in company differ from those alone by `off`, as rounding elsewhere makes them."""

    def __init__(self, off: float) -> None:
        self._off = off

    def agreement(self, alone: Output, in_company: Output) -> float:
        del alone, in_company
        return 1 - self._off

    @property
    def least_agreement(self) -> float:
        return 0.99999


@pytest.mark.parametrize(
    ("precision", "off", "outcome"),
    [
        ("fp32", 1.7e-5, "drifted"),
        ("int8", 1.7e-5, "drifted"),
        ("bf16", 1.7e-5, "agreed"),
        ("bf16", 2e-4, "drifted"),
    ],
)
def test_an_answer_must_agree_as_its_precision_can(
    tmp_path: Path, precision: Precision, off: float, outcome: str
) -> None:
    """bf16 on the stock model: 6 of 15,595 answers were 1.2e-5 to 1.7e-5 off, which is rounding and no leak."""

    class Precise(Pipeline):
        def _load(self, files: ModelFiles) -> LoadedModel:
            variant = dataclasses.replace(VARIANT, precision=precision)
            return dataclasses.replace(super()._load(files), variant=variant)

    again = Counted()
    worker = Precise(tmp_path, StubSession(again), task=Rounding(off), canary_share=0.5).start()
    worker.finish(worker.submit([1.0, 2.0]))
    worker.finish(worker.submit([50.0]))
    again.wait(1)
    worker.close()

    assert canary_runs(worker) == {outcome: 1.0}


class Incomparable(NumberTask):
    """A task whose measure panics."""

    def agreement(self, alone: Output, in_company: Output) -> float:
        raise SystemExit(f"{alone} {in_company}")


def test_answers_that_cannot_be_compared_end_nobody(tmp_path: Path) -> None:
    again = Counted()
    worker = Pipeline(tmp_path, StubSession(again), task=Incomparable(), canary_share=0.5).start()
    worker.finish(worker.submit([1.0, 2.0]))
    worker.finish(worker.submit([50.0]))
    again.wait(1)
    worker.finish(worker.submit([3.0]))
    worker.close()

    assert canary_runs(worker) == {"failed": 1.0}


def test_the_share_is_kept_over_batches_of_any_size(tmp_path: Path) -> None:
    canary, off = (Canary(share, ActiveJobs(), Journal(tmp_path / str(share)), Metrics()) for share in (0.1, 0.0))

    picked = [canary.picks(count, of=count) for count in [7, 1, 32, 3, 64, 1] * 20]

    assert sum(len(places) for places in picked) == pytest.approx(0.1 * 20 * (7 + 32 + 3 + 64), abs=1)
    assert all(len(set(places)) == len(places) for places in picked)
    assert not any(off.picks(64, of=64) for _ in range(99))
    assert canary.picks(1, of=1) == (), "an item that ran alone had no company"


def test_the_company_of_an_item_is_found_as_the_documentation_says(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path)
    store = SqlStore(url)
    worker = Pipeline(tmp_path, store=store).start()
    records = [*worker.finish(worker.submit([5.0])), *worker.finish(worker.submit([1.0], [2.0], [3.0]))]
    worker.close()
    store.close()
    ran = {format_job_id(record.id): str(record.provenance) for record in records}

    (block,) = (block for block in blocks_of("docs/explanation/batching.md") if block.language == "sql")
    for batch in {batch for stored in ran.values() for batch in re.findall(r'"batch":"(\w+)"', stored)}:
        statement, put = re.subn(r'(?<="batch":")[0-9a-f]{32}(?=")', batch, block.text)
        assert put == 1
        with sqlite3.connect(url.removeprefix("sqlite:///")) as database:
            found = {job for (job,) in database.execute(statement)}
        database.close()
        assert found == {job for job, stored in ran.items() if batch in stored}
        assert found


def test_the_time_of_a_second_run_is_not_work(tmp_path: Path) -> None:
    """Devices busy are busy for jobs: what a backlog is divided by."""
    again = Counted()
    before: list[float] = []

    def busy() -> float:
        (family,) = worker.metrics.device_busy_seconds.collect()
        return sum(sample.value for sample in family.samples if sample.name.endswith("_total"))

    def behave(values: list[float]) -> None:
        if values in ([1.0], [2.0]):
            before.append(busy())
        again(values)

    worker = Pipeline(tmp_path, StubSession(behave), canary_share=0.5).start()
    worker.finish(worker.submit([1.0, 2.0]))
    worker.finish(worker.submit([50.0]))
    again.wait(1)
    worker.close()

    assert canary_runs(worker) == {"agreed": 1.0}
    assert before == [busy()]
    assert busy() > 0

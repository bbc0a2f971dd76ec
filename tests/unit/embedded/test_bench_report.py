"""The report has the keys of the contract, and says when the fleet's vectors are not the loop's."""

import json

import numpy as np
import pytest

from batchfleet.embedded.bench.fleet import FleetRun
from batchfleet.embedded.bench.loop import LoopRun
from batchfleet.embedded.bench.plans import Plan
from batchfleet.embedded.bench.report import Report
from batchfleet.embedded.figures import Figures

CONTRACT = {
    "texts_per_s",
    "loop_texts_per_s",
    "ratio",
    "cpu_ms_per_job",
    "overhead_cpu_ms_per_job",
    "padding_waste",
    "latency_ms",
    "precision",
    "runtime",
}


def report(*, cosine: float = 1.0, visible: bool = True) -> Report:
    roles = ("api", "worker", "scheduler", "valkey", "supervisor", "client", "ended")
    cpu_s = dict.fromkeys(roles, 0.0) | {"worker": 0.2, "client": 0.01}
    figures = Figures({"tokens_real_total": 80.0, "tokens_padded_total": 100.0})
    fleets = [
        FleetRun(["a"] * 100, seconds, 0.1, cpu_s if visible else {}, figures, np.linspace(0.0, 1.0, 101))
        for seconds in (0.4, 0.5, 9.0)
    ]
    vectors = np.ones((100, 4), np.float32)
    loops = [LoopRun(Plan(2, 1, 512), seconds, 0.15, vectors, 0.02) for seconds in (1.0, 0.25, 0.2)]
    return Report(
        texts=100,
        mean_tokens=40.0,
        cores=2,
        workers=2,
        loops=loops,
        fleets=fleets,
        cosine=cosine,
        compared=10,
        how={"precision": "int8", "runtime": "onnx", "provider": "cpu", "variant": "int8"},
    )


def test_the_keys_of_the_contract_are_there() -> None:
    found = report().to_json()

    assert found.keys() >= CONTRACT
    assert found["cpu_ms_per_job"].keys() >= {"api", "worker", "scheduler", "valkey", "supervisor", "client"}
    assert found["latency_ms"] == {"p50": 500.0, "p90": 900.0, "p99": 990.0}
    json.dumps(found)


def test_medians_over_the_rounds() -> None:
    found = report().to_json()

    assert (found["texts_per_s"], found["loop_texts_per_s"], found["ratio"]) == (200.0, 400.0, 0.5)
    assert found["overhead_cpu_ms_per_job"] == pytest.approx(2.1 - 1.5)
    assert found["padding_waste"] == pytest.approx(0.2)


def test_other_vectors_are_no_success() -> None:
    assert report(cosine=0.999995).ok
    bad = report(cosine=0.9999)

    assert not bad.ok
    assert "NOT THE SAME" in bad.to_text()


def test_processes_that_cannot_be_seen_have_no_figures() -> None:
    found = report(visible=False)

    assert found.to_json()["overhead_cpu_ms_per_job"] is None
    assert "cannot be seen" in found.to_text()

"""The report has the keys of the contract, and says when the fleet's vectors are not the loop's."""

import json
from collections.abc import Sequence

import numpy as np
import pytest

from batchfleet.embedded.bench.bulk import BulkFinding
from batchfleet.embedded.bench.fleet import FleetRun
from batchfleet.embedded.bench.generator_worker import Answers
from batchfleet.embedded.bench.load import LoadFinding, LoadPoint
from batchfleet.embedded.bench.loop import LoopRun
from batchfleet.embedded.bench.meter import Cost
from batchfleet.embedded.bench.plans import Plan
from batchfleet.embedded.bench.report import About, Finding, Report
from batchfleet.embedded.bench.served import Served
from batchfleet.embedded.figures import Figures

LOOPS = [LoopRun(Plan(2, 1, 512), seconds, 0.15, np.ones((100, 4), np.float32), 0.02) for seconds in (1.0, 0.25, 0.2)]
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


def bulk(*, cosine: float = 1.0, visible: bool = True) -> BulkFinding:
    roles = ("api", "worker", "scheduler", "valkey", "supervisor", "client", "ended")
    cpu_s = dict.fromkeys(roles, 0.0) | {"worker": 0.2, "client": 0.01}
    figures = Figures({"tokens_real_total": 80.0, "tokens_padded_total": 100.0})
    fleets = [
        FleetRun(
            ["a"] * 100,
            0.1,
            Cost(
                seconds=seconds,
                cpu_s=cpu_s if visible else {},
                rss_mb={"worker-0": seconds * 100} if visible else {},
                figures=figures,
            ),
            np.linspace(0.0, 1.0, 101),
        )
        for seconds in (0.4, 0.5, 9.0)
    ]
    return BulkFinding(texts=100, loops=LOOPS, fleets=fleets, cosine=cosine, compared=10)


def report(*, cosine: float = 1.0, visible: bool = True) -> Report:
    about = About(
        date="2026-12-01 12:00 UTC",
        machine="a CPU (VNNI)",
        cores=2,
        workers=2,
        database="sqlite",
        model="m",
        how={"precision": "int8", "runtime": "onnx", "provider": "cpu", "variant": "int8"},
        versions={"python": "3"},
        texts=100,
        mean_tokens=40.0,
        workload={},
        loop_plan="a plan",
    )
    findings: dict[str, Finding] = {
        "bulk": bulk(cosine=cosine, visible=visible),
        "load": LoadFinding(100.0, [point(0.5), point(1.0)]),
    }
    return Report(about=about, findings=findings, cosine=cosine, compared=10)


def served(*, statuses: Sequence[int] = (200, 200, 202, 0)) -> Served:
    """Four requests of which two succeeded, after 10 and 20 ms."""
    count = len(statuses)
    answers = Answers(
        from_s=np.zeros(count),
        until_s=np.array([0.01, 0.02, 0.5, np.nan]),
        late_s=np.zeros(count),
        statuses=np.array(statuses, np.int16),
        succeeded=np.array([status == 200 for status in statuses]),
        kept={},
        cpu_s=0.001,
        connections=1,
    )
    cost = Cost(seconds=0.5, cpu_s={"worker": 0.006, "api": 0.001, "client": 9.0}, rss_mb={"worker-0": 300.0})
    return Served(answers, ["online", "bulk", "online", "online"], cost, LOOPS[0])


def point(share: float) -> LoadPoint:
    return LoadPoint(share, 100.0 * share, served(statuses=(200, 200, 202, 429)))


def test_the_keys_of_the_contract_are_there() -> None:
    found = report().to_json()

    assert found.keys() >= CONTRACT
    assert found["cpu_ms_per_job"].keys() >= {"api", "worker", "scheduler", "valkey", "supervisor", "client"}
    latency = found["latency_ms"]
    assert (latency["p50"], latency["p90"], latency["p99"]) == pytest.approx((500.0, 900.0, 990.0), rel=1e-3)
    assert found["rss_mb"] == {"worker-0": 900.0}
    assert found["scenarios"]["bulk"]["texts_per_s"] == found["texts_per_s"]
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


def test_what_was_served_is_counted_by_its_end() -> None:
    found = served().to_json()

    assert found["answers"] == {"lost": 1, "200": 2, "202": 1}
    assert (found["requests"], found["succeeded"]) == (4, 2)
    assert found["latency_ms"]["max"] == pytest.approx(20.0, rel=1e-3)
    assert found["latency_ms_by_lane"]["online"]["max"] == pytest.approx(10.0, rel=1e-3)
    assert found["overhead_cpu_ms_per_job"] == pytest.approx(3.5 - 1.5)  # neither the generator's nor the client's
    assert found["generator_cpu_ms_per_job"] == 0.5


def test_a_scenario_that_lost_an_answer_is_no_success() -> None:
    whole = report()
    torn = Report(
        about=whole.about,
        findings={"load": LoadFinding(100.0, [LoadPoint(1.0, 100.0, served())])},
        cosine=1.0,
        compared=1,
    )

    assert whole.ok
    assert not torn.ok
    assert "NOT DONE" in torn.to_text()
    assert torn.to_json()["scenarios"]["load"]["ok"] is False


def test_the_picture_shows_the_measured_loads() -> None:
    picture = report().to_svg()

    assert "100%" in picture
    assert "int8 (int8) on onnx/cpu" in picture

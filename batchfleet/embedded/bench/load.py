"""Scenario `load`: arrivals in an open loop, at shares of the peak; latency against load."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from batchfleet.embedded.bench.served import Served, in_words
from batchfleet.embedded.bench.stage import Stage
from batchfleet.embedded.bench.workload import lanes_of, poisson_arrivals


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """One offered load.

    Attributes:
        share: Of the peak.
        offered_per_s: Requests a second that arrived.
    """

    share: float
    offered_per_s: float
    served: Served

    def to_json(self) -> dict[str, Any]:
        """Returns all figures of it."""
        return {
            "share_of_peak": self.share,
            "offered_per_s": round(self.offered_per_s, 1),
            "goodput_per_s": round(self.served.texts_per_s, 1),
            **self.served.to_json(),
        }


@dataclass(frozen=True, slots=True)
class LoadFinding:
    """What was found."""

    peak: float
    points: Sequence[LoadPoint]

    @property
    def ok(self) -> bool:
        """Whether every request was answered, and none by a failure."""
        return all({int(code) for code in point.served.answers.statuses} <= {200, 202, 429} for point in self.points)

    def to_json(self) -> dict[str, Any]:
        """Returns all figures of it."""
        return {"peak_texts_per_s": round(self.peak, 1), "points": [point.to_json() for point in self.points]}

    def rows(self) -> list[tuple[str, str]]:
        """Returns the same for people."""
        rows = [("peak", f"{self.peak:.1f} texts/s, of the closed loop")]
        for point in self.points:
            found = point.to_json()
            overhead = found["overhead_cpu_ms_per_job"]
            rows += [
                (f"at {point.share:.0%}", f"{found['offered_per_s']}/s offered, {found['goodput_per_s']}/s done"),
                ("", f"latency ms  {in_words(found['latency_ms'])}"),
                ("", f"queue ms    {in_words(found['queue_wait_ms'])}"),
                (
                    "",
                    f"{found['mean_batch_items']} items a pass, padding {found['padding_waste']:.1%}, CPU "
                    + ("not seen" if overhead is None else f"{overhead:.3f} ms a job over the loop's"),
                ),
                ("", f"answers     {in_words(found['answers'])}"),
            ]
        memory = self.points[-1].served.cost.rss_mb
        return [*rows, *([("RSS MiB", in_words(memory))] if memory else [])]


def run_load(stage: Stage) -> LoadFinding:
    """Runs it."""
    peak = stage.measured_peak()
    loop = stage.reference()
    points = []
    for number, share in enumerate(stage.spec.loads):
        due_s = poisson_arrivals(share * peak, stage.spec.duration_s, stage.spec.seed + number)
        served = stage.open(due_s, lanes_of(len(due_s), stage.spec.lane_mix, stage.spec.seed), loop)
        points.append(LoadPoint(share, len(due_s) / stage.spec.duration_s, served))
        stage.say(f"at {share:.0%} of the peak: latency ms {in_words(served.latencies().percentiles_ms())}")
        stage.drain()
    return LoadFinding(peak, points)

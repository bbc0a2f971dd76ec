"""Scenario `overload`: twice the peak is offered; what is done meanwhile, what is refused, and how memory behaves."""

from dataclasses import dataclass
from typing import Any

from batchfleet.embedded.bench.served import Served, in_words
from batchfleet.embedded.bench.stage import Stage
from batchfleet.embedded.bench.workload import lanes_of, poisson_arrivals

_FACTOR = 2.0
_WAIT_S = 2.0
"""A caller's patience; the job goes on without him, and is asked for later."""


@dataclass(frozen=True, slots=True)
class OverloadFinding:
    """What was found.

    Attributes:
        offered_per_s: Requests a second that arrived.
        lost: Jobs that were accepted and had not succeeded when all was done.
    """

    peak: float
    offered_per_s: float
    served: Served
    lost: int

    @property
    def goodput_per_s(self) -> float:
        """Jobs a second that succeeded while there was more than the fleet could do, answered in time or not."""
        return self.served.cost.succeeded / self.served.cost.seconds

    @property
    def ok(self) -> bool:
        """Whether nothing accepted was lost, and every answer says what is: done, not yet, or refused."""
        return not self.lost and {int(code) for code in self.served.answers.statuses} <= {200, 202, 429}

    def to_json(self) -> dict[str, Any]:
        """Returns all figures of it. CPU is of all jobs that were done meanwhile."""
        found = self.served.to_json()
        answers = self.served.statuses()
        return {
            **found,
            "peak_texts_per_s": round(self.peak, 1),
            "offered_per_s": round(self.offered_per_s, 1),
            "goodput_per_s": round(self.goodput_per_s, 1),
            "goodput_of_peak": round(self.goodput_per_s / self.peak, 3),
            "patience_s": _WAIT_S,
            "answered_in_time": answers.get("200", 0),
            "answered_later": answers.get("202", 0),
            "refused": answers.get("429", 0),
            "lost_jobs": self.lost,
            "texts_per_s": round(self.goodput_per_s, 1),
            "ratio": round(self.goodput_per_s / self.served.loop.texts_per_s, 3),
        }

    def rows(self) -> list[tuple[str, str]]:
        """Returns the same for people."""
        found = self.to_json()
        return [
            ("offered", f"{found['offered_per_s']}/s, {_FACTOR:g} x the peak of {self.peak:.1f}"),
            ("goodput", f"{found['goodput_per_s']}/s, {found['goodput_of_peak']:.3f} of the peak"),
            (
                "answers",
                (
                    f"{found['answered_in_time']} within {_WAIT_S:g} s, {found['answered_later']} later (202), "
                    f"{found['refused']} refused (429); {self.lost} of those accepted lost"
                ),
            ),
            ("latency ms", f"{in_words(found['latency_ms'])}   of those answered in time"),
            ("batches", f"{found['mean_batch_items']} items on average, padding {found['padding_waste']:.1%}"),
            *([("RSS MiB", in_words(found["rss_mb"]))] if found["rss_mb"] else []),
        ]


def run_overload(stage: Stage) -> OverloadFinding:
    """Runs it, and waits until what was accepted is done."""
    peak = stage.measured_peak()
    loop = stage.reference()
    whole = stage.meter()
    whole.start()
    due_s = poisson_arrivals(_FACTOR * peak, stage.spec.duration_s, stage.spec.seed)
    served = stage.open(due_s, lanes_of(len(due_s), stage.spec.lane_mix, stage.spec.seed), loop, wait_s=_WAIT_S)
    stage.drain()
    accepted = sum(served.statuses().get(status, 0) for status in ("200", "202"))
    return OverloadFinding(peak, len(due_s) / stage.spec.duration_s, served, accepted - whole.stop().succeeded)

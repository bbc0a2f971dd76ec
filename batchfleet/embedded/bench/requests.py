"""Scenario `requests`: one text a request, callers who wait for their answer, against the loop in turns."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from statistics import median
from typing import Any

from batchfleet.embedded.bench.served import Served
from batchfleet.embedded.bench.stage import Stage


@dataclass(frozen=True, slots=True)
class RequestsFinding:
    """Its rounds."""

    callers: int
    rounds: Sequence[Served]

    @property
    def texts_per_s(self) -> float:
        """The median over the rounds."""
        return median(served.texts_per_s for served in self.rounds)

    @property
    def ok(self) -> bool:
        """Whether every request was answered by a job that succeeded."""
        return all(bool(served.answers.succeeded.all()) for served in self.rounds)

    def to_json(self) -> dict[str, Any]:
        """Returns the figures of the median round, with throughputs and latencies over all rounds."""
        loop_texts_per_s = median(served.loop.texts_per_s for served in self.rounds)
        return {
            "callers": self.callers,
            **self._median().to_json(),
            "texts_per_s": round(self.texts_per_s, 1),
            "loop_texts_per_s": round(loop_texts_per_s, 1),
            "ratio": round(self.texts_per_s / loop_texts_per_s, 3),
            "rounds_texts_per_s": [round(served.texts_per_s, 1) for served in self.rounds],
            "rounds_loop_texts_per_s": [round(served.loop.texts_per_s, 1) for served in self.rounds],
            "latency_ms": reduce(add, (served.latencies() for served in self.rounds)).percentiles_ms(),
        }

    def rows(self) -> list[tuple[str, str]]:
        """Returns the same for people."""
        found = self.to_json()
        return [
            ("callers", f"{self.callers}, each with one request at a time; {len(self.rounds)} round(s)"),
            ("fleet", f"{self.texts_per_s:.1f} texts/s   rounds {found['rounds_texts_per_s']}"),
            ("best loop", f"{found['loop_texts_per_s']} texts/s   rounds {found['rounds_loop_texts_per_s']}"),
            ("ratio", f"{found['ratio']:.3f}"),
            ("of these", "the median round"),
            *self._median().rows(),
        ]

    def _median(self) -> Served:
        return sorted(self.rounds, key=lambda served: served.texts_per_s)[len(self.rounds) // 2]


def run_requests(stage: Stage) -> RequestsFinding:
    """Runs it; its throughput is the peak of the scenarios that come after."""
    stage.closed(min(len(stage.texts), 4 * stage.spec.callers), stage.reference())  # warms up
    rounds = []
    for number in range(stage.spec.rounds):
        rounds.append(stage.closed(len(stage.texts), stage.loop.run(stage.texts)))
        served = rounds[-1]
        stage.say(f"round {number + 1}: loop {served.loop.texts_per_s:.1f} texts/s, fleet {served.texts_per_s:.1f}")
    finding = RequestsFinding(stage.spec.callers, rounds)
    stage.peak = finding.texts_per_s
    return finding

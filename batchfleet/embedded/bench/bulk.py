"""Scenario `bulk`: all texts by bulk submission, and the loop over the same texts, in turns."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from batchfleet.embedded.bench.fleet import FleetRun, run_fleet, vectors, worst_cosine
from batchfleet.embedded.bench.histogram import Histogram
from batchfleet.embedded.bench.loop import LoopRun
from batchfleet.embedded.bench.served import in_words
from batchfleet.embedded.bench.stage import MIN_COSINE, Stage

_WARM_UP = 300
_COMPARED = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkFinding:
    """Its rounds; figures are medians over them.

    Attributes:
        cosine: The worst agreement of the vectors compared.
    """

    texts: int
    loops: Sequence[LoopRun]
    fleets: Sequence[FleetRun]
    cosine: float
    compared: int

    @property
    def texts_per_s(self) -> float:
        """The fleet's throughput."""
        return self.texts / median(run.seconds for run in self.fleets)

    @property
    def loop_texts_per_s(self) -> float:
        """The loop's throughput."""
        return self.texts / median(run.seconds for run in self.loops)

    @property
    def ok(self) -> bool:
        """Whether the fleet's vectors are the loop's."""
        return self.cosine >= MIN_COSINE

    def cpu_ms_per_job(self) -> dict[str, float]:
        """Returns CPU milliseconds a job by role, each the median over the rounds."""
        roles = self.fleets[0].cost.cpu_s
        return {role: median(run.cost.cpu_s[role] for run in self.fleets) * 1e3 / self.texts for role in roles}

    def loop_cpu_ms_per_text(self) -> float:
        """Returns the loop's CPU milliseconds a text."""
        return median(run.cpu_s for run in self.loops) * 1e3 / self.texts

    def overhead_ms_per_job(self) -> float | None:
        """Returns the CPU that a job costs in the fleet, client included, over what its text costs in the loop."""
        if not self.fleets[0].cost.cpu_s:
            return None
        totals = [sum(run.cost.cpu_s.values()) * 1e3 / self.texts for run in self.fleets]
        return median(totals) - self.loop_cpu_ms_per_text()

    def latency_ms(self) -> dict[str, float]:
        """Returns percentiles of the time from submission to end, over all rounds."""
        return Histogram.of(np.concatenate([run.latencies_s for run in self.fleets])).percentiles_ms()

    def rss_mb(self) -> dict[str, float]:
        """Returns the most memory of each part in any round."""
        names = {name for run in self.fleets for name in run.cost.rss_mb}
        return {name: max(run.cost.rss_mb.get(name, 0.0) for run in self.fleets) for name in sorted(names)}

    def padding_waste(self) -> float:
        """Returns the share of padding among the tokens that the fleet ran."""
        return median(run.cost.figures.padding_waste for run in self.fleets)

    def to_json(self) -> dict[str, Any]:
        """Returns the keys of the contract (DESIGN, "Budgets"), and what else helps to judge them."""
        cpu, overhead = self.cpu_ms_per_job(), self.overhead_ms_per_job()
        return {
            "rounds": len(self.fleets),
            "texts_per_s": round(self.texts_per_s, 1),
            "loop_texts_per_s": round(self.loop_texts_per_s, 1),
            "ratio": round(self.texts_per_s / self.loop_texts_per_s, 3),
            "rounds_texts_per_s": [round(self.texts / run.seconds, 1) for run in self.fleets],
            "rounds_loop_texts_per_s": [round(self.texts / run.seconds, 1) for run in self.loops],
            "cpu_ms_per_job": {role: round(value, 4) for role, value in cpu.items()},
            "cpu_ms_per_1000_jobs": {role: round(value * 1e3, 1) for role, value in cpu.items()},
            "loop_cpu_ms_per_text": round(self.loop_cpu_ms_per_text(), 4),
            "overhead_cpu_ms_per_job": None if overhead is None else round(overhead, 4),
            "submit_s": round(median(run.submit_s for run in self.fleets), 3),
            "padding_waste": round(self.padding_waste(), 4),
            "loop_padding_waste": round(self.loops[0].padding_waste, 4),
            "latency_ms": {name: round(value, 1) for name, value in self.latency_ms().items()},
            "mean_batch_items": round(median(run.cost.figures.mean("batch_items") for run in self.fleets), 1),
            "rss_mb": self.rss_mb(),
            "compared": self.compared,
        }

    def rows(self) -> list[tuple[str, str]]:
        """Returns the same for people."""
        found = self.to_json()
        rows = [
            ("fleet", f"{self.texts_per_s:.1f} texts/s   rounds {found['rounds_texts_per_s']}"),
            ("best loop", f"{self.loop_texts_per_s:.1f} texts/s   rounds {found['rounds_loop_texts_per_s']}"),
            ("ratio", f"{found['ratio']:.3f}"),
            *self._cpu_rows(),
            ("padding", f"{self.padding_waste():.1%} (loop {self.loops[0].padding_waste:.1%})"),
            ("batches", f"{found['mean_batch_items']} items on average"),
            ("latency ms", in_words(found["latency_ms"])),
            ("", "all submitted at once: this is queueing"),
        ]
        return rows + ([("RSS MiB", in_words(found["rss_mb"]))] if found["rss_mb"] else [])

    def _cpu_rows(self) -> list[tuple[str, str]]:
        roles, overhead = self.cpu_ms_per_job(), self.overhead_ms_per_job()
        loop = f"loop {self.loop_cpu_ms_per_text():.3f} a text"
        if overhead is None:
            return [("CPU ms/job", f"{loop}; the fleet's processes cannot be seen from here")]
        parts = "  ".join(f"{role} {value:.3f}" for role, value in roles.items())
        return [
            ("CPU ms/job", f"{sum(roles.values()):.3f}   {parts}"),
            ("", f"{loop}; overhead {overhead:.3f} a job, client included"),
        ]


def run_bulk(stage: Stage) -> BulkFinding:
    """Runs it."""
    texts, client, model = stage.texts, stage.client, stage.model
    run_fleet(client, model, texts[:_WARM_UP], stage.meter())
    loops, fleets = [], []
    for number in range(stage.spec.rounds):
        loops.append(stage.loop.run(texts))
        fleets.append(run_fleet(client, model, texts, stage.meter()))
        fleet_texts_per_s = len(texts) / fleets[-1].seconds
        stage.say(
            f"round {number + 1}: loop {loops[-1].texts_per_s:.1f} texts/s, fleet {fleet_texts_per_s:.1f} texts/s"
        )
    picked = sorted(random.Random(1).sample(range(len(texts)), min(_COMPARED, len(texts))))  # noqa: S311 - a sample
    rows = vectors(client, [fleets[-1].ids[index] for index in picked])
    cosine = worst_cosine(rows, loops[-1].vectors[picked])
    return BulkFinding(texts=len(texts), loops=loops, fleets=fleets, cosine=cosine, compared=len(picked))

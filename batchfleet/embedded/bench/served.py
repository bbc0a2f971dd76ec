"""Requests that the generator sent, what became of them, and what they cost: as JSON and as text."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from batchfleet.embedded.bench.generator_worker import Answers
from batchfleet.embedded.bench.histogram import Histogram
from batchfleet.embedded.bench.loop import LoopRun
from batchfleet.embedded.bench.meter import Cost

LOST = "lost"
"""Instead of a status: nobody answered."""


@dataclass(frozen=True, slots=True)
class Served:
    """One piece of the generator's work.

    Attributes:
        answers: What came back.
        lanes: Of each request.
        cost: Of the fleet meanwhile.
        loop: The in-process loop on the same machine, at another moment of the same run.
    """

    answers: Answers
    lanes: Sequence[str]
    cost: Cost
    loop: LoopRun

    @property
    def succeeded(self) -> int:
        """Requests that were answered by a job that has succeeded."""
        return int(self.answers.succeeded.sum())

    @property
    def seconds(self) -> float:
        """From the start to the last answer."""
        until = self.answers.until_s
        return float(np.nanmax(until)) if np.isfinite(until).any() else self.cost.seconds

    @property
    def texts_per_s(self) -> float:
        """Succeeded requests a second."""
        return self.succeeded / self.seconds

    def latencies(self, lane: str | None = None) -> Histogram:
        """Returns the latencies of what succeeded, of one lane or of all."""
        chosen = self.answers.succeeded.copy()
        if lane is not None:
            chosen &= np.array([one == lane for one in self.lanes], np.bool_)
        return Histogram.of((self.answers.until_s - self.answers.from_s)[chosen])

    def statuses(self) -> dict[str, int]:
        """Returns how many answers had each HTTP status; `lost` where there was none."""
        counts = Counter(int(status) for status in self.answers.statuses)
        return {str(status) if status else LOST: count for status, count in sorted(counts.items())}

    def to_json(self) -> dict[str, Any]:
        """Returns all figures of it."""
        figures = self.cost.figures
        lanes = sorted(set(self.lanes))
        found: dict[str, Any] = {
            "requests": len(self.answers.statuses),
            "succeeded": self.succeeded,
            "answers": self.statuses(),
            "seconds": round(self.seconds, 2),
            "texts_per_s": round(self.texts_per_s, 1),
            "loop_texts_per_s": round(self.loop.texts_per_s, 1),
            "ratio": round(self.texts_per_s / self.loop.texts_per_s, 3),
            "latency_ms": self.latencies().percentiles_ms(),
            "queue_wait_ms": {
                "mean": round(figures.mean("queue_wait_seconds") * 1e3, 2),
                **{f"p{share:.0%}"[:-1]: _queue_wait_ms(self.cost, share) for share in (0.5, 0.9, 0.99)},
            },
            **cpu_json(self.cost, self.succeeded, self.loop, self.answers.cpu_s),
            "padding_waste": round(figures.padding_waste, 4),
            "mean_batch_items": round(figures.mean("batch_items"), 1),
            "rss_mb": dict(self.cost.rss_mb),
            "connections": self.answers.connections,
            "generator_late_ms": Histogram.of(self.answers.late_s).percentiles_ms(),
        }
        if len(lanes) > 1:
            found["latency_ms_by_lane"] = {lane: self.latencies(lane).percentiles_ms() for lane in lanes}
        return found

    def rows(self) -> list[tuple[str, str]]:
        """Returns the same for people."""
        found = self.to_json()
        rows = [
            ("answers", f"{in_words(found['answers'])} in {found['seconds']:.1f} s"),
            ("texts/s", f"{found['texts_per_s']} (loop {found['loop_texts_per_s']}, ratio {found['ratio']:.3f})"),
            ("latency ms", in_words(found["latency_ms"])),
            *((f"  {lane}", in_words(found)) for lane, found in found.get("latency_ms_by_lane", {}).items()),
            ("queue ms", in_words(found["queue_wait_ms"])),
            *cpu_rows(found),
            ("batches", f"{found['mean_batch_items']} items on average, padding {found['padding_waste']:.1%}"),
        ]
        return rows + ([("RSS MiB", in_words(found["rss_mb"]))] if found["rss_mb"] else [])


def cpu_json(cost: Cost, jobs: int, loop: LoopRun, generator_s: float) -> dict[str, Any]:
    """Returns CPU milliseconds a job: by process, of the generator, of the loop, and what the fleet adds to that."""
    fleet = cost.fleet_cpu_s()
    loop_ms = loop.cpu_s * 1e3 / len(loop.vectors)
    known = fleet is not None and jobs
    by_role = {role: round(value * 1e3 / jobs, 4) for role, value in cost.cpu_s.items()} if known else {}
    return {
        "cpu_ms_per_job": by_role,
        "generator_cpu_ms_per_job": round(generator_s * 1e3 / jobs, 4) if jobs else None,
        "loop_cpu_ms_per_text": round(loop_ms, 4),
        "overhead_cpu_ms_per_job": round(fleet * 1e3 / jobs - loop_ms, 4) if fleet is not None and jobs else None,
    }


def cpu_rows(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns `cpu_json` for people."""
    loop = f"loop {found['loop_cpu_ms_per_text']:.3f} a text"
    generator = found["generator_cpu_ms_per_job"]
    apart = f"; generator {generator:.3f} apart" if generator is not None else ""
    if not found["cpu_ms_per_job"]:
        return [("CPU ms/job", f"{loop}{apart}; the fleet's processes cannot be seen from here")]
    overhead = found["overhead_cpu_ms_per_job"]
    return [
        ("CPU ms/job", in_words(found["cpu_ms_per_job"], "{:.3f}")),
        ("", f"{loop}; overhead {overhead:.3f} a job{apart}"),
    ]


def in_words(values: Mapping[str, Any], form: str = "{:g}") -> str:
    """Returns `name value  name value`."""
    return "  ".join(f"{name} {form.format(round(value, 3))}" for name, value in values.items())


def _queue_wait_ms(cost: Cost, share: float) -> float:
    return round(cost.figures.quantile("queue_wait_seconds", share) * 1e3, 2)

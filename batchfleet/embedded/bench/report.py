"""What a benchmark run found, as JSON and as text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from batchfleet.embedded.bench.fleet import FleetRun
from batchfleet.embedded.bench.loop import LoopRun

MIN_COSINE = 0.99999
"""The least that a vector of the fleet and the loop's own may agree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All runs of a benchmark; figures are medians over its rounds.

    Attributes:
        cosine: The worst agreement of the vectors compared.
        how: Provenance of a result: precision, runtime, provider, variant.
    """

    texts: int
    mean_tokens: float
    cores: int
    workers: int | None
    loops: Sequence[LoopRun]
    fleets: Sequence[FleetRun]
    cosine: float
    compared: int
    how: Mapping[str, object]

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
        roles = self.fleets[0].cpu_s
        return {role: median(run.cpu_s[role] for run in self.fleets) * 1e3 / self.texts for role in roles}

    def loop_cpu_ms_per_text(self) -> float:
        """Returns the loop's CPU milliseconds a text."""
        return median(run.cpu_s for run in self.loops) * 1e3 / self.texts

    def overhead_ms_per_job(self) -> float | None:
        """Returns the CPU that a job costs in the fleet, client included, over what its text costs in the loop."""
        if not self.fleets[0].cpu_s:
            return None
        totals = [sum(run.cpu_s.values()) * 1e3 / self.texts for run in self.fleets]
        return median(totals) - self.loop_cpu_ms_per_text()

    def latency_ms(self) -> dict[str, float]:
        """Returns percentiles of the time from submission to end, over all rounds."""
        every = np.concatenate([run.latencies_s for run in self.fleets]) * 1e3
        return {name: float(np.percentile(every, share)) for name, share in (("p50", 50), ("p90", 90), ("p99", 99))}

    def padding_waste(self) -> float:
        """Returns the share of padding among the tokens that the fleet ran."""
        return median(run.figures.padding_waste for run in self.fleets)

    def to_json(self) -> dict[str, Any]:
        """Returns the keys of the contract (DESIGN, "Budgets"), and what else helps to judge them."""
        cpu, overhead = self.cpu_ms_per_job(), self.overhead_ms_per_job()
        return {
            "texts": self.texts,
            "mean_tokens": round(self.mean_tokens, 1),
            "rounds": len(self.fleets),
            "cores": self.cores,
            "workers": self.workers,
            "texts_per_s": round(self.texts_per_s, 1),
            "loop_texts_per_s": round(self.loop_texts_per_s, 1),
            "ratio": round(self.texts_per_s / self.loop_texts_per_s, 3),
            "rounds_texts_per_s": [round(self.texts / run.seconds, 1) for run in self.fleets],
            "rounds_loop_texts_per_s": [round(self.texts / run.seconds, 1) for run in self.loops],
            "loop_plan": str(self.loops[0].plan),
            "cpu_ms_per_job": {role: round(value, 4) for role, value in cpu.items()},
            "cpu_ms_per_1000_jobs": {role: round(value * 1e3, 1) for role, value in cpu.items()},
            "loop_cpu_ms_per_text": round(self.loop_cpu_ms_per_text(), 4),
            "overhead_cpu_ms_per_job": None if overhead is None else round(overhead, 4),
            "submit_s": round(median(run.submit_s for run in self.fleets), 3),
            "padding_waste": round(self.padding_waste(), 4),
            "loop_padding_waste": round(self.loops[0].padding_waste, 4),
            "latency_ms": {name: round(value, 1) for name, value in self.latency_ms().items()},
            "mean_batch_items": round(median(run.figures.mean("batch_items") for run in self.fleets), 1),
            "min_cosine": round(self.cosine, 7),
            "precision": self.how.get("precision"),
            "runtime": self.how.get("runtime"),
            "provider": self.how.get("provider"),
            "variant": self.how.get("variant"),
            "ok": self.ok,
        }

    def to_text(self) -> str:
        """Returns the same for people."""
        found = self.to_json()
        build = f"{found['variant']} ({found['precision']}) on {found['runtime']}/{found['provider']}"
        rows = [
            ("texts", f"{self.texts}, {self.mean_tokens:.1f} tokens on average; {len(self.fleets)} round(s)"),
            ("machine", f"{self.cores} core(s), {self.workers or '?'} worker(s); {build}"),
            ("fleet", f"{self.texts_per_s:.1f} texts/s   rounds {found['rounds_texts_per_s']}"),
            ("best loop", f"{self.loop_texts_per_s:.1f} texts/s   rounds {found['rounds_loop_texts_per_s']}"),
            ("", str(found["loop_plan"])),
            ("ratio", f"{found['ratio']:.3f}"),
            *self._cpu_rows(),
            ("padding", f"{self.padding_waste():.1%} (loop {self.loops[0].padding_waste:.1%})"),
            ("batches", f"{found['mean_batch_items']} items on average"),
            ("latency ms", "  ".join(f"{name} {value:.0f}" for name, value in self.latency_ms().items())),
            ("", "all submitted at once: this is queueing"),
            ("vectors", f"worst cosine to the loop's {self.cosine:.7f}, {self.compared} compared"),
        ]
        if not self.ok:
            rows.append(("", "NOT THE SAME: the fleet's vectors are not the loop's"))
        return "\n".join(f"{name:11} {text}" for name, text in rows)

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

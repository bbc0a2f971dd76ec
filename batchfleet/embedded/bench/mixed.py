"""Scenario `mixed`: callers who wait, alone and with a backlog of bulk jobs behind them."""

import math
from dataclasses import dataclass
from typing import Any

from batchfleet.client import JobRequest
from batchfleet.embedded.bench.fleet import submit_all
from batchfleet.embedded.bench.served import Served, in_words
from batchfleet.embedded.bench.stage import Stage
from batchfleet.embedded.bench.workload import poisson_arrivals

_SHARE = 0.2
"""Of the peak: a rate at which callers alone would not disturb each other."""
_BACKLOG = 1.3
"""Bulk jobs for so much more time than the callers take, at the loop's rate, which the fleet does not exceed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedFinding:
    """What was found.

    Attributes:
        offered_per_s: Requests a second of the callers.
        backlog: Bulk jobs submitted before the callers of the second half came.
        left: Of them, not done when the callers had gone: over 0, or there was not always a backlog.
        max_pass_ms: What the model's configuration allows a pass.
    """

    offered_per_s: float
    alone: Served
    behind: Served
    backlog: int
    left: int
    max_pass_ms: float

    @property
    def ok(self) -> bool:
        """Whether all callers were answered, and the backlog lasted."""
        return self.left > 0 and all(bool(half.answers.succeeded.all()) for half in (self.alone, self.behind))

    def growth_ms(self, share: float) -> float:
        """Returns how much a percentile of the callers' latency grows by the backlog."""
        return self.behind.latencies().percentile_ms(share) - self.alone.latencies().percentile_ms(share)

    def longest_pass_ms(self) -> float:
        """Returns the upper bound of the longest pass with the backlog, as coarse as the metric's buckets."""
        passes = self.behind.cost.figures.distribution("pass_seconds")
        return passes[-1][0] * 1e3 if passes else math.nan

    def to_json(self) -> dict[str, Any]:
        """Returns all figures of it."""
        longest = self.longest_pass_ms()
        return {
            "offered_per_s": round(self.offered_per_s, 1),
            "alone": self.alone.to_json(),
            "behind_backlog": self.behind.to_json(),
            "online_p50_growth_ms": round(self.growth_ms(50), 3),
            "online_p99_growth_ms": round(self.growth_ms(99), 3),
            "max_pass_ms": self.max_pass_ms,
            "pass_ms": {
                "mean": round(self.behind.cost.figures.mean("pass_seconds") * 1e3, 2),
                "p99": round(self.behind.cost.figures.quantile("pass_seconds", 0.99) * 1e3, 2),
                "longest_at_most": round(longest, 2) if math.isfinite(longest) else None,
            },
            "backlog_jobs": self.backlog,
            "backlog_left": self.left,
            "rss_mb": dict(self.behind.cost.rss_mb),
        }

    def rows(self) -> list[tuple[str, str]]:
        """Returns the same for people."""
        found = self.to_json()
        lasted = "" if self.left else ": IT DID NOT LAST, the growth is not that of a whole backlog"
        return [
            ("callers", f"{found['offered_per_s']}/s, {_SHARE:.0%} of the peak"),
            ("alone", f"latency ms {in_words(found['alone']['latency_ms'])}"),
            ("backlog", f"latency ms {in_words(found['behind_backlog']['latency_ms'])}"),
            ("", f"{self.backlog} bulk jobs, {self.left} of them left at the end{lasted}"),
            ("growth ms", f"p50 {found['online_p50_growth_ms']:g}  p99 {found['online_p99_growth_ms']:g}"),
            ("a pass ms", f"{in_words({k: v for k, v in found['pass_ms'].items() if v is not None})}"),
            ("", f"max_pass_ms of the model: {self.max_pass_ms:g}"),
            *([("RSS MiB", in_words(found["rss_mb"]))] if found["rss_mb"] else []),
        ]


def run_mixed(stage: Stage) -> MixedFinding:
    """Runs it."""
    peak = stage.measured_peak()
    loop = stage.reference()
    due_s = poisson_arrivals(_SHARE * peak, stage.spec.duration_s, stage.spec.seed)
    lanes = ["online"] * len(due_s)
    alone = stage.open(due_s, lanes, loop)
    backlog = math.ceil(_BACKLOG * max(peak, loop.texts_per_s) * stage.spec.duration_s) + stage.spec.callers
    texts = stage.texts
    submit_all(
        stage.client,
        [JobRequest(model=stage.model, inputs=[texts[number % len(texts)]], lane="bulk") for number in range(backlog)],
    )
    behind = stage.open(due_s, lanes, loop)
    left = stage.waiting_jobs()
    stage.drain()
    return MixedFinding(
        offered_per_s=len(due_s) / stage.spec.duration_s,
        alone=alone,
        behind=behind,
        backlog=backlog,
        left=left,
        max_pass_ms=stage.limits.max_pass_ms,
    )

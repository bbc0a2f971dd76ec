"""What the demo found, for people and as JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from batchfleet.embedded.figures import Figures

_WIDTH = 88
_BAR = 30


@dataclass(frozen=True, slots=True)
class Query:
    """A question, how long its answer took, and the nearest sentences with their cosine."""

    text: str
    seconds: float
    nearest: Sequence[tuple[float, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport:
    """Everything measured.

    Attributes:
        seconds: From the first byte sent to the last result known.
        latencies_s: From submission to end of each job, by the fleet's clock.
        cpu_s: CPU seconds by role.
    """

    texts: int
    seconds: float
    workers: int
    variant: str
    reason: str
    latencies_s: NDArray[np.float64]
    figures: Figures
    cpu_s: Mapping[str, float]
    queries: Sequence[Query]

    def values(self) -> dict[str, Any]:
        """Returns the figures by name."""
        p50, p90, p99 = (float(np.percentile(self.latencies_s, share)) * 1e3 for share in (50, 90, 99))
        return {
            "texts": self.texts,
            "seconds": round(self.seconds, 2),
            "texts_per_s": round(self.texts / self.seconds, 1),
            "workers": self.workers,
            "variant": self.variant,
            "reason": self.reason,
            "latency_ms": {"p50": round(p50, 1), "p90": round(p90, 1), "p99": round(p99, 1)},
            "batch_items": self.figures.distribution("batch_items"),
            "mean_tokens": round(self.mean_tokens, 1),
            "mean_batch_items": round(self.figures.mean("batch_items"), 1),
            "padding_waste": round(self.figures.padding_waste, 4),
            "time_s": {name: round(seconds, 3) for name, seconds in self.time_spent().items()},
            "mean_queue_s": round(self.figures.mean("queue_wait_seconds"), 3),
            "cpu_ms_per_job": {role: round(value * 1e3 / self.texts, 4) for role, value in self.cpu_s.items()},
            "queries": [asdict(query) for query in self.queries],
        }

    @property
    def mean_tokens(self) -> float:
        """Tokens of a text on average."""
        return self.figures.value("tokens_real_total") / self.texts

    def time_spent(self) -> dict[str, float]:
        """Returns the seconds of all workers together by what they did, and what was left of their time."""
        names = {
            "claim": "claim_seconds_sum",
            "prepare": "prepare_seconds_sum",
            "execute": "pass_seconds_sum",
            "settle": "settle_seconds_sum",
        }
        spent = {step: self.figures.value(name) for step, name in names.items() if name in self.figures.values}
        # Claiming, preparing and settling run beside the passes: only the passes fill the device's time.
        return {**spent, "device idle": max(0.0, self.workers * self.seconds - spent.get("execute", 0.0))}

    def to_json(self) -> str:
        """Returns the figures as one line of JSON."""
        return json.dumps(self.values())


def show(console: Console, report: DemoReport) -> None:
    """Prints a report."""
    found = report.values()
    console.rule("Do the vectors mean something? The sentences nearest to a question")
    for query in report.queries:
        console.print(f"[bold]{escape(query.text)}[/]  [dim]({query.seconds * 1e3:.0f} ms, one request)[/]")
        for score, text in query.nearest:
            console.print(f"   {score:.3f}  {escape(_short(text))}")
    console.rule("What was measured")
    latency = "  ".join(f"{name} {value / 1e3:.2f} s" for name, value in found["latency_ms"].items())
    console.print(
        f"throughput   [bold]{found['texts_per_s']:.0f} texts/s[/] ({report.texts} in {report.seconds:.1f} s, "
        f"{report.mean_tokens:.0f} tokens each on average)"
    )
    console.print(f"latency      {latency}")
    console.print(f"             all were sent at once: {found['mean_queue_s']:.2f} s of it, on average, in the queue")
    console.print(f"padding      {found['padding_waste']:.1%} of all tokens run")
    console.print(f"batches      {found['mean_batch_items']} texts on average")
    _show_batches(console, found["batch_items"])
    console.print(_tables(report))


def _show_batches(console: Console, rows: Sequence[tuple[float, int]]) -> None:
    most = max((count for _, count in rows), default=1)
    below = 0.0
    for bound, count in rows:
        size = f"{below + 1:.0f}-{bound:.0f}" if bound > below + 1 else f"{bound:.0f}"
        console.print(f"  {size:>9} texts  {'#' * max(1, round(_BAR * count / most))} {count}")
        below = bound


def _tables(report: DemoReport) -> Table:
    """Two tables side by side: where the time went, and where the CPU went."""
    time_table = Table(title="time of all workers", title_justify="left", box=None, pad_edge=False)
    time_table.add_column("step (steps overlap)")
    time_table.add_column("s", justify="right")
    for name, seconds in report.time_spent().items():
        time_table.add_row(name, f"{seconds:.2f}")
    cpu_table = Table(title="CPU by process", title_justify="left", box=None, pad_edge=False)
    cpu_table.add_column("process")
    cpu_table.add_column("ms a job", justify="right")
    for role, seconds in report.cpu_s.items():
        told = f"{seconds * 1e3 / report.texts:.3f}"
        if float(told):  # a part that was not used, or did as good as nothing, is no news
            cpu_table.add_row(role, told)
    both = Table.grid(padding=(0, 6))
    both.add_row(time_table, cpu_table)
    return both


def _short(text: str) -> str:
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"

"""What came out: medians over rounds, as a table and as JSON. Pure."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchfleet.embedded.bench.memory import together_mb
from benchmarks.peers.systems import Outcome

MIN_COSINE = 0.999
"""The least that a peer's vector and the loop's may agree."""
_COLUMNS = ("system", "setting", "texts/s", "ratio", "p50 ms", "p99 ms", "CPU ms a text", "callers", "RSS MB", "cosine")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One system at one setting.

    Attributes:
        ratios: Of each round, to the loop's texts a second in the same round.
        cpu_ms: Milliseconds a text by role, the callers' apart.
        rss_mb: Peak resident memory: all processes together (what they share counts once), and the largest.
        cosine: The worst agreement with the loop's vectors.
    """

    system: str
    label: str
    setting: str
    texts_per_s: float
    ratios: Sequence[float]
    p50_ms: float
    p99_ms: float
    cpu_ms: Mapping[str, float]
    callers_cpu_ms: float
    rss_mb: tuple[float, float]
    cosine: float

    @property
    def ratio(self) -> float:
        """Throughput as a share of the loop's."""
        return median(self.ratios)

    @property
    def ok(self) -> bool:
        """Whether the vectors are the loop's."""
        return self.cosine > MIN_COSINE

    def to_json(self) -> dict[str, Any]:
        """Returns the figures."""
        return {
            "system": self.system,
            "label": self.label,
            "setting": self.setting,
            "texts_per_s": round(self.texts_per_s, 1),
            "ratio": round(self.ratio, 3),
            "rounds_ratio": [round(value, 3) for value in self.ratios],
            "latency_ms": {"p50": round(self.p50_ms, 1), "p99": round(self.p99_ms, 1)},
            "cpu_ms_per_text": {role: round(value, 3) for role, value in self.cpu_ms.items()},
            "callers_cpu_ms_per_text": round(self.callers_cpu_ms, 3),
            "rss_mb": {"all": round(self.rss_mb[0]), "largest": round(self.rss_mb[1])},
            "min_cosine": round(self.cosine, 6),
            "ok": self.ok,
        }

    def cells(self) -> tuple[str, ...]:
        """Returns the row of the table."""
        cpu = " ".join(f"{role} {value:.2f}" for role, value in self.cpu_ms.items())
        return (
            f"{self.system} ({self.label})" if self.label else self.system,
            self.setting,
            f"{self.texts_per_s:.1f}",
            f"{self.ratio:.2f}",
            f"{self.p50_ms:.0f}",
            f"{self.p99_ms:.0f}",
            cpu,
            f"{self.callers_cpu_ms:.2f}",
            f"{self.rss_mb[0]:.0f} ({self.rss_mb[1]:.0f})",
            f"{self.cosine:.4f}" if self.ok else f"{self.cosine:.4f} WRONG",
        )


def row(
    system: str,
    label: str,
    setting: str,
    beside: Sequence[tuple[Outcome, float]],
    vectors: NDArray[np.float32],
) -> Row:
    """Returns what several runs of one system say, each beside the loop's texts a second in the same round."""
    runs = [run for run, _ in beside]
    texts = len(runs[0].called.latencies_s)
    latencies = np.concatenate([run.called.latencies_s for run in runs]) * 1e3
    rates = [texts / run.called.seconds for run in runs]
    return Row(
        system=system,
        label=label,
        setting=setting,
        texts_per_s=median(rates),
        ratios=[rate / loop for rate, (_, loop) in zip(rates, beside, strict=True)],
        p50_ms=float(np.percentile(latencies, 50)),
        p99_ms=float(np.percentile(latencies, 99)),
        cpu_ms={
            role: median(run.cpu_s.get(role, 0.0) for run in runs) * 1e3 / texts
            for role in dict.fromkeys(role for run in runs for role in run.cpu_s)
        },
        callers_cpu_ms=median(run.called.cpu_s for run in runs) * 1e3 / texts,
        rss_mb=(
            max(together_mb(run.memory) for run in runs),
            max(one.peak / 1024 for run in runs for one in run.memory),
        ),
        cosine=min(worst_cosine(run.called.answers, vectors) for run in runs),
    )


def worst_cosine(answers: Mapping[int, str], vectors: NDArray[np.float32]) -> float:
    """Returns the worst agreement of answers with the vectors of the same texts; -1 where one is no such vector.

    Raises:
        ValueError: If there is nothing to compare.
    """
    if not answers:
        raise ValueError("no answer to compare")
    return min(_cosine(answer, vectors[index]) for index, answer in answers.items())


def _cosine(answer: str, vector: NDArray[np.float32]) -> float:
    ours = vector.astype(np.float64)
    try:
        theirs = vector_of(answer)
    except (ValueError, TypeError, LookupError):
        return -1.0
    if theirs.shape != ours.shape:
        return -1.0
    return float(ours @ theirs / (np.linalg.norm(ours) * np.linalg.norm(theirs)))


def vector_of(answer: str) -> NDArray[np.float64]:
    """Returns the vector in an answer: a list, or base64 of float32; alone, in a list of one, or under a name.

    Raises:
        ValueError: If there is none.
    """
    found = json.loads(answer)
    if isinstance(found, dict):
        found = found["result"]["values"][0] if "result" in found else found.get("vector")
    if isinstance(found, list) and len(found) == 1:
        found = found[0]
    if isinstance(found, str):
        return np.frombuffer(base64.b64decode(found, validate=True), "<f4").astype(np.float64)
    vector = np.asarray(found, np.float64)
    if vector.ndim != 1 or not np.isfinite(vector).all():
        raise ValueError(f"no vector in {answer[:80]!r}")
    return vector


def table(rows: Sequence[Row]) -> str:
    """Returns the rows as text in columns."""
    cells = [_COLUMNS, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_COLUMNS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])

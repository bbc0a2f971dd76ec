"""What a benchmark run found, as JSON, as text, and as a picture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from batchfleet.embedded.bench.load import LoadFinding
from batchfleet.embedded.bench.picture import Point, latency_picture
from batchfleet.embedded.bench.stage import MIN_COSINE

_LINES = ("p50", "p90", "p99")


class Finding(Protocol):
    """What one scenario found."""

    @property
    def ok(self) -> bool:
        """Whether the fleet did what was measured."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Returns its figures."""
        ...

    def rows(self) -> list[tuple[str, str]]:
        """Returns the same for people: names and values."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """On what, and with what, it was measured.

    Attributes:
        date: When it began, in UTC.
        machine: The processor, and what it can do.
        workers: Worker processes; None where they cannot be seen.
        database: `sqlite` or `postgres`; None for a fleet that was not started here.
        how: Provenance of a result: precision, runtime, provider, variant.
        versions: Of what matters for speed, by name.
        workload: Lengths, lanes and seed.
    """

    date: str
    machine: str
    cores: int
    workers: int | None
    database: str | None
    model: str
    how: Mapping[str, object]
    versions: Mapping[str, str]
    texts: int
    mean_tokens: float
    workload: Mapping[str, object]
    loop_plan: str

    def build(self) -> str:
        """Returns the variant and where it runs, in words."""
        how = self.how
        return f"{how.get('variant')} ({how.get('precision')}) on {how.get('runtime')}/{how.get('provider')}"

    def to_json(self) -> dict[str, Any]:
        """Returns all of it."""
        return {
            "date": self.date,
            "machine": self.machine,
            "cores": self.cores,
            "workers": self.workers,
            "database": self.database,
            "model": self.model,
            "texts": self.texts,
            "mean_tokens": round(self.mean_tokens, 1),
            "workload": dict(self.workload),
            "versions": dict(self.versions),
            "loop_plan": self.loop_plan,
            **{name: self.how.get(name) for name in ("precision", "runtime", "provider", "variant")},
        }

    def rows(self) -> list[tuple[str, str]]:
        """Returns it for people."""
        return [
            ("texts", f"{self.texts}, {self.mean_tokens:.1f} tokens on average"),
            ("machine", f"{self.cores} core(s), {self.machine}"),
            ("fleet", f"{self.workers or '?'} worker(s), {self.database or 'an unknown database'}; {self.build()}"),
            ("best loop", self.loop_plan),
            ("versions", "  ".join(f"{name} {version}" for name, version in self.versions.items())),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All scenarios of a run.

    Attributes:
        findings: By scenario.
        cosine: The worst agreement of all vectors compared; None if none were.
        compared: How many.
    """

    about: About
    findings: Mapping[str, Finding]
    cosine: float | None
    compared: int

    @property
    def same(self) -> bool:
        """Whether the fleet's vectors are the loop's."""
        return self.cosine is None or self.cosine >= MIN_COSINE

    @property
    def ok(self) -> bool:
        """Whether the vectors agree, and the fleet did what was measured in every scenario."""
        return self.same and all(finding.ok for finding in self.findings.values())

    def to_json(self) -> dict[str, Any]:
        """Returns what it is about, and the figures by scenario; those of `bulk` at the top as well."""
        bulk = self.findings.get("bulk")
        return {
            **self.about.to_json(),
            **(bulk.to_json() if bulk else {}),
            "min_cosine": None if self.cosine is None else round(self.cosine, 7),
            "ok": self.ok,
            "scenarios": {name: {**found.to_json(), "ok": found.ok} for name, found in self.findings.items()},
        }

    def to_text(self) -> str:
        """Returns the same for people."""
        parts = [_table(self.about.rows())]
        parts += [f"--- {name}\n{_table(finding.rows())}" for name, finding in self.findings.items()]
        if self.cosine is not None:
            words = f"worst cosine to the loop's {self.cosine:.7f}, {self.compared} compared"
            parts.append(_table([("vectors", words)]))
        if not self.same:
            parts.append("NOT THE SAME: the fleet's vectors are not the loop's")
        failed = [name for name, finding in self.findings.items() if not finding.ok]
        if failed:
            parts.append(f"NOT DONE: not all that was measured succeeded in {', '.join(failed)}")
        return "\n\n".join(parts)

    def to_svg(self) -> str:
        """Returns the picture of latency against load, which must have been measured."""
        load = self.findings["load"]
        assert isinstance(load, LoadFinding)  # noqa: S101 - for the type checker
        points = []
        for point in load.points:
            found = point.served.latencies().percentiles_ms()
            points.append(Point(point.offered_per_s, point.share, [found.get(name, 0.0) for name in _LINES]))
        about = self.about
        return latency_picture(
            points,
            _LINES,
            peak=load.peak,
            title=f"Latency against offered load: {about.model}, {about.how.get('variant')}",
            notes=[
                f"{about.build()}; {about.workers or '?'} workers, {about.cores} cores {about.machine}",
                (
                    f"Poisson arrivals, one text a request with ?wait, {about.mean_tokens:.1f} tokens on average; "
                    f"{about.database or 'database unknown'}; {about.date}"
                ),
            ],
        )


def _table(rows: Sequence[tuple[str, str]]) -> str:
    return "\n".join(f"{name:11} {text}".rstrip() for name, text in rows)

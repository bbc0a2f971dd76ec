"""Reads a fleet's `/metrics` into the few figures that people ask for."""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

_PREFIX = "batchfleet_"


@dataclass(frozen=True, slots=True)
class Figures:
    """All samples of a scrape, summed over their labels (but `le` of histograms).

    Attributes:
        values: By name, without the prefix.
        buckets: Cumulative counts of each histogram, by name and upper bound.
    """

    values: Mapping[str, float] = field(default_factory=dict)
    buckets: Mapping[str, Mapping[float, float]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> "Figures":
        """Reads Prometheus' text format."""
        values: defaultdict[str, float] = defaultdict(float)
        buckets: defaultdict[str, defaultdict[float, float]] = defaultdict(lambda: defaultdict(float))
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                name = sample.name.removeprefix(_PREFIX)
                if "le" in sample.labels:
                    buckets[name.removesuffix("_bucket")][float(sample.labels["le"])] += sample.value
                else:
                    values[name] += sample.value
        return cls(dict(values), {name: dict(bounds) for name, bounds in buckets.items()})

    def since(self, earlier: "Figures") -> "Figures":
        """Returns what was added after an earlier scrape."""
        values = {name: value - earlier.values.get(name, 0.0) for name, value in self.values.items()}
        buckets = {
            name: {bound: count - earlier.buckets.get(name, {}).get(bound, 0.0) for bound, count in bounds.items()}
            for name, bounds in self.buckets.items()
        }
        return Figures(values, buckets)

    def value(self, name: str) -> float:
        """Returns a sum; 0 where nothing was counted."""
        return self.values.get(name, 0.0)

    def mean(self, histogram: str) -> float:
        """Returns the mean of a histogram; 0 where nothing was observed."""
        count = self.value(f"{histogram}_count")
        return self.value(f"{histogram}_sum") / count if count else 0.0

    def quantile(self, histogram: str, share: float) -> float:
        """Returns the value that `share` (0 to 1) of a histogram's observations do not exceed; 0 where there are none.

        Interpolated within its bucket, as Prometheus' `histogram_quantile` does; what lies in the last bucket, which
        has no end, counts as the end of the one before.
        """
        bounds = sorted(self.buckets.get(histogram, {}).items())
        if not bounds or not bounds[-1][1]:
            return 0.0
        rank, lower, below = share * bounds[-1][1], 0.0, 0.0
        for upper, count in bounds:
            if count >= rank and count > below:
                return lower + (upper - lower) * (rank - below) / (count - below) if math.isfinite(upper) else lower
            lower, below = upper, count
        return lower

    def distribution(self, histogram: str) -> list[tuple[float, int]]:
        """Returns (upper bound, observations in that bucket alone) of a histogram, empty buckets left out."""
        rows, below = [], 0.0
        for bound, count in sorted(self.buckets.get(histogram, {}).items()):
            if count > below:
                rows.append((bound, round(count - below)))
            below = count
        return rows

    @property
    def padding_waste(self) -> float:
        """The share of all tokens that were run which were padding."""
        padded = self.value("tokens_padded_total")
        return 1.0 - self.value("tokens_real_total") / padded if padded else 0.0

"""What to measure, as the command line says it. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Self

SCENARIOS = ("bulk", "requests", "idle", "load", "mixed", "overload")
"""In the order in which they run: `requests` finds the peak that `load`, `mixed` and `overload` are shares of."""
ALL = "all"
LANES = ("online", "standard", "bulk")


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lognormal lengths of texts.

    Attributes:
        mean: Of the tokens of a text, before those over the longest are cut.
        sigma: Of the tokens' logarithm; with 0.8 the longest twentieth of a mean of 40 is beyond about 110.
    """

    mean: float = 40.0
    sigma: float = 0.8

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `lognormal:MEAN` or `lognormal:MEAN:SIGMA`.

        Raises:
            ValueError: If it is neither.
        """
        kind, *numbers = text.split(":")
        if kind != "lognormal" or not 1 <= len(numbers) <= 2:
            raise ValueError(f"{text!r} is not lognormal:MEAN or lognormal:MEAN:SIGMA")
        try:
            lengths = cls(*(float(number) for number in numbers))
        except ValueError:
            raise ValueError(f"{text!r} has a part that is no number") from None
        if not (3 <= lengths.mean <= 100_000 and 0 <= lengths.sigma <= 3):
            raise ValueError("MEAN is 3 to 100000 tokens, SIGMA 0 to 3")
        return lengths


@dataclass(frozen=True, slots=True)
class LaneMix:
    """Shares of the lanes among requests; they sum to 1."""

    shares: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({"online": 1.0}))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `online=0.2,standard=0.3,bulk=0.5`; the shares are scaled to a sum of 1.

        Raises:
            ValueError: If a lane is unknown or named twice, or a share is no number or negative, or all are 0.
        """
        shares: dict[str, float] = {}
        for part in text.split(","):
            lane, _, number = part.strip().partition("=")
            if lane not in LANES or lane in shares:
                raise ValueError(f"{part.strip()!r} names no lane of {', '.join(LANES)}, or one twice")
            try:
                share = float(number)
            except ValueError:
                raise ValueError(f"{part.strip()!r} is not LANE=SHARE") from None
            if not (math.isfinite(share) and share >= 0):
                raise ValueError(f"the share of {lane} is negative or no finite number")
            shares[lane] = share
        total = sum(shares.values())
        if not total:
            raise ValueError("all shares are 0")
        return cls({lane: share / total for lane, share in shares.items() if share})


def parse_scenarios(text: str) -> tuple[str, ...]:
    """Reads `bulk,idle` or `all`; the order stated does not matter.

    Raises:
        ValueError: If one is unknown.
    """
    names = {name.strip() for name in text.split(",")}
    unknown = names - {*SCENARIOS, ALL}
    if unknown:
        raise ValueError(f"unknown: {', '.join(sorted(unknown)) or 'nothing'}; there are {', '.join(SCENARIOS)}, {ALL}")
    return tuple(name for name in SCENARIOS if ALL in names or name in names)


def parse_loads(text: str) -> tuple[float, ...]:
    """Reads shares of the peak, `0.3,0.5,0.9`.

    Raises:
        ValueError: If one is no number, or not between 0 and 5.
    """
    try:
        loads = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"{text!r} is no list of numbers") from None
    if not all(0 < load <= 5 for load in loads):
        raise ValueError("each share of the peak is over 0 and at most 5")
    return loads


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchSpec:
    """What to measure.

    Attributes:
        scenarios: Some of `SCENARIOS`.
        texts: Texts of a round.
        rounds: How often loop and fleet take turns.
        url: A fleet that runs already; None starts a fresh one.
        workers: Worker processes of a fresh one; None for one a core.
        postgres: Whether a fresh one keeps its jobs in an embedded Postgres.
        variant: Build of the model that a fresh one runs; None for the fastest here.
        callers: Callers at once of `requests`.
        duration_s: Of one open loop: of each load, of each half of `mixed`, of `overload`; and of `idle`.
        loads: Offered loads of `load`, as shares of the peak.
        lane_mix: Lanes of the requests of `requests`, `load` and `overload`.
        lengths: Of the texts, unless they are read from `texts_file`.
        texts_file: One text a line; used over and over where it has fewer than are needed.
        seed: Of texts, arrivals and lanes.
    """

    scenarios: tuple[str, ...] = ("bulk",)
    texts: int = 10_000
    rounds: int = 3
    url: str | None = None
    workers: int | None = None
    postgres: bool = False
    variant: str | None = None
    callers: int = 64
    duration_s: float = 10.0
    loads: tuple[float, ...] = (0.3, 0.5, 0.7, 0.9, 1.0)
    lane_mix: LaneMix = field(default_factory=LaneMix)
    lengths: Lengths = field(default_factory=Lengths)
    texts_file: Path | None = None
    seed: int = 7

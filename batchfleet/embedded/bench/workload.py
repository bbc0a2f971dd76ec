"""Texts with the lengths of real traffic, their lanes, and when they arrive. The same ones for the same seed. Pure."""

import itertools
import math
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from batchfleet.embedded.bench.spec import LaneMix, Lengths
from batchfleet.embedded.sentences import english_sentences
from batchfleet.errors import BatchfleetError

MAX_TOKENS = 256
_TOKENS_A_WORD = 1.37
"""Of the demo model's tokenizer on this English; two special tokens come on top."""
_TRIES = 20
"""Draws a text: very short texts repeat themselves sooner or later, and may."""


class NoTextsError(BatchfleetError):
    """The file with texts has none, or cannot be read."""

    code = "no_texts"


def make_texts(count: int, lengths: Lengths | None = None, seed: int = 7) -> list[str]:
    """Returns `count` texts of about 40 tokens on average (or of other lengths), 256 at most.

    They are all different, unless they are too short for so many.
    """
    lengths = lengths or Lengths()
    chance = random.Random(seed)  # noqa: S311 - the same texts each time are the point
    words = " ".join(english_sentences(3_000)).split()
    texts: dict[str, None] = {}
    for _ in range(_TRIES * count):
        size = min(_words(chance, lengths), len(words) - 1)
        start = chance.randrange(len(words) - size)
        texts.setdefault(" ".join(words[start : start + size]))
        if len(texts) == count:
            break
    return _filled(list(texts), count)


def read_texts(path: Path, count: int) -> list[str]:
    """Returns `count` texts of a file, one a line, over and over where it has fewer; empty lines are left out.

    Raises:
        NoTextsError: If it cannot be read as UTF-8, or has none.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise NoTextsError(f"{path} cannot be read: {error}") from error
    texts = [line.strip() for line in lines if line.strip()]
    if not texts:
        raise NoTextsError(f"{path} has no text")
    return _filled(texts, count)


def lanes_of(count: int, mix: LaneMix, seed: int) -> list[str]:
    """Returns the lane of each of `count` requests."""
    chance = random.Random(seed)  # noqa: S311 - likewise
    return chance.choices(list(mix.shares), weights=list(mix.shares.values()), k=count)


def poisson_arrivals(rate: float, seconds: float, seed: int) -> NDArray[np.float64]:
    """Returns when requests arrive, in seconds from the start: independently of each other, `rate` a second.

    Gaps are exponential, as those of many callers who know nothing of each other are.

    Raises:
        ValueError: If the rate or the time is not positive.
    """
    if rate <= 0 or seconds <= 0:
        raise ValueError("a rate and a time are positive")
    chance = np.random.default_rng(seed)
    expected = rate * seconds
    gaps = chance.exponential(1 / rate, size=math.ceil(expected + 10 * math.sqrt(expected) + 10))
    arrivals = np.cumsum(gaps)
    return arrivals[arrivals < seconds]


def _filled(texts: Sequence[str], count: int) -> list[str]:
    return list(itertools.islice(itertools.cycle(texts), count))


def _words(chance: random.Random, lengths: Lengths) -> int:
    mu = math.log(lengths.mean) - lengths.sigma**2 / 2
    tokens = min(float(MAX_TOKENS), chance.lognormvariate(mu, lengths.sigma))
    return max(1, round((tokens - 2) / _TOKENS_A_WORD))

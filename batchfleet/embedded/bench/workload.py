"""Texts with the lengths of real traffic: lognormal, many short and a few long. The same ones at each call."""

import math
import random

from batchfleet.embedded.sentences import english_sentences

MEAN_TOKENS = 40.0
MAX_TOKENS = 256
_SIGMA = 0.8
"""With this spread the longest twentieth is beyond about 110 tokens."""
_TOKENS_A_WORD = 1.37
"""Of the demo model's tokenizer on this English; two special tokens come on top."""
_SEED = 7


def make_texts(count: int) -> list[str]:
    """Returns `count` different texts of about 40 tokens on average, 256 at most."""
    chance = random.Random(_SEED)  # noqa: S311 - the same texts each time are the point
    words = " ".join(english_sentences(3_000)).split()
    texts: dict[str, None] = {}
    while len(texts) < count:
        size = _words(chance)
        start = chance.randrange(len(words) - size)
        texts.setdefault(" ".join(words[start : start + size]))
    return list(texts)


def _words(chance: random.Random) -> int:
    mu = math.log(MEAN_TOKENS) - _SIGMA**2 / 2
    tokens = min(float(MAX_TOKENS), chance.lognormvariate(mu, _SIGMA))
    return max(1, round((tokens - 2) / _TOKENS_A_WORD))

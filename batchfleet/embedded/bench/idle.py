"""Scenario `idle`: one caller and an idle fleet; how much longer than the forward pass itself an answer takes.

Requests and passes of the in-process loop take turns in blocks, with the same pauses before each: caches are as cold
for the one as for the other.
"""

from dataclasses import dataclass
from random import Random
from typing import Any

from batchfleet.embedded.bench.errors import BenchFailedError
from batchfleet.embedded.bench.generator_worker import Work
from batchfleet.embedded.bench.histogram import Histogram
from batchfleet.embedded.bench.loop import LoopRun
from batchfleet.embedded.bench.meter import Cost
from batchfleet.embedded.bench.served import cpu_json, cpu_rows, in_words
from batchfleet.embedded.bench.stage import Stage

_BLOCK = 20
_PAUSES_S = (0.01, 0.04)
_EXCHANGES_A_S = 15.0
"""Requests and passes, pauses included, that fit into a second; the number is rounded to whole blocks."""
_HOT = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleFinding:
    """What was found.

    Attributes:
        tokens: Of the text that was sent each time.
        answers: From POST to the end of the answer.
        passes: The forward pass of the same text alone, with the same pauses.
        hot_passes: Likewise, one right after the other.
        cost: Of the fleet, passes of the loop included in its time but not in its CPU.
        generator_s: CPU of the generator.
    """

    tokens: int
    answers: Histogram
    passes: Histogram
    hot_passes: Histogram
    cost: Cost
    generator_s: float
    loop: LoopRun
    ok: bool

    def over_pass_ms(self, share: float) -> float:
        """Returns how much longer than a pass (its median) an answer takes, at a percentile of the answers."""
        return self.answers.percentile_ms(share) - self.passes.percentile_ms(50)

    def to_json(self) -> dict[str, Any]:
        """Returns all figures of it."""
        return {
            "requests": len(self.answers),
            "tokens": self.tokens,
            "latency_ms": self.answers.percentiles_ms(),
            "pass_ms": self.passes.percentiles_ms(),
            "hot_pass_ms": self.hot_passes.percentiles_ms(),
            "idle_over_pass_ms": {f"p{share}": round(self.over_pass_ms(share), 3) for share in (50, 90, 99)},
            "loop_texts_per_s": round(self.loop.texts_per_s, 1),
            **cpu_json(self.cost, len(self.answers), self.loop, self.generator_s),
            "padding_waste": round(self.cost.figures.padding_waste, 4),
            "mean_batch_items": round(self.cost.figures.mean("batch_items"), 1),
            "rss_mb": dict(self.cost.rss_mb),
        }

    def rows(self) -> list[tuple[str, str]]:
        """Returns the same for people."""
        found = self.to_json()
        return [
            ("requests", f"{found['requests']}, one after the other, a text of {self.tokens} tokens"),
            ("latency ms", in_words(found["latency_ms"])),
            ("pass ms", f"{in_words(found['pass_ms'])}   (the text alone, in process, in turns with the requests)"),
            ("", f"{in_words(found['hot_pass_ms'])}   (one right after the other)"),
            ("over a pass", f"{in_words(found['idle_over_pass_ms'])}   ms more than a pass at its median"),
            *cpu_rows(found),
            *([("RSS MiB", in_words(found["rss_mb"]))] if found["rss_mb"] else []),
        ]


def run_idle(stage: Stage) -> IdleFinding:
    """Runs it.

    Raises:
        BenchFailedError: If no request succeeded.
    """
    loop = stage.reference()
    mean = sum(stage.tokens) / len(stage.tokens)
    index = min(range(len(stage.tokens)), key=lambda one: abs(stage.tokens[one] - mean))
    text = stage.texts[index]
    chance = Random(stage.spec.seed)  # noqa: S311 - pauses
    answers, passes, generator_s, ok = Histogram(), Histogram(), 0.0, True
    hot = Histogram.of(stage.loop.alone(text, [0.0] * _HOT))
    requests = stage.requests([text] * _BLOCK, ["online"] * _BLOCK)
    meter = stage.meter()
    meter.start()
    for number in range(max(3, round(stage.spec.duration_s * _EXCHANGES_A_S / _BLOCK)) + 1):
        pauses = [chance.uniform(*_PAUSES_S) for _ in range(_BLOCK)]
        work = Work(requests=requests, pauses_s=pauses)
        found = stage.generator.run(work)
        alone = stage.loop.alone(text, pauses)
        ok &= bool(found.succeeded.all())
        if number:  # the first block warms up
            answers += Histogram.of(found.latencies_s)
            passes += Histogram.of(alone)
        generator_s += found.cpu_s
    cost = meter.stop()
    if not len(answers):
        raise BenchFailedError("no request of the idle fleet succeeded")
    return IdleFinding(
        tokens=stage.tokens[index],
        answers=answers,
        passes=passes,
        hot_passes=hot,
        cost=cost,
        generator_s=generator_s,
        loop=loop,
        ok=ok,
    )

"""What all scenarios share: the fleet, the loop, the generator, the texts, and the peak that loads are shares of."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from batchfleet.client import Client
from batchfleet.embedded.bench.errors import BenchFailedError
from batchfleet.embedded.bench.fleet import patience_s, worst_cosine
from batchfleet.embedded.bench.generator import Generator
from batchfleet.embedded.bench.generator_worker import Answers, Work
from batchfleet.embedded.bench.loop import BestLoop, LoopRun
from batchfleet.embedded.bench.meter import Meter
from batchfleet.embedded.bench.served import Served
from batchfleet.embedded.bench.spec import BenchSpec
from batchfleet.embedded.bench.workload import lanes_of
from batchfleet.embedded.figures import Figures
from batchfleet.embedded.stack import StackInfo
from batchfleet.models.config import Limits

Say = Callable[[str], None]

MIN_COSINE = 0.99999
"""The least that a vector of the fleet and the loop's own may agree."""
WAIT_S = 60
"""For how long a request may wait for its job's end: the longest that is accepted."""
_REFERENCE_TEXTS = 2_000
_PEAK_TEXTS = 1_500
_COMPARED = 50
_LOOK_S = 0.2


@dataclass(slots=True, kw_only=True)
class Stage:
    """What scenarios run on.

    Attributes:
        model: The model's name.
        limits: Its limits.
        tokens: Of each text.
        info: Tells of the fleet's processes; None where they cannot be seen.
        peak: Requests a second that the fleet answered at most; None until that was measured.
    """

    spec: BenchSpec
    client: Client
    model: str
    limits: Limits
    texts: Sequence[str]
    tokens: Sequence[int]
    info: Callable[[], StackInfo | None]
    loop: BestLoop
    generator: Generator
    say: Say
    peak: float | None = None
    worst_cosine: float = field(default=1.0, init=False)
    compared: int = field(default=0, init=False)

    def meter(self) -> Meter:
        """Returns a new meter on the fleet."""
        return Meter(self.client, self.info)

    def requests(self, texts: Sequence[str], lanes: Sequence[str], *, wait_s: float = WAIT_S) -> list[bytes]:
        """Returns one whole HTTP request a text."""
        target, path = self.generator.target, f"/v1/jobs?wait={wait_s:g}"
        return [
            target.post(path, msgspec.json.encode({"model": self.model, "inputs": [text], "lane": lane}))
            for text, lane in zip(texts, lanes, strict=True)
        ]

    def reference(self) -> LoopRun:
        """Runs the loop: what the scenario's figures are compared with."""
        return self.loop.run(self.texts[:_REFERENCE_TEXTS])

    def closed(self, count: int, loop: LoopRun, callers: int | None = None) -> Served:
        """Lets callers send the first `count` texts, each the next one when its last is answered."""
        lanes = lanes_of(count, self.spec.lane_mix, self.spec.seed)
        work = Work(
            requests=self.requests(self.texts[:count], lanes),
            callers=callers or self.spec.callers,
            keep=self._kept(count, loop),
            patience_s=patience_s(count),
        )
        return self.serve(work, lanes, loop)

    def open(
        self, due_s: NDArray[np.float64], lanes: Sequence[str], loop: LoopRun, *, wait_s: float = WAIT_S
    ) -> Served:
        """Sends texts when they are due, over and over where there are fewer than arrivals."""
        texts = [self.texts[index % len(self.texts)] for index in range(len(due_s))]
        work = Work(
            requests=self.requests(texts, lanes, wait_s=wait_s),
            due_s=due_s.tolist(),
            keep=self._kept(min(len(due_s), len(self.texts)), loop),
            patience_s=WAIT_S + patience_s(0),
        )
        return self.serve(work, lanes, loop)

    def serve(self, work: Work, lanes: Sequence[str], loop: LoopRun) -> Served:
        """Lets the generator work and measures what it costs the fleet; vectors kept are compared with the loop's."""
        meter = self.meter()
        meter.start()
        answers = self.generator.run(work)
        served = Served(answers, lanes, meter.stop(), loop)
        self._compare(answers, loop)
        return served

    def measured_peak(self) -> float:
        """Returns the requests a second that the callers of a closed loop get answered; measures if nobody has."""
        if self.peak is None:
            self.say(f"looking for the peak: {self.spec.callers} callers in a closed loop")
            count = min(_PEAK_TEXTS, len(self.texts))
            self.peak = self.closed(count, self.reference()).texts_per_s
        if not self.peak:
            raise BenchFailedError("no request of the closed loop succeeded: there is no peak")
        return self.peak

    def drain(self, *, timeout_s: float = 300.0) -> None:
        """Waits until nothing is queued or running: what one scenario leaves must not cost the next.

        Raises:
            BenchFailedError: If that takes too long.
        """
        until = time.monotonic() + timeout_s
        while self.waiting_jobs():
            if time.monotonic() > until:
                raise BenchFailedError(f"jobs are still waiting after {timeout_s:.0f} s")
            time.sleep(_LOOK_S)

    def waiting_jobs(self) -> int:
        """Returns how many jobs are queued or running."""
        return round(Figures.parse(self.client.metrics()).value("queue_jobs"))

    def _kept(self, count: int, loop: LoopRun) -> frozenset[int]:
        known = min(count, len(loop.vectors))
        return frozenset(range(0, known, max(1, known // _COMPARED)))

    def _compare(self, answers: Answers, loop: LoopRun) -> None:
        found = {index: msgspec.json.decode(body) for index, body in answers.kept.items() if answers.succeeded[index]}
        if not found:
            return
        ours = np.array([job["result"]["values"][0] for job in found.values()], np.float32)
        self.worst_cosine = min(self.worst_cosine, worst_cosine(ours, loop.vectors[list(found)]))
        self.compared += len(found)

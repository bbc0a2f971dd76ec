"""One process of the in-process loop: tokenizer and session, and nothing of the fleet between them.

It is what a careful engineer would write without a fleet: batch tokenising without the GIL, texts sorted by
length, NumPy padding, one session. The session is opened by the same code as a worker's, so both run the same
kernels with the same settings.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from batchfleet.embedded.bench.plans import Batch, Plan, batches
from batchfleet.inference.registry import load_runtime
from batchfleet.inference.runtime import RuntimeOptions, Session
from batchfleet.models.config import Limits, Variant

_OUTPUT = "sentence_embedding"


@dataclass(frozen=True, slots=True)
class LoopModel:
    """What every loop process loads; travels to it by pickle."""

    path: Path
    variant: Variant
    limits: Limits
    tokenizer: str


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the texts, and how to batch it."""

    texts: Sequence[str]
    plan: Plan


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Texts that this process may be given: nothing is compiled for them on the clock. Answered by True."""

    texts: Sequence[Sequence[str]]
    plan: Plan


@dataclass(frozen=True, slots=True)
class Alone:
    """One text to run by itself, over and over, with a pause before each pass. Answered by the passes' seconds."""

    text: str
    pauses_s: Sequence[float]


@dataclass(frozen=True, slots=True)
class ShareResult:
    """What became of a share: one vector a text, in order, and what it cost."""

    vectors: NDArray[np.float32]
    cpu_s: float
    real_tokens: int
    padded_tokens: int


def serve(connection: Connection, model: LoopModel, threads: int) -> None:
    """Loads the model, warms up, says so, then does what it is sent until the other end is closed."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    loop = Loop(model, threads)
    loop.warm_up([Batch([], rows, length) for length in (16, 64, 256) for rows in (1, 4)])
    connection.send(loop.compiles)
    while True:
        try:
            asked: Share | WarmUp | Alone = connection.recv()
        except EOFError:
            return
        connection.send(_answer(loop, asked))


def _answer(loop: "Loop", asked: Share | WarmUp | Alone) -> object:
    if isinstance(asked, WarmUp):
        return loop.prepare(asked)
    return loop.run(asked) if isinstance(asked, Share) else loop.run_alone(asked)


class Loop:
    """A loaded model and the loop over it."""

    def __init__(self, model: LoopModel, threads: int) -> None:
        self._session: Session = load_runtime(model.variant.runtime).load(
            model.path, model.variant, RuntimeOptions(threads=threads)
        )
        self._tokenizer = Tokenizer.from_file(str(model.path / model.tokenizer))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_length=model.limits.max_item_tokens)
        self._seen: set[tuple[int, int]] = set()

    @property
    def compiles(self) -> bool:
        """Whether a new shape costs a compilation."""
        return self._session.compiles_per_shape

    def warm_up(self, shapes: Sequence[Batch]) -> None:
        """Runs each shape that has not been run yet, so that nothing is compiled or allocated on the clock."""
        for batch in shapes:
            if (batch.rows, batch.length) not in self._seen:
                self._seen.add((batch.rows, batch.length))
                self._pass([np.ones(batch.length, np.int64)] * batch.rows, batch)

    def prepare(self, asked: WarmUp) -> bool:
        """Runs the shapes that these texts will have, where that is what costs."""
        if self.compiles:
            for texts in asked.texts:
                self.warm_up(batches([len(ids) for ids in self._tokens(texts)], asked.plan))
        return True

    def run(self, share: Share) -> ShareResult:
        """Runs one share, tokenising included."""
        began = time.process_time()
        tokens = self._tokens(share.texts)
        lengths = [len(ids) for ids in tokens]
        vectors: NDArray[np.float32] | None = None
        padded = 0
        for batch in batches(lengths, share.plan):
            rows = self._pass([tokens[index] for index in batch.texts], batch)[: len(batch.texts)]
            vectors = np.empty((len(tokens), rows.shape[1]), np.float32) if vectors is None else vectors
            vectors[batch.texts] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
            padded += batch.rows * batch.length
        assert vectors is not None  # noqa: S101 - a share has texts
        return ShareResult(vectors, time.process_time() - began, sum(lengths), padded)

    def run_alone(self, asked: Alone) -> list[float]:
        """Runs one text by itself, in its exact length, again and again; returns the seconds of each pass."""
        tokens = self._tokens([asked.text])
        alone = Batch([0], 1, len(tokens[0]))
        self.warm_up([alone])
        seconds = []
        for pause_s in asked.pauses_s:
            time.sleep(pause_s)
            began = time.perf_counter()
            self._pass(tokens, alone)
            seconds.append(time.perf_counter() - began)
        return seconds

    def _tokens(self, texts: Sequence[str]) -> list[NDArray[np.int64]]:
        encodings = self._tokenizer.encode_batch_fast(list(texts))
        return [np.array(encoding.ids, np.int64) for encoding in encodings]

    def _pass(self, tokens: Sequence[NDArray[np.int64]], batch: Batch) -> NDArray[Any]:
        ids = np.zeros((batch.rows, batch.length), np.int64)
        mask = np.zeros((batch.rows, batch.length), np.int64)
        for row, one in enumerate(tokens):
            ids[row, : len(one)] = one
            mask[row, : len(one)] = 1
        return self._session.run({"input_ids": ids, "attention_mask": mask})[_OUTPUT]

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

from batchfleet.embedded.bench.plans import batches
from batchfleet.inference.registry import load_runtime
from batchfleet.inference.runtime import RuntimeOptions, Session
from batchfleet.inference.shapes import FixedShapes, PassShape
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
    budget: int | None


@dataclass(frozen=True, slots=True)
class ShareResult:
    """What became of a share: one vector a text, in order, and what it cost."""

    vectors: NDArray[np.float32]
    cpu_s: float
    real_tokens: int
    padded_tokens: int


def serve(connection: Connection, model: LoopModel, threads: int) -> None:
    """Loads the model, warms up, says so, then runs shares until the other end is closed."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    loop = Loop(model, threads)
    loop.warm_up()
    connection.send("ready")
    while True:
        try:
            share: Share = connection.recv()
        except EOFError:
            return
        connection.send(loop.run(share))


class Loop:
    """A loaded model and the loop over it."""

    def __init__(self, model: LoopModel, threads: int) -> None:
        self._session: Session = load_runtime(model.variant.runtime).load(
            model.path, model.variant, RuntimeOptions(threads=threads)
        )
        self._tokenizer = Tokenizer.from_file(str(model.path / model.tokenizer))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_length=model.limits.max_item_tokens)
        # Where each new shape is compiled, the loop is given the same fixed set of shapes as the fleet.
        self._fixed = FixedShapes(model.limits) if self._session.compiles_per_shape else None

    def warm_up(self) -> None:
        """Runs shapes like those of the work, so that nothing is compiled or allocated on the clock."""
        if self._fixed is not None:
            shapes = self._fixed.warm_shapes()
        else:
            shapes = tuple(PassShape(rows, length) for length in (16, 64, 256) for rows in (1, 4))
        for shape in shapes:
            for _ in range(2):
                self._pass([np.ones(shape.length, np.int64)] * shape.rows, shape)

    def run(self, share: Share) -> ShareResult:
        """Runs one share, tokenising included."""
        began = time.process_time()
        encodings = self._tokenizer.encode_batch_fast(list(share.texts))
        tokens = [np.array(encoding.ids, np.int64) for encoding in encodings]
        lengths = [len(ids) for ids in tokens]
        vectors: NDArray[np.float32] | None = None
        padded = 0
        for batch in batches(lengths, share.budget):
            for part in self._fitting(batch, lengths):
                shape = self._shape(len(part), max(lengths[index] for index in part))
                rows = self._pass([tokens[index] for index in part], shape)[: len(part)]
                vectors = np.empty((len(tokens), rows.shape[1]), np.float32) if vectors is None else vectors
                vectors[part] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
                padded += shape.tokens
        assert vectors is not None  # noqa: S101 - a share has texts
        return ShareResult(vectors, time.process_time() - began, sum(lengths), padded)

    def _fitting(self, batch: list[int], lengths: list[int]) -> list[list[int]]:
        """Cuts a batch that the fixed shapes do not hold."""
        if self._fixed is None:
            return [batch]
        try:
            self._fixed.shape(len(batch), max(lengths[index] for index in batch))
        except ValueError:
            half = len(batch) // 2
            return self._fitting(batch[:half], lengths) + self._fitting(batch[half:], lengths)
        return [batch]

    def _shape(self, count: int, longest: int) -> PassShape:
        return PassShape(count, longest) if self._fixed is None else self._fixed.shape(count, longest)

    def _pass(self, tokens: list[NDArray[np.int64]], shape: PassShape) -> NDArray[Any]:
        ids = np.zeros((shape.rows, shape.length), np.int64)
        mask = np.zeros((shape.rows, shape.length), np.int64)
        for row, one in enumerate(tokens):
            ids[row, : len(one)] = one
            mask[row, : len(one)] = 1
        return self._session.run({"input_ids": ids, "attention_mask": mask})[_OUTPUT]

"""The model as every peer runs it: same file, session options, texts, pooling and normalisation as Batchfleet's loop.

Imported in each peer's own environment, where only NumPy, ONNX Runtime and tokenizers are installed beside it.
"""

import base64
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from tokenizers import Tokenizer

VARIABLE = "BATCHFLEET_PEER_SETUP"


@dataclass(frozen=True)
class Setup:
    """What the runner tells a peer, as JSON in one environment variable.

    Attributes:
        model: The ONNX file.
        output: The graph's output with one pooled vector a text.
        budget: Padded tokens of a pass where the handler sorts; the best in-process loop's own.
        batch: Texts that the peer may hand to the handler at once.
        sort: Whether the handler sorts them by length and cuts them by `budget`; else they are padded to the longest.
        compact: Whether a vector is answered as base64 of its float32 bytes, instead of a list of numbers.
    """

    model: str
    tokenizer: str
    output: str
    max_tokens: int
    budget: int
    batch: int
    sort: bool
    wait_ms: int
    compact: bool
    workers: int
    pool: str
    prefetch: int
    port: int
    broker: str

    @classmethod
    def from_environment(cls) -> Self:
        """Reads it."""
        return cls(**json.loads(os.environ[VARIABLE]))


class Embedder:
    """Tokenizer and session, loaded and warmed up."""

    def __init__(self, setup: Setup) -> None:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        self._setup = setup
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = ort.InferenceSession(
            setup.model,
            options,
            providers=["CPUExecutionProvider"],
            # Fused, both are slower on this provider; Batchfleet leaves them out as well.
            disabled_optimizers=["BiasGeluFusion", "SkipLayerNormFusion"],
        )
        self._tokenizer = Tokenizer.from_file(str(Path(setup.tokenizer)))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_length=setup.max_tokens)
        for rows in (1, min(4, setup.batch)):
            for words in (8, 50, 200):
                self.embed([" ".join(["word"] * words)] * rows)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Returns one vector of length 1 a text, in order."""
        tokens = [np.array(one.ids, np.int64) for one in self._tokenizer.encode_batch_fast(list(texts))]
        vectors: NDArray[np.float32] | None = None
        for batch in passes([len(ids) for ids in tokens], self._setup.budget if self._setup.sort else None):
            rows = self._run([tokens[index] for index in batch])
            vectors = np.empty((len(tokens), rows.shape[1]), np.float32) if vectors is None else vectors
            vectors[batch] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        if vectors is None:
            raise ValueError("no texts")
        return vectors

    def answers(self, texts: Sequence[str]) -> list[Any]:
        """Returns the vectors as they travel."""
        vectors = self.embed(texts)
        if self._setup.compact:
            return [base64.b64encode(vector.tobytes()).decode() for vector in vectors]
        return vectors.tolist()  # type: ignore[no-any-return]  # NumPy says Any

    def _run(self, tokens: list[NDArray[np.int64]]) -> NDArray[np.float32]:
        shape = len(tokens), max(len(ids) for ids in tokens)
        ids, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for row, one in enumerate(tokens):
            ids[row, : len(one)] = one
            mask[row, : len(one)] = 1
        feeds = {"input_ids": ids, "attention_mask": mask}
        rows: NDArray[np.float32] = self._session.run([self._setup.output], feeds)[0]
        return rows


def passes(lengths: Sequence[int], budget: int | None) -> Iterator[list[int]]:
    """Yields the texts of each pass: by length within a budget of padded tokens, or all at once as they came."""
    if budget is None:
        yield list(range(len(lengths)))
        return
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[index] > budget:
            yield batch
            batch = []
        batch.append(index)
    yield batch

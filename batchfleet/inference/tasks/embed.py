"""The `embed` task: texts to vectors, by an encoder whose graph pools but does not normalise.

Tokenising runs in the `tokenizers` library (Rust, without the GIL) for all texts of many jobs at once.
"""

import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from batchfleet.errors import ModelConfigError
from batchfleet.foreign import describe, ends_the_process
from batchfleet.inference.shapes import PassShape
from batchfleet.inference.task import Array, ItemFault, Output, PreparedItem, Results
from batchfleet.inference.tasks.embed_intake import EmbedIntake, EmbedParameters, text_of
from batchfleet.inference.tasks.sample_texts import SAMPLE_TEXTS
from batchfleet.jobs.job import JobErrorCode
from batchfleet.models.config import CONFIG_FILE, Limits, convert
from batchfleet.models.repository import ModelFiles

SAMPLE_TEXT = "Whoever packs a parcel well leaves little room for air, and yet each thing inside can be found again."

LEAST_COSINE = 0.99999
"""How well a vector computed alone and one computed in company agree at least."""

_TINY = 1e-12  # a vector shorter than this has no direction worth keeping


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedOptions:
    """`[task_options]` of an embedding model.

    Attributes:
        tokenizer: Path of the `tokenizer.json`, relative to the version's folder.
        output: Name of the graph's output: mean-pooled vectors `[rows, width]`, not normalised.
    """

    tokenizer: str = "tokenizer.json"
    output: str = "sentence_embedding"


class EmbedTask(EmbedIntake):
    """Embeds texts with one model. The payload of an item is its token ids, int32 `[length]`."""

    def __init__(self, tokenizer: Tokenizer, limits: Limits, *, output: str = "sentence_embedding") -> None:
        """Takes the tokenizer over: its padding and truncation are set to what `limits` say."""
        tokenizer.no_padding()  # padding is the pass's business
        if limits.overlong == "truncate":
            tokenizer.enable_truncation(max_length=limits.max_item_tokens)
        else:
            tokenizer.no_truncation()
        self._tokenizer = tokenizer
        self._limits = limits
        self._output = output
        self._sample_ids = _ids(tokenizer.encode(SAMPLE_TEXT))

    @classmethod
    def load(cls, files: ModelFiles) -> "EmbedTask":
        """Returns the task of a verified model.

        Raises:
            ModelConfigError: If an option is wrong or the tokenizer is missing or unreadable.
        """
        # Parallelism is one worker process a core; a thread pool inside would only fight with the others.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        source = f"{files.path / CONFIG_FILE}: task_options"
        options = convert(files.config.task_options, EmbedOptions, source=source)
        if options.tokenizer not in files.manifest.files:
            raise ModelConfigError(f"{source}: `tokenizer`: {options.tokenizer!r} is not in the manifest")
        path = files.path / options.tokenizer
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            raise ModelConfigError(f"{path}: not a tokenizer: {error}") from error
        return cls(tokenizer, files.config.limits, output=options.output)

    def default_parameters(self) -> EmbedParameters:
        """Returns the parameters of a request that states none."""
        return EmbedParameters()

    def prepare(
        self, inputs: Sequence[object], parameters: Sequence[EmbedParameters]
    ) -> list[PreparedItem | ItemFault]:
        """Tokenises all inputs at once; an input that cannot be tokenised becomes a fault."""
        del parameters  # none of them changes the tokens
        try:
            encodings = self._tokenizer.encode_batch_fast([text_of(value) for value in inputs])
        except BaseException as error:  # one bad text fails the whole call: find it, let the others pass
            if ends_the_process(error):
                raise
            return [self._prepare_one(value) for value in inputs]
        return [self._item(encoding) for encoding in encodings]

    def pass_key(self, parameters: EmbedParameters) -> Hashable:
        """Returns the same key for all: normalising is decided row by row, after the pass."""
        del parameters
        return None

    def collate(self, items: Sequence[PreparedItem], shape: PassShape) -> dict[str, Array]:
        """Returns `input_ids` and `attention_mask`, int64 `[rows, length]`; padding is 0 in both."""
        lengths = np.zeros(shape.rows, np.int64)
        lengths[: len(items)] = [item.length for item in items]
        real = np.arange(shape.length) < lengths[:, None]
        ids = np.zeros((shape.rows, shape.length), np.int64)
        ids[real] = np.concatenate([item.payload for item in items])
        return {"input_ids": ids, "attention_mask": real.astype(np.int64)}

    def split(
        self, outputs: Mapping[str, Array], items: Sequence[PreparedItem], parameters: Sequence[EmbedParameters]
    ) -> Results:
        """Returns float32 vectors `[items, width]`, of length 1 where their jobs ask for it."""
        rows = outputs[self._output][: len(items)]
        wanted = [item.normalize for item in parameters]
        if all(wanted):
            return _normalized(rows)
        rows = np.array(rows, dtype=np.float32)  # a copy: what the runtime returned is its own
        if any(wanted):
            rows[wanted] = _normalized(rows[wanted])
        return rows

    def agreement(self, alone: Output, in_company: Output) -> float:
        """Returns the cosine of two vectors; 1 for two without a direction, 0 for one."""
        a, b = alone.astype(np.float64), in_company.astype(np.float64)
        norms = float(np.linalg.norm(a) * np.linalg.norm(b))
        return float(a @ b) / norms if norms > _TINY else float(np.array_equal(a, b))

    @property
    def least_agreement(self) -> float:
        """The cosine that is promised between alone and in company."""
        return LEAST_COSINE

    def sample(self, length: int) -> PreparedItem:
        """Returns the tokens of `SAMPLE_TEXT`, repeated or cut to `length`."""
        return PreparedItem(length=length, payload=np.resize(self._sample_ids, length))

    def sample_inputs(self) -> Sequence[object]:
        """Returns texts of 3 to some 300 tokens."""
        return SAMPLE_TEXTS

    def _prepare_one(self, value: object) -> PreparedItem | ItemFault:
        try:
            return self._item(self._tokenizer.encode_batch_fast([text_of(value)])[0])
        except BaseException as error:  # whatever the tokenizer raises is this item's own error, a panic as well
            if ends_the_process(error):
                raise
            return ItemFault(JobErrorCode.INPUT_INVALID, f"cannot be tokenised: {describe(error)}")

    def _item(self, encoding: Encoding) -> PreparedItem | ItemFault:
        ids = _ids(encoding)
        most = self._limits.max_item_tokens
        if len(ids) > most:
            return ItemFault(JobErrorCode.INPUT_TOO_LONG, f"has {len(ids)} tokens, the model takes {most}")
        if not len(ids):
            return ItemFault(JobErrorCode.INPUT_INVALID, "has no tokens")
        return PreparedItem(length=len(ids), payload=ids)


def _ids(encoding: Encoding) -> NDArray[np.int32]:
    return np.array(encoding.ids, dtype=np.int32)


def _normalized(rows: Array) -> NDArray[np.float32]:
    """Returns `rows` `[n, width]` scaled to length 1; rows that are not finite stay so, and are caught later."""
    with np.errstate(invalid="ignore", over="ignore"):
        # Squares in float64: float32 overflows at 1e19 and would turn a finite row into zeros.
        wide = rows.astype(np.float64)
        wide /= np.maximum(np.sqrt(np.einsum("ij,ij->i", wide, wide)), _TINY)[:, None]
        return wide.astype(np.float32)

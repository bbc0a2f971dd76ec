"""The embed task: edge checks without a model, tokens per item, padding that does not show, one vector a text."""

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from batchfleet.errors import InvalidRequestError, ModelConfigError
from batchfleet.inference.intake import intake_for
from batchfleet.inference.shapes import PassShape
from batchfleet.inference.task import ItemFault, PreparedItem
from batchfleet.inference.tasks.embed import EmbedTask
from batchfleet.inference.tasks.embed_intake import EmbedIntake, EmbedParameters
from batchfleet.jobs.job import JobErrorCode
from batchfleet.models.config import Limits
from tests.support.models import tiny_text, write_tiny_source

PLAIN, RAW = EmbedParameters(), EmbedParameters(normalize=False)


@pytest.fixture(scope="module")
def tokenizer_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    write_tiny_source(folder, layers=1, hidden=8, positions=64, seed=0)
    return folder / "tokenizer.json"


def task_of(tokenizer_file: Path, limits: Limits | None = None) -> EmbedTask:
    return EmbedTask(Tokenizer.from_file(str(tokenizer_file)), limits or Limits(max_item_tokens=32))


def lengths(prepared: list[PreparedItem | ItemFault]) -> list[int]:
    return [item.length for item in prepared if isinstance(item, PreparedItem)]


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (7, "inputs[1]"),
        (None, "inputs[1]"),
        (["text"], "inputs[1]"),
        ({"txt": "a"}, "inputs[1].text"),
        ({"text": 7}, "inputs[1].text"),
        ({"text": "a", "more": 1}, "inputs[1].text"),
        ("lone \ud800 surrogate", "inputs[1]"),
        ({"text": "\udfff"}, "inputs[1].text"),
    ],
)
def test_a_wrong_input_is_refused_by_its_place(value: object, field: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        intake_for("embed").check_inputs(["fine", value, "fine"])

    assert caught.value.field == field


def test_texts_and_text_objects_pass_the_edge() -> None:
    intake_for("embed").check_inputs(["", "ascii", "größer 漢字 🚲", {"text": "a"}])


def test_parameters_have_defaults_and_refuse_what_they_do_not_know() -> None:
    intake = EmbedIntake()

    assert intake.parse_parameters({}) == PLAIN
    assert intake.parse_parameters({"normalize": False}) == RAW
    with pytest.raises(InvalidRequestError) as unknown:
        intake.parse_parameters({"normalise": True})
    assert unknown.value.field == "parameters.normalise"
    with pytest.raises(InvalidRequestError) as wrong:
        intake.parse_parameters({"normalize": 1})
    assert wrong.value.field == "parameters.normalize"


def test_an_unknown_task_has_no_intake() -> None:
    with pytest.raises(ModelConfigError, match="there are: embed"):
        intake_for("sing")


def test_items_have_their_own_lengths_unpadded(tokenizer_file: Path) -> None:
    texts = [tiny_text(count) for count in (2, 3, 20)] + [{"text": tiny_text(5)}]

    prepared = task_of(tokenizer_file).prepare(texts, [PLAIN] * 4)

    assert lengths(prepared) == [2, 3, 20, 5]
    assert all(item.payload.dtype == np.int32 for item in prepared if isinstance(item, PreparedItem))


def test_the_longest_item_that_fits_is_whole_and_a_longer_one_is_cut(tokenizer_file: Path) -> None:
    prepared = task_of(tokenizer_file).prepare([tiny_text(32), tiny_text(33)], [PLAIN] * 2)

    assert lengths(prepared) == [32, 32]


def test_with_cutting_off_a_longer_item_fails_by_name_and_alone(tokenizer_file: Path) -> None:
    task = task_of(tokenizer_file, Limits(max_item_tokens=32, overlong="error"))

    prepared = task.prepare([tiny_text(32), tiny_text(33), tiny_text(4)], [PLAIN] * 3)

    assert lengths(prepared) == [32, 4]
    assert prepared[1] == ItemFault(JobErrorCode.INPUT_TOO_LONG, "has 33 tokens, the model takes 32")


def test_an_input_that_cannot_be_tokenised_hurts_no_other(tokenizer_file: Path) -> None:
    prepared = task_of(tokenizer_file).prepare(["air", "\ud800", 7, "box"], [PLAIN] * 4)

    assert lengths(prepared) == [3, 3]
    faults = [item for item in prepared if isinstance(item, ItemFault)]
    assert [fault.code for fault in faults] == [JobErrorCode.INPUT_INVALID] * 2
    assert prepared[1:3] == faults


def test_collating_pads_with_zeros_that_the_mask_leaves_out(tokenizer_file: Path) -> None:
    items = [PreparedItem(2, np.array([5, 6], np.int32)), PreparedItem(3, np.array([7, 8, 9], np.int32))]

    feeds = task_of(tokenizer_file).collate(items, PassShape(rows=3, length=4))

    assert feeds["input_ids"].tolist() == [[5, 6, 0, 0], [7, 8, 9, 0], [0, 0, 0, 0]]
    assert feeds["attention_mask"].tolist() == [[1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 0, 0]]
    assert {array.dtype for array in feeds.values()} == {np.dtype(np.int64)}


def test_splitting_normalises_only_the_rows_whose_job_asks_for_it(tokenizer_file: Path) -> None:
    """Parameters must never cross from one job to another in the same pass."""
    rows = np.array([[3, 4], [3, 4], [0, 0], [9, 9]], np.float32)
    items = [PreparedItem(1, np.zeros(1, np.int32))] * 3

    split = task_of(tokenizer_file).split({"sentence_embedding": rows}, items, [PLAIN, RAW, PLAIN])

    assert [row.tolist() for row in split if not isinstance(row, ItemFault)] == [
        [pytest.approx(0.6), pytest.approx(0.8)],
        [3, 4],
        [0, 0],
    ]


def test_normalising_survives_numbers_whose_squares_overflow(tokenizer_file: Path) -> None:
    rows = np.array([[3e30, 4e30], [np.inf, 1], [np.nan, 1]], np.float32)
    items = [PreparedItem(1, np.zeros(1, np.int32))] * 3

    first, *broken = task_of(tokenizer_file).split({"sentence_embedding": rows}, items, [PLAIN] * 3)

    assert not isinstance(first, ItemFault)
    assert first.tolist() == [pytest.approx(0.6), pytest.approx(0.8)]
    assert not any(np.isfinite(row).all() for row in broken if not isinstance(row, ItemFault))


@pytest.mark.parametrize("length", [1, 2, 17, 32])
def test_a_sample_has_the_length_asked_for(tokenizer_file: Path, length: int) -> None:
    sample = task_of(tokenizer_file).sample(length)

    assert sample.length == length == len(sample.payload)


def test_answers_agree_by_their_cosine(tokenizer_file: Path) -> None:
    task = task_of(tokenizer_file)
    a, b, nothing = (np.array(values, np.float32) for values in ([3.0, 4.0], [4.0, 3.0], [0.0, 0.0]))

    assert task.agreement(a, 7 * a) == pytest.approx(1.0)
    assert task.agreement(a, b) == pytest.approx(0.96)
    assert (task.agreement(nothing, nothing), task.agreement(a, nothing)) == (1.0, 0.0)
    assert task.least_agreement == 0.99999

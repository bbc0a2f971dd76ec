"""The benchmark's loop: its plans cover every text once, within their budget."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfleet.embedded.bench.plans import Plan, batches, plans, shares
from batchfleet.embedded.bench.spec import Lengths
from batchfleet.embedded.bench.workload import make_texts

LENGTHS = st.lists(st.integers(1, 256), min_size=1, max_size=200)


@given(lengths=LENGTHS, budget=st.sampled_from([None, 256, 1024]))
def test_batches_hold_every_text_once_within_the_budget(lengths: list[int], budget: int | None) -> None:
    found = batches(lengths, Plan(1, 1, budget))

    assert sorted(index for batch in found for index in batch.texts) == list(range(len(lengths)))
    for batch in found:
        assert (batch.rows, batch.length) == (len(batch.texts), max(lengths[index] for index in batch.texts))
        assert batch.rows == 1 or (budget is not None and batch.rows * batch.length <= budget)


@given(lengths=LENGTHS, budget=st.sampled_from([256, 1024]))
def test_filled_batches_have_few_shapes_and_no_row_empty_but_in_the_last(lengths: list[int], budget: int) -> None:
    found = batches(lengths, Plan(1, 1, budget, filled=True))

    assert sorted(index for batch in found for index in batch.texts) == list(range(len(lengths)))
    for batch in found:
        assert batch.length % 8 == 0
        assert batch.length >= max(lengths[index] for index in batch.texts)
        assert batch.rows.bit_count() == 1
        assert batch.rows == 1 or batch.rows * batch.length <= budget
    assert all(len(batch.texts) == batch.rows for batch in found[:-1])
    assert found[-1].rows < 2 * len(found[-1].texts)


@given(count=st.integers(1, 500), processes=st.integers(1, 8))
def test_shares_hold_every_text_once(count: int, processes: int) -> None:
    found = [index for share in shares(count, processes) for index in share]

    assert sorted(found) == list(range(count))


@pytest.mark.parametrize(("cores", "splits"), [(1, {(1, 1)}), (2, {(2, 1), (1, 2), (1, 1)})])
def test_all_splits_of_the_cores_are_tried(cores: int, splits: set[tuple[int, int]]) -> None:
    found = plans(cores)

    assert {(plan.processes, plan.threads) for plan in found} == splits
    assert len(found) == len(set(found)) == 5 * len(splits)
    assert Plan(1, 1, None) in found
    compiled = plans(cores, compiles=True)
    assert {(plan.processes, plan.threads) for plan in compiled} == {(cores, 1), (1, cores)}
    assert {plan.filled for plan in compiled} == {False, True}


def test_the_workload_is_seeded_and_of_the_stated_lengths() -> None:
    texts = make_texts(1_000)

    assert texts == make_texts(1_000)
    assert len(set(texts)) == 1_000
    words = sorted(len(text.split()) for text in texts)
    assert 22 < sum(words) / len(words) < 34  # about 40 tokens
    assert words[-1] > 100


def test_other_lengths_make_other_texts() -> None:
    short = make_texts(300, Lengths(10, 0.3))

    assert 4 < sum(len(text.split()) for text in short) / 300 < 8
    assert make_texts(300, seed=8) != make_texts(300)
    assert len(make_texts(3_000, Lengths(3, 0))) == 3_000  # single words, of which there are not so many

"""The benchmark's loop: its plans cover every text once, within their budget."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfleet.embedded.bench.plans import Plan, batches, plans, shares
from batchfleet.embedded.bench.workload import make_texts


@given(lengths=st.lists(st.integers(1, 256), min_size=1, max_size=200), budget=st.sampled_from([None, 256, 1024]))
def test_batches_hold_every_text_once_within_the_budget(lengths: list[int], budget: int | None) -> None:
    found = list(batches(lengths, budget))

    assert sorted(index for batch in found for index in batch) == list(range(len(lengths)))
    for batch in found:
        padded = len(batch) * max(lengths[index] for index in batch)
        assert len(batch) == 1 or (budget is not None and padded <= budget)


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


def test_the_workload_is_seeded_and_of_the_stated_lengths() -> None:
    texts = make_texts(1_000)

    assert texts == make_texts(1_000)
    assert len(set(texts)) == 1_000
    words = sorted(len(text.split()) for text in texts)
    assert 22 < sum(words) / len(words) < 34  # about 40 tokens
    assert words[-1] > 100

"""Shapes: exact where any shape is free, a warmed fixed set where each new one costs a compilation."""

from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfleet.inference.shapes import ExactShapes, FixedShapes, PassShape, ShapePolicy
from batchfleet.models.config import Limits

limits_strategy = st.builds(
    Limits,
    max_batch_items=st.integers(1, 128),
    max_batch_tokens=st.integers(1, 4096),
    max_item_tokens=st.integers(1, 2048),
)


Policy: TypeAlias = type[ExactShapes] | type[FixedShapes]
policies: st.SearchStrategy[Policy] = st.sampled_from([ExactShapes, FixedShapes])


@st.composite
def admitted_batches(draw: st.DrawFn, policy: st.SearchStrategy[Policy]) -> tuple[Limits, ShapePolicy, int, int]:
    """Limits, a policy under them, and the count and longest length of a batch that it admits."""
    limits = draw(limits_strategy)
    shapes = draw(policy)(limits)
    longest = draw(st.integers(1, limits.max_item_tokens))
    return limits, shapes, draw(st.integers(1, shapes.most_rows(longest))), longest


@given(admitted_batches(st.just(ExactShapes)))
def test_exact_shapes_add_no_padding(case: tuple[Limits, ShapePolicy, int, int]) -> None:
    _, shapes, count, longest = case

    assert shapes.shape(count, longest) == PassShape(count, longest)


@given(admitted_batches(st.just(FixedShapes)))
def test_no_traffic_meets_a_shape_that_the_warm_up_did_not_run(case: tuple[Limits, ShapePolicy, int, int]) -> None:
    _, shapes, count, longest = case

    shape = shapes.shape(count, longest)

    assert shape in shapes.warm_shapes()
    assert count <= shape.rows < 2 * count
    assert shape.length >= longest
    assert shapes.lengths is not None
    assert shape.length in shapes.lengths


@given(admitted_batches(policies))
def test_a_pass_stays_within_the_token_budget_as_it_is_padded(case: tuple[Limits, ShapePolicy, int, int]) -> None:
    limits, shapes, count, longest = case

    shape = shapes.shape(count, longest)

    assert shape.rows <= limits.max_batch_items
    assert shape.tokens <= limits.max_batch_tokens or shape.rows == 1


@given(limits_strategy)
def test_the_fixed_set_is_small(limits: Limits) -> None:
    shapes = FixedShapes(limits).warm_shapes()

    assert len(shapes) == len(set(shapes)) <= 8 * len(FixedShapes(limits).lengths)


@given(limits_strategy)
def test_exact_warm_up_covers_one_row_and_a_full_batch_of_the_longest(limits: Limits) -> None:
    shapes = ExactShapes(limits).warm_shapes()

    assert PassShape(1, limits.max_item_tokens) in shapes
    assert PassShape(ExactShapes(limits).most_rows(limits.max_item_tokens), limits.max_item_tokens) in shapes


@pytest.mark.parametrize("policy", [ExactShapes, FixedShapes])
@pytest.mark.parametrize(("count", "longest"), [(0, 5), (1, 0), (1, 33), (5, 5), (3, 32)])
def test_a_batch_over_the_limits_has_no_shape(policy: Policy, count: int, longest: int) -> None:
    limits = Limits(max_batch_items=4, max_batch_tokens=64, max_item_tokens=32)

    with pytest.raises(ValueError, match=r"limits|outside"):
        policy(limits).shape(count, longest)


def test_an_item_over_the_token_budget_may_still_run_alone() -> None:
    limits = Limits(max_batch_tokens=10, max_item_tokens=100)

    assert ExactShapes(limits).shape(1, 100) == PassShape(1, 100)
    assert FixedShapes(limits).shape(1, 100) == PassShape(1, 100)

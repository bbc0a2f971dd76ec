"""Shapes: exact where any shape is free, a warmed fixed set where each new one costs a compilation."""

import random
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfleet.inference.shapes import WARM_SHAPES, WARM_TOKENS, ExactShapes, FixedShapes, PassShape, ShapePolicy
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
    assert count <= shape.rows
    assert shape.length >= longest
    assert shapes.lengths is not None
    assert shape.length in shapes.lengths


@given(admitted_batches(policies))
def test_a_pass_stays_within_the_token_budget_as_it_is_padded(case: tuple[Limits, ShapePolicy, int, int]) -> None:
    limits, shapes, count, longest = case

    shape = shapes.shape(count, longest)

    assert shape.rows <= limits.max_batch_items
    assert shape.tokens <= limits.max_batch_tokens or shape.rows == 1


@given(admitted_batches(st.just(FixedShapes)))
def test_a_small_batch_is_not_blown_up(case: tuple[Limits, ShapePolicy, int, int]) -> None:
    """Less than twice the rows, and the length to the next step of the coarsest grid."""
    limits, shapes, count, longest = case

    tokens = shapes.shape(count, longest).tokens

    assert tokens < 2 * count * min(limits.max_item_tokens, max(16, 1.5 * longest + 1))


@given(limits_strategy)
def test_the_warm_up_of_the_fixed_set_is_bounded(limits: Limits) -> None:
    shapes = FixedShapes(limits)
    warm = shapes.warm_shapes()

    coarsest = len(shapes.lengths) <= 2 * limits.max_item_tokens.bit_length()
    affordable = len(warm) <= WARM_SHAPES and sum(shape.tokens for shape in warm) <= WARM_TOKENS
    assert affordable or coarsest
    assert len(warm) == len(set(warm))


DEMO = Limits(max_batch_items=64, max_batch_tokens=1024, max_item_tokens=256)


def test_padding_of_full_batches_is_small() -> None:
    """A window of 1,024 items, run from the longest to the shortest: multiples of 16 cost 18 %."""
    rng = random.Random(7)
    lengths = sorted(max(3, min(256, round(rng.lognormvariate(3.37, 0.8)))) for _ in range(1024))
    shapes = FixedShapes(DEMO)
    padded = 0
    left = lengths.copy()
    while left:
        count = min(len(left), shapes.most_rows(left[-1]))
        padded += shapes.shape(count, left[-1]).tokens
        del left[-count:]

    assert 1 - sum(lengths) / padded < 0.19


def test_lengths_of_a_fixed_set_are_whole_tiles() -> None:
    """An answer in bf16 must not depend on the length that its company pads it to: decision 0025."""
    shapes = FixedShapes(DEMO)

    assert DEMO.max_item_tokens % 16 == 0
    assert all(shape.length % 16 == 0 for shape in shapes.warm_shapes())


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

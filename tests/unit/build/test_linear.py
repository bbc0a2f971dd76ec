"""Quantised weights keep what they stand for, and stay inside what the arithmetic can hold."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfleet.build.linear import WEIGHT_LEVELS, quantize_weight


@given(st.integers(0, 2**32 - 1), st.sampled_from([8, 7]))
def test_a_weight_is_at_most_half_a_step_off(seed: int, bits: int) -> None:
    rng = np.random.default_rng(seed)
    weight = rng.normal(0, 10.0 ** rng.integers(-4, 3), (6, 3)).astype(np.float32)

    integers, scales = quantize_weight(weight, WEIGHT_LEVELS[bits])

    assert integers.dtype == np.int8
    assert np.abs(integers.astype(int)).max() == WEIGHT_LEVELS[bits]
    assert (np.abs(integers * scales - weight) <= scales * 0.501).all()


def test_a_channel_of_zeros_stays_zero() -> None:
    integers, scales = quantize_weight(np.zeros((2, 1), np.float32), 127)

    assert integers.tolist() == [[0], [0]]
    assert np.isfinite(scales).all()


@pytest.mark.parametrize(("bits", "fits"), [(8, False), (7, True)])
def test_only_seven_bits_keep_a_sum_of_two_products_inside_sixteen(bits: int, fits: bool) -> None:
    """Before VNNI, x86 adds two u8 x s8 products in a saturating 16-bit register."""
    assert (2 * 255 * WEIGHT_LEVELS[bits] <= np.iinfo(np.int16).max) is fits

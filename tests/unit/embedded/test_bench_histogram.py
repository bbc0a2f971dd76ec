"""Percentiles of the histogram are those of the values, within the stated error; histograms add up."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfleet.embedded.bench.histogram import LONGEST_US, RELATIVE_ERROR, Histogram

LATENCIES = st.lists(st.floats(0.0, 4_000.0), min_size=1, max_size=200)
SHARES = st.sampled_from([1.0, 50.0, 90.0, 99.0, 99.9, 100.0])


@given(latencies=LATENCIES, share=SHARES)
def test_a_percentile_is_the_value_of_its_rank_or_a_little_more(latencies: list[float], share: float) -> None:
    rank = max(1, int(np.ceil(share / 100 * len(latencies))))
    true_us = np.ceil(sorted(latencies)[rank - 1] * 1e6)

    found_us = Histogram.of(latencies).percentile_ms(share) * 1e3

    assert true_us - 1e-6 * true_us <= found_us <= true_us * (1 + RELATIVE_ERROR) + 1e-6 * true_us


@given(left=LATENCIES, right=LATENCIES, share=SHARES)
def test_two_histograms_add_up_to_that_of_all_values(left: list[float], right: list[float], share: float) -> None:
    together = Histogram.of(left) + Histogram.of(right)

    assert len(together) == len(left) + len(right)
    assert together.percentile_ms(share) == Histogram.of(left + right).percentile_ms(share)


def test_the_edges() -> None:
    assert np.isnan(Histogram().percentile_ms(50))
    assert Histogram().percentiles_ms() == {}
    assert Histogram.of([-1.0]).percentile_ms(50) == 0.0
    assert Histogram.of([1e9]).percentile_ms(50) == pytest.approx(LONGEST_US / 1e3, rel=RELATIVE_ERROR)
    with pytest.raises(ValueError, match="number"):
        Histogram.of([float("nan")])

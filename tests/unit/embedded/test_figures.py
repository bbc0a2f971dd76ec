"""Metrics are read back as they were written."""

import math

import pytest

from batchfleet.embedded.figures import Figures

FIRST = """# TYPE batchfleet_tokens_real counter
batchfleet_tokens_real_total{model="a"} 90.0
batchfleet_tokens_real_total{model="b"} 10.0
# TYPE batchfleet_tokens_padded counter
batchfleet_tokens_padded_total{model="a"} 125.0
# TYPE batchfleet_batch_items histogram
batchfleet_batch_items_bucket{le="1.0",model="a"} 2.0
batchfleet_batch_items_bucket{le="2.0",model="a"} 2.0
batchfleet_batch_items_bucket{le="4.0",model="a"} 5.0
batchfleet_batch_items_bucket{le="+Inf",model="a"} 5.0
batchfleet_batch_items_count{model="a"} 5.0
batchfleet_batch_items_sum{model="a"} 14.0
"""


def test_labels_are_summed() -> None:
    figures = Figures.parse(FIRST)

    assert figures.value("tokens_real_total") == 100.0
    assert figures.padding_waste == pytest.approx(0.2)


def test_a_distribution_counts_each_bucket_alone() -> None:
    figures = Figures.parse(FIRST)

    assert figures.distribution("batch_items") == [(1.0, 2), (4.0, 3)]
    assert figures.mean("batch_items") == 2.8


def test_what_was_added_since() -> None:
    later = Figures.parse(FIRST.replace("90.0", "190.0").replace('le="1.0",model="a"} 2.0', 'le="1.0",model="a"} 3.0'))

    added = later.since(Figures.parse(FIRST))

    assert added.value("tokens_real_total") == 100.0
    assert added.buckets["batch_items"][1.0] == 1.0


def test_nothing_counted_is_zero() -> None:
    empty = Figures()

    assert (empty.value("x"), empty.mean("x"), empty.padding_waste, empty.distribution("x")) == (0.0, 0.0, 0.0, [])


def test_quantiles_are_interpolated_within_their_bucket() -> None:
    figures = Figures({}, {"wait_seconds": {1.0: 2.0, 2.0: 4.0, math.inf: 5.0}})

    assert figures.quantile("wait_seconds", 0.2) == 0.5
    assert figures.quantile("wait_seconds", 0.6) == 1.5
    assert figures.quantile("wait_seconds", 1.0) == 2.0  # beyond the last end nothing is known
    assert figures.quantile("other", 0.5) == 0.0

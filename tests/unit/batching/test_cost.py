"""The cost model and the arrival rate: pure estimates that the window leans on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfleet.batching.buckets import LengthBuckets
from batchfleet.batching.cost import ArrivalRate, CostModel, Sample, fit


@given(st.floats(1e-4, 0.1), st.floats(1e-6, 1e-3))
def test_a_line_is_found_again(fixed: float, per_token: float) -> None:
    samples = [Sample(count, length, fixed + per_token * count * length) for count in (1, 4, 16) for length in (8, 64)]

    found = fit(samples)

    assert found.fixed_s == pytest.approx(fixed, rel=1e-3, abs=1e-9)
    assert found.per_token_s == pytest.approx(per_token, rel=1e-3)


def test_coefficients_never_go_below_zero() -> None:
    falling = fit([Sample(1, 8, 0.2), Sample(1, 64, 0.1)])
    steep = fit([Sample(1, 8, 0.001), Sample(1, 64, 0.1)])

    assert falling.per_token_s == 0.0
    assert steep.fixed_s == 0.0


def test_one_size_fits_no_line() -> None:
    assert fit([Sample(1, 8, 0.1)] * 5) == CostModel()


def test_the_scale_follows_a_machine_that_got_slower() -> None:
    model = CostModel(fixed_s=0.01, per_token_s=0.0)
    for _ in range(60):
        model = model.observed(1, 8, 0.02)

    assert model.seconds(1, 8) == pytest.approx(0.02, rel=0.05)


def test_one_descheduled_pass_does_not_rule_the_estimate() -> None:
    model = CostModel(fixed_s=0.01, per_token_s=0.0).observed(1, 8, 10.0)

    assert model.seconds(1, 8) < 0.013


def test_an_arrival_rate_rises_with_arrivals_and_fades_in_silence() -> None:
    rate = ArrivalRate()
    for tick in range(100):
        rate = rate.arrived(10, tick / 10)

    assert rate.at(10.0) == pytest.approx(100, rel=0.6)
    assert rate.at(30.0) < 0.01
    assert ArrivalRate().at(5.0) == 0.0


def test_buckets_round_up_and_leave_what_is_above_them() -> None:
    buckets = LengthBuckets((16, 32))

    assert [buckets.round_up(n) for n in (1, 16, 17, 32, 33)] == [16, 16, 32, 32, 33]
    assert LengthBuckets().round_up(7) == 7
    with pytest.raises(ValueError, match="rise"):
        LengthBuckets((32, 16))

"""The cost model and the arrival rate: pure estimates that the window leans on."""

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfleet.batching.buckets import LengthBuckets
from batchfleet.batching.cost import ArrivalRate, CostModel, Sample, ShapeCost, fit, learned

_MEASURED = """
1x16 447 323, 4x16 712 710, 8x16 806 958, 16x16 905 1162, 32x16 898 1302, 64x16 894 1344, 128x16 838 1365, 1x32 310 253,
4x32 408 521, 8x32 456 640, 16x32 455 716, 64x32 416 735, 1x64 175 178, 4x64 204 277, 8x64 214 337, 16x64 184 326,
32x64 172 233, 128x64 134 300, 1x128 95 124, 8x128 95 159, 64x128 67 152, 1x256 41 57, 8x256 32 68, 64x256 22 52
"""
"""Rows x tokens, then items a CPU second of all-MiniLM-L6-v2: INT8 on ONNX Runtime, bf16 on OpenVINO."""


def measured(column: int) -> list[Sample]:
    passes = []
    for line in _MEASURED.split(","):
        shape, *rates = line.split()
        rows, tokens = map(int, shape.split("x"))
        passes.append(Sample(rows, tokens, rows / float(rates[column])))
    return passes


def mean_error(model: CostModel, passes: Sequence[Sample]) -> float:
    """Returns the mean of the relative errors, as logarithms."""
    return sum(abs(math.log(model.seconds(s.count, s.length) / s.seconds)) for s in passes) / len(passes)


def straight_line(passes: Sequence[Sample]) -> CostModel:
    """Returns the line through what was measured: fixed plus per token, by least squares over relative errors."""
    total = sum(s.seconds**-2 for s in passes)
    mean_x = sum(s.count * s.length * s.seconds**-2 for s in passes) / total
    mean_y = sum(s.seconds**-1 for s in passes) / total
    over = sum((s.count * s.length - mean_x) * (s.seconds - mean_y) * s.seconds**-2 for s in passes)
    slope = over / sum((s.count * s.length - mean_x) ** 2 * s.seconds**-2 for s in passes)
    return CostModel(mean_y - slope * mean_x, slope)


@pytest.mark.parametrize("column", [0, 1], ids=["int8", "bf16"])
def test_shapes_held_out_are_guessed_better_than_by_a_line(column: int) -> None:
    passes = measured(column)
    errors, of_lines = [], []
    for left_out in range(4):
        known = [one for place, one in enumerate(passes) if place % 4 != left_out]
        unknown = passes[left_out::4]
        errors.append(mean_error(fit(known), unknown))
        of_lines.append(mean_error(straight_line(known), unknown))

    assert sum(errors) < 0.9 * sum(of_lines)


@pytest.mark.parametrize("column", [0, 1], ids=["int8", "bf16"])
def test_passes_teach_the_shapes_that_run(column: int) -> None:
    """Noisy passes, each fiftieth descheduled: what was guessed from the warm-up is known after a while."""
    passes, chance = measured(column), random.Random(1)
    model = fit([one for one in passes if one.count in {1, 16, 64}])
    guessed = mean_error(model, passes)
    for turn in range(40):
        for one in passes:
            noise = 20.0 if (turn + one.count) % 50 == 0 else chance.lognormvariate(0, 0.05)
            model = model.observed(one.count, one.length, one.seconds * noise)

    assert mean_error(model, passes) < 0.4 * guessed


@pytest.mark.parametrize("column", [0, 1], ids=["int8", "bf16"])
def test_a_new_worker_starts_with_what_the_fleet_knows_at_the_speed_of_its_own_machine(column: int) -> None:
    slower = [Sample(s.count, s.length, 1.6 * s.seconds) for s in measured(column)]
    known = fit(measured(column)).known()
    own = [one for one in slower if one.count == 1]

    informed = learned(known, own)

    assert mean_error(informed, slower) < 0.12
    assert mean_error(informed, slower) < mean_error(fit(own), slower)
    assert learned([], own) == fit(own)
    assert learned(known, []).seconds(8, 64) == pytest.approx(fit(measured(column)).seconds(8, 64), rel=0.1)


def test_what_is_known_is_bounded_and_found_again() -> None:
    chance = random.Random(3)
    model = fit([Sample(1, 8, 0.001), Sample(8, 64, 0.01)])
    for _ in range(2000):
        count, length = chance.randint(1, 5000), chance.randint(1, 100_000)
        model = model.observed(count, length, 1e-3 + 1e-6 * count * length)

    known = model.known()

    assert len(known) <= 11 * 24
    assert all(isinstance(one, ShapeCost) and one.weight > 0 for one in known)
    assert all(model.seconds(one.count, one.length) == one.seconds for one in known)


@given(st.lists(st.builds(Sample, st.integers(1, 64), st.integers(1, 512), st.floats(1e-6, 100.0)), max_size=30))
def test_no_measurement_breaks_the_model(passes: list[Sample]) -> None:
    model = fit(passes)
    for one in passes:
        model = model.observed(one.count, one.length, one.seconds)

    assert model.fixed_s >= 0
    assert model.per_token_s >= 0
    assert model.per_square_s >= 0
    assert all(0 < model.seconds(count, length) < 1e9 for count in (1, 7, 64) for length in (1, 60, 512))
    assert all(0 < learned(model.known(), passes).seconds(count, 40) < 1e9 for count in (1, 7, 64))


def test_a_slow_neighbour_moves_all_shapes_not_their_order() -> None:
    model = fit(measured(0))
    before = model.seconds(16, 32) / model.seconds(4, 32)
    for _ in range(20):
        for rows, tokens, rate in ((8, 64, 214), (16, 32, 455), (1, 16, 447)):
            model = model.observed(rows, tokens, 2 * rows / rate)

    assert model.seconds(8, 64) == pytest.approx(2 * 8 / 214, rel=0.1)
    assert model.seconds(1, 256) > 1.4 / 41, "a shape that did not run"
    assert model.seconds(16, 32) / model.seconds(4, 32) == pytest.approx(before, rel=0.35)


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


def test_absurd_measurements_leave_a_model() -> None:
    usual = [Sample(1 + k % 8, 8 + k, 0.1) for k in range(80)]

    assert fit([Sample(1, 8, 50.0), *usual]).seconds(4, 40) == pytest.approx(0.1, rel=0.1)
    assert fit([Sample(1, 8, 1e-6), *usual]).seconds(4, 40) > 0


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


def test_costs_along_a_length_are_those_of_each_count() -> None:
    """Prices are read by the row; single shapes by `seconds`: both must say the same of plain and learned models."""
    plain = CostModel(fixed_s=0.002, per_token_s=5e-5, scale=1.3, per_square_s=1e-7)
    bent = plain
    for count, length in ((1, 8), (3, 11), (16, 64), (64, 40), (2000, 300), (7, 20_000)):
        bent = bent.observed(count, length, 1.4 * bent.seconds(count, length))

    counts = (1, 2, 3, 6, 17, 64, 1024, 3000)
    for model in (plain, bent):
        for length in (1, 8, 11, 37, 64, 300, 16_384, 20_000):
            assert model.along(length, counts) == pytest.approx([model.seconds(n, length) for n in counts])


numbers = st.floats() | st.sampled_from(
    [0.0, -0.0, 5e-324, 1e-320, 1e-300, 1e-7, 1e5, 1e308, math.inf, -math.inf, math.nan]
)
counts = st.integers(-3, 70) | st.sampled_from([0, -(2**63), 2**63 - 1, 2**31])


@given(
    st.lists(st.builds(ShapeCost, counts, counts, numbers, numbers), max_size=12),
    st.lists(st.builds(Sample, counts, counts, numbers), max_size=12),
    counts,
    counts,
    numbers,
)
def test_no_figure_however_wrong_breaks_the_model(
    known: list[ShapeCost], measured: list[Sample], count: int, length: int, seconds: float
) -> None:
    """What is learned comes from a database and from clocks: one row that cannot be must not end a worker."""
    for model in (fit(measured), learned(known, measured)):
        after = model.observed(count, length, seconds)
        for shape in ((1, 1), (8, 64), (128, 512)):
            assert 0 < after.seconds(*shape) < math.inf
        assert all(0 < second < math.inf for second in after.along(64, (1, 2, 64)))
        assert all(math.isfinite(cost.seconds) for cost in after.known())
        after.seconds(count, length)
        after.along(length, (count, 1))


def test_one_wrong_figure_spoils_nothing() -> None:
    good = measured(0)
    known = fit(good).known()
    wrong = [
        ShapeCost(0, 64, 0.01, 9.0),
        ShapeCost(-4, 64, 0.01, 9.0),
        ShapeCost(4, 0, 0.01, 9.0),
        ShapeCost(4, 64, 1e-300, 9.0),
        ShapeCost(4, 64, 1e308, 9.0),
        ShapeCost(4, 64, math.nan, 9.0),
        ShapeCost(4, 64, 0.01, math.nan),
    ]

    assert learned([*wrong, *known], [*good, Sample(4, 64, 1e-320)]) == learned(known, good)

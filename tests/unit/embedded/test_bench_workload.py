"""What the benchmark's options mean: lengths, lanes, arrivals, texts of a file."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfleet.embedded.bench.spec import SCENARIOS, LaneMix, Lengths, parse_loads, parse_scenarios
from batchfleet.embedded.bench.workload import NoTextsError, lanes_of, poisson_arrivals, read_texts


def test_scenarios_run_in_one_order() -> None:
    assert parse_scenarios("idle, bulk") == ("bulk", "idle")
    assert parse_scenarios("all") == SCENARIOS


@pytest.mark.parametrize("text", ["", "bulk,", "Bulk", "bulk,none"])
def test_an_unknown_scenario_is_told(text: str) -> None:
    with pytest.raises(ValueError, match="there are bulk"):
        parse_scenarios(text)


def test_lengths_are_read() -> None:
    assert Lengths.parse("lognormal:100") == Lengths(100.0, 0.8)
    assert Lengths.parse("lognormal:12.5:0") == Lengths(12.5, 0.0)


@pytest.mark.parametrize("text", ["40", "lognormal", "lognormal:a", "lognormal:40:1:2", "lognormal:nan", "normal:40"])
def test_other_lengths_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"lognormal|number|MEAN"):
        Lengths.parse(text)


def test_lane_mixes_are_scaled() -> None:
    assert LaneMix.parse("online=1, bulk=3, standard=0").shares == {"online": 0.25, "bulk": 0.75}


@pytest.mark.parametrize(
    "text", ["", "online", "online=x", "online=-1", "online=nan", "fast=1", "bulk=1,bulk=1", "bulk=0"]
)
def test_other_lane_mixes_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"lane|share|LANE=SHARE"):
        LaneMix.parse(text)


@pytest.mark.parametrize("text", ["", "a", "0", "0.5,-1", "nan"])
def test_loads_are_shares(text: str) -> None:
    assert parse_loads("0.3,1") == (0.3, 1.0)
    with pytest.raises(ValueError, match=r"number|share"):
        parse_loads(text)


def test_lanes_are_drawn_by_their_shares_the_same_ones_each_time() -> None:
    mix = LaneMix.parse("online=0.2,bulk=0.8")

    lanes = lanes_of(10_000, mix, 3)

    assert lanes == lanes_of(10_000, mix, 3) != lanes_of(10_000, mix, 4)
    assert 0.18 < lanes.count("online") / len(lanes) < 0.22


@given(rate=st.floats(20, 2_000), seconds=st.floats(1, 30), seed=st.integers(0, 1_000))
def test_arrivals_are_those_of_a_poisson_process(rate: float, seconds: float, seed: int) -> None:
    due = poisson_arrivals(rate, seconds, seed)

    assert np.array_equal(due, poisson_arrivals(rate, seconds, seed))
    assert (np.diff(due) >= 0).all()
    assert due.min() >= 0
    assert due.max() < seconds
    expected = rate * seconds
    assert abs(len(due) - expected) < 6 * np.sqrt(expected)  # a count that differs by more is one in a billion


def test_gaps_between_arrivals_are_exponential_not_even() -> None:
    gaps = np.diff(poisson_arrivals(1_000, 20, 1))

    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.05)
    with pytest.raises(ValueError, match="positive"):
        poisson_arrivals(0, 1, 1)


def test_texts_of_a_file_are_used_over_and_over(tmp_path: Path) -> None:
    file = tmp_path / "texts"
    file.write_text("one\n\n  two \n", encoding="utf-8")

    assert read_texts(file, 5) == ["one", "two", "one", "two", "one"]
    file.write_bytes(b"\n")
    with pytest.raises(NoTextsError):
        read_texts(file, 1)
    file.write_bytes(b"\xff")
    with pytest.raises(NoTextsError):
        read_texts(file, 1)

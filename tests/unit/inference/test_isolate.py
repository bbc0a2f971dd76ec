"""Isolation: one bad item costs its neighbours nothing but a few passes, and a sick device convicts nobody."""

import math
from collections.abc import Hashable, Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfleet.inference.executor import PassItem
from batchfleet.inference.isolate import IsolatedRun, SickDeviceError, run_isolated
from batchfleet.inference.one_shot import OneShotExecutor
from batchfleet.inference.task import Array, ItemFault, Output, PreparedItem
from batchfleet.jobs.job import JobErrorCode
from tests.support.sessions import LIMITS, SAMPLE, NumberTask, StubSession, executor_over, number_items


def fails_on(*bad: float) -> StubSession:
    def behave(values: list[float]) -> None:
        if set(bad) & set(values):
            raise RuntimeError("kernel fault")

    return StubSession(behave)


def failed(run: IsolatedRun) -> set[object]:
    return {key for key, outcome in run.outcomes.items() if isinstance(outcome, ItemFault)}


def test_a_batch_without_trouble_is_one_pass() -> None:
    session = StubSession()

    run = run_isolated(executor_over(session), number_items([1, 2, 3]))

    assert {key: float(value[0]) for key, value in run.outcomes.items() if not isinstance(value, ItemFault)} == {
        "item-1": 2.0,
        "item-2": 4.0,
        "item-3": 6.0,
    }
    assert len(session.runs) == len(run.passes) == 1
    assert (run.failed_passes, run.probes) == (0, 0)


def test_nothing_to_run_is_no_pass() -> None:
    session = StubSession()

    assert run_isolated(executor_over(session), []).outcomes == {}
    assert session.runs == []


def test_b6_the_fifth_of_eight_fails_alone_within_six_extra_passes() -> None:
    """The case as published: seven succeed, one carries its own error, at most six extra passes, probe included."""
    session = fails_on(5)

    run = run_isolated(executor_over(session), number_items(range(1, 9)))

    assert failed(run) == {"item-5"}
    fault = run.outcomes["item-5"]
    assert isinstance(fault, ItemFault)
    assert fault.code is JobErrorCode.PASS_FAILED
    assert "kernel fault" in fault.message
    assert len(run.outcomes) == 8
    assert len(session.runs) - 1 <= 6
    assert run.probes == session.probes == 1


@pytest.mark.parametrize("count", range(1, 34))
def test_one_culprit_costs_at_most_two_passes_a_halving(count: int) -> None:
    for bad in range(1, count + 1):
        session = fails_on(bad)

        run = run_isolated(executor_over(session), number_items(range(1, count + 1)))

        assert failed(run) == {f"item-{bad}"}
        assert len(session.item_runs) - 1 <= 2 * math.ceil(math.log2(count))
        assert [bad] in [[int(value) for value in values] for values in session.item_runs], "convicted unheard"


@given(st.integers(1, 40).flatmap(lambda count: st.tuples(st.just(count), st.sets(st.integers(1, count)))))
def test_any_culprits_are_found_and_nobody_else(case: tuple[int, set[int]]) -> None:
    count, bad = case
    session = fails_on(*bad)

    run = run_isolated(executor_over(session), number_items(range(1, count + 1)))

    assert failed(run) == {f"item-{value}" for value in bad}
    assert set(run.outcomes) == {f"item-{value}" for value in range(1, count + 1)}
    assert len(session.item_runs) <= 2 * count
    assert len(session.item_runs) == len(run.passes) + run.failed_passes
    assert session.probes == run.probes <= 2


@given(st.integers(1, 40), st.integers(1, 40))
def test_a_failure_of_company_convicts_nobody(count: int, most: int) -> None:
    """A batch too large for the device fails, its parts do not: out of memory is no item's fault."""

    def behave(values: list[float]) -> None:
        if len(values) > most:
            raise MemoryError("out of memory")

    session = StubSession(behave)

    run = run_isolated(executor_over(session), number_items(range(count)))

    assert failed(run) == set()
    assert len(run.outcomes) == count
    assert run.probes == 0
    assert len(session.runs) <= 2 * count


def test_a_pass_that_fails_once_convicts_nobody() -> None:
    session = StubSession()

    def behave(values: list[float]) -> None:
        if len(session.runs) == 1:
            raise RuntimeError("hiccup")

    session.behave = behave

    run = run_isolated(executor_over(session), number_items(range(8)))

    assert failed(run) == set()
    assert len(run.outcomes) == 8


def test_a_sick_device_convicts_nobody_and_is_found_in_a_handful_of_passes() -> None:
    session = fails_on(*range(64), SAMPLE)

    with pytest.raises(SickDeviceError) as caught:
        run_isolated(executor_over(session), number_items(range(64)))

    assert caught.value.outcomes == {}
    assert len(session.item_runs) <= 8
    assert session.probes == 1


def test_a_device_that_sickens_later_convicts_only_whom_a_probe_cleared_it_for() -> None:
    session = fails_on(1, 6)
    healthy = session.behave
    assert healthy is not None

    def behave(values: list[float]) -> Array | None:
        if SAMPLE in values and session.probes > 1:
            raise RuntimeError("device lost")
        return healthy(values)

    session.behave = behave

    with pytest.raises(SickDeviceError, match="device lost") as caught:
        run_isolated(executor_over(session), number_items(range(1, 9)))

    assert set(caught.value.outcomes) == {f"item-{value}" for value in (1, 2, 3, 4, 5, 7, 8)}
    assert isinstance(caught.value.outcomes["item-1"], ItemFault)
    assert not isinstance(caught.value.outcomes["item-2"], ItemFault)


def poisons(*bad: float, alone: bool = True) -> StubSession:
    """A session whose output is NaN for the values in `bad`, alone as well or in company only."""

    def behave(values: list[float]) -> Array:
        output = np.array(values, np.float32)[:, None] * 2
        if alone or len(values) > 1:
            output[[value in bad for value in values]] = np.nan
        return output

    return StubSession(behave)


def test_b2_a_non_finite_row_fails_alone_after_one_try_alone() -> None:
    session = poisons(3)

    run = run_isolated(executor_over(session), number_items([1, 2, 3, 4]))

    assert failed(run) == {"item-3"}
    fault = run.outcomes["item-3"]
    assert isinstance(fault, ItemFault)
    assert fault.code is JobErrorCode.NON_FINITE_OUTPUT
    assert session.item_runs == [[1, 2, 3, 4], [3]]
    assert session.probes == 1


def test_b2_a_row_that_is_finite_alone_succeeds() -> None:
    session = poisons(3, alone=False)

    run = run_isolated(executor_over(session), number_items([1, 2, 3, 4]))

    assert failed(run) == set()
    assert session.item_runs == [[1, 2, 3, 4], [3]]
    assert session.probes == 0


def test_b2_a_device_that_gives_nan_for_the_sample_is_sick() -> None:
    session = poisons(3, SAMPLE)

    with pytest.raises(SickDeviceError) as caught:
        run_isolated(executor_over(session), number_items([1, 2, 3, 4]))

    assert set(caught.value.outcomes) == {"item-1", "item-2", "item-4"}


def test_b2_a_device_that_gives_only_nan_is_found_sick_at_the_first_try_alone() -> None:
    session = poisons(*range(1, 33), SAMPLE)

    with pytest.raises(SickDeviceError):
        run_isolated(executor_over(session), number_items(range(1, 33)))

    assert len(session.item_runs) == 2
    assert session.probes == 1


def test_the_journal_is_told_of_every_pass_before_it_runs() -> None:
    session = fails_on(2)
    journal: list[list[object]] = []

    def before(items: Sequence[PassItem]) -> None:
        assert len(journal) == len(session.item_runs)
        journal.append([item.item.payload for item in items])

    run_isolated(executor_over(session), number_items([1, 2, 3, 4]), before_pass=before)

    assert journal == session.item_runs


def test_a_fault_that_the_task_itself_reports_stands_without_a_second_try() -> None:
    class Refusing(NumberTask):
        def split(
            self, outputs: Mapping[str, Array], items: Sequence[PreparedItem], parameters: Sequence[Hashable]
        ) -> list[Output | ItemFault]:
            return [ItemFault(JobErrorCode.INPUT_INVALID, "no") for _ in items]

    session = StubSession()
    executor = OneShotExecutor(Refusing(), session, LIMITS)

    run = run_isolated(executor, number_items([1, 2]))

    assert failed(run) == {"item-1", "item-2"}
    assert len(session.runs) == 1

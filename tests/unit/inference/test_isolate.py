"""Isolation: one bad item costs its neighbours nothing but a few passes, and a sick device convicts nobody."""

import math
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfleet.inference.executor import PassItem
from batchfleet.inference.isolate import run_isolated
from batchfleet.inference.one_shot import OneShotExecutor
from batchfleet.inference.shapes import PassShape
from batchfleet.inference.task import Array, ItemFault, Output, PreparedItem
from batchfleet.inference.tries import IsolatedRun, SickDeviceError
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

    assert caught.value.run.outcomes == {}
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

    assert set(caught.value.run.outcomes) == {f"item-{value}" for value in (1, 2, 3, 4, 5, 7, 8)}
    assert isinstance(caught.value.run.outcomes["item-1"], ItemFault)
    assert not isinstance(caught.value.run.outcomes["item-2"], ItemFault)


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

    assert set(caught.value.run.outcomes) == {"item-1", "item-2", "item-4"}


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


# -- memory -----------------------------------------------------------------------------------------------


def holds(most: int, *bad: float) -> StubSession:
    """A device whose memory holds that many items; a pass with one of `bad` raises."""

    def behave(values: list[float]) -> None:
        if len(values) > most:
            raise RuntimeError("no memory")
        if set(bad) & set(values):
            raise RuntimeError("kernel fault")

    return StubSession(behave)


@given(st.integers(1, 64), st.integers(1, 64))
def test_a_batch_too_large_for_the_memory_is_halved_and_nobody_is_accused(count: int, most: int) -> None:
    session = holds(most)

    run = run_isolated(executor_over(session), number_items(range(count)))

    assert failed(run) == set()
    assert len(run.outcomes) == count
    assert (run.failed_passes, run.probes) == (0, 0)
    sizes = [len(one.items) for one in run.too_large]
    assert sizes == sorted(set(sizes), reverse=True), "no size was tried again that had not fitted"
    assert session.shrinks == len(sizes), "what the runtime caches is given back before the next try"


@given(
    st.integers(1, 40).flatmap(
        lambda count: st.tuples(st.just(count), st.integers(1, 40), st.sets(st.integers(1, count)))
    )
)
def test_culprits_are_found_in_what_fits(case: tuple[int, int, set[int]]) -> None:
    count, most, bad = case
    session = holds(most, *bad)

    run = run_isolated(executor_over(session), number_items(range(1, count + 1)))

    assert failed(run) == {f"item-{value}" for value in bad}
    assert set(run.outcomes) == {f"item-{value}" for value in range(1, count + 1)}
    assert len(run.tries) <= 3 * count


@given(st.integers(1, 24), st.lists(st.sampled_from(["ran", "kernel fault", "no memory"]), max_size=60))
def test_whatever_passes_do_every_item_has_one_outcome_and_none_is_convicted_unheard(
    count: int, fates: list[str]
) -> None:
    """Failures that depend on anything but the items: each fault stands for a pass that failed with its item alone."""
    session = StubSession()
    pending = list(fates)

    def behave(values: list[float]) -> None:
        if SAMPLE not in values and pending and (fate := pending.pop(0)) != "ran":
            raise RuntimeError(fate)

    session.behave = behave

    run = run_isolated(executor_over(session), number_items(range(count)))

    assert set(run.outcomes) == {f"item-{value}" for value in range(count)}
    alone = {one.items[0].key for one in run.tries if len(one.items) == 1 and one.stats is None}
    assert failed(run) <= alone


def test_an_item_that_does_not_fit_alone_has_an_error_of_its_own_after_a_second_try() -> None:
    def behave(values: list[float]) -> None:
        if 5.0 in values:
            raise RuntimeError("no memory")

    session = StubSession(behave)

    run = run_isolated(executor_over(session), number_items([3, 4, 5, 6]))

    assert failed(run) == {"item-5"}
    fault = run.outcomes["item-5"]
    assert isinstance(fault, ItemFault)
    assert fault.code is JobErrorCode.OUT_OF_MEMORY
    assert session.item_runs.count([5.0]) == 2
    assert run.probes == 1


def test_an_item_that_fits_once_memory_was_given_back_succeeds() -> None:
    session = StubSession()

    def behave(values: list[float]) -> None:
        if not session.shrinks:
            raise RuntimeError("no memory")

    session.behave = behave

    run = run_isolated(executor_over(session), number_items([1]))

    assert failed(run) == set()
    assert session.item_runs == [[1], [1]]


def test_a_device_whose_memory_does_not_hold_the_sample_is_sick() -> None:
    session = holds(0)

    with pytest.raises(SickDeviceError) as caught:
        run_isolated(executor_over(session), number_items([1, 2]))

    assert caught.value.run.outcomes == {}
    assert [len(one.items) for one in caught.value.run.too_large] == [2, 1, 1]


def test_each_outcome_names_the_pass_that_it_is_of() -> None:
    run = run_isolated(executor_over(fails_on(5)), number_items(range(1, 9)))

    told = {number: {item.item.payload for item in items} for number, _, items in run.by_pass()}

    assert told == {2: {1, 2, 3, 4}, 4: {5}, 5: {6, 7, 8}}
    assert [len(one.items) for number, one, _ in run.by_pass()] == [4, 1, 3]


def test_outputs_that_do_not_match_their_items_are_counted() -> None:
    session = StubSession(lambda values: np.zeros((2, 1), np.float32) if 3 in values else None)

    run = run_isolated(executor_over(session), number_items([1, 2, 3, 4]))

    assert failed(run) == {"item-3"}
    assert run.mismatches == run.failed_passes >= 2


class SilentError(Exception):
    """An error that fails again where it is asked for its words."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class Panic(BaseException):
    """What a panic of a Rust library becomes in Python."""


@pytest.mark.parametrize("raised", [SilentError, Panic, SystemExit, KeyboardInterrupt, GeneratorExit])
@pytest.mark.parametrize("where", ["session", "collate", "split"])
def test_whatever_foreign_code_raises_convicts_one_item(raised: type[BaseException], where: str) -> None:
    """On the device's thread nothing but the code that ran raises; else the whole batch would stand accused."""

    def fail(values: Sequence[float]) -> None:
        if 5 in values:
            raise raised

    class Failing(NumberTask):
        def collate(self, items: Sequence[PreparedItem], shape: PassShape) -> dict[str, Array]:
            if where == "collate":
                fail([item.payload for item in items])
            return super().collate(items, shape)

        def split(
            self, outputs: Mapping[str, Array], items: Sequence[PreparedItem], parameters: Sequence[Hashable]
        ) -> list[Output | ItemFault]:
            if where == "split":
                fail([item.payload for item in items])
            return super().split(outputs, items, parameters)

    session = StubSession(fail if where == "session" else None)
    executor = OneShotExecutor(Failing(), session, LIMITS)

    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(run_isolated, executor, number_items(range(1, 9))).result()

    assert failed(run) == {"item-5"}
    fault = run.outcomes["item-5"]
    assert isinstance(fault, ItemFault)
    assert raised.__name__ in fault.message
    assert len(run.outcomes) == 8


def test_ctrl_c_on_the_main_thread_ends_a_build() -> None:
    def interrupt(_values: list[float]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_isolated(executor_over(StubSession(interrupt)), number_items([1]))


def test_results_that_are_no_numbers_convict_one_item() -> None:
    class Texts(NumberTask):
        def split(
            self, outputs: Mapping[str, Array], items: Sequence[PreparedItem], parameters: Sequence[Hashable]
        ) -> list[Output | ItemFault]:
            rows: list[Any] = super().split(outputs, items, parameters)
            answers: list[Any] = ["five" if item.payload == 5 else row for item, row in zip(items, rows, strict=True)]
            return answers

    run = run_isolated(OneShotExecutor(Texts(), StubSession(), LIMITS), number_items(range(1, 9)))

    assert failed(run) == {"item-5"}

"""The one-shot executor: every admitted item finishes in the next step, or the step fails as a whole."""

from collections.abc import Sequence

import numpy as np
import pytest

from batchfleet.errors import OutOfMemoryError, PassFailedError
from batchfleet.inference.executor import OutputMismatchError, PassItem
from batchfleet.inference.one_shot import OneShotExecutor
from batchfleet.inference.shapes import PassShape
from batchfleet.inference.task import Array, ItemFault, PreparedItem
from batchfleet.models.config import Limits
from tests.support.sessions import LIMITS, SAMPLE, NumberTask, StubSession, executor_over, number_items


def test_a_step_finishes_all_that_was_admitted_and_says_what_it_ran() -> None:
    executor = executor_over(StubSession())
    executor.admit(number_items([1, 2], length=3))
    executor.admit(number_items([3], length=5))

    result = executor.step()

    assert {key: float(np.asarray(value)[0]) for key, value in result.finished.items()} == {
        "item-1": 2.0,
        "item-2": 4.0,
        "item-3": 6.0,
    }
    assert result.stats is not None
    assert (result.stats.count, result.stats.shape, result.stats.real_tokens) == (3, PassShape(3, 5), 11)
    assert (result.stats.padded_length, result.stats.padded_tokens) == (5, 15)


def test_a_step_with_nothing_admitted_runs_no_pass() -> None:
    session = StubSession()

    result = executor_over(session).step()

    assert (dict(result.finished), result.stats, session.runs) == ({}, None, [])


def test_a_retired_item_does_not_run() -> None:
    session = StubSession()
    executor = executor_over(session)
    executor.admit(number_items([1, 2, 3]))

    executor.retire(["item-2", "never admitted"])

    assert set(executor.step().finished) == {"item-1", "item-3"}
    assert session.runs == [[1, 3]]


def test_items_with_different_pass_keys_are_not_admitted_together() -> None:
    session = StubSession()
    executor = executor_over(session)
    executor.admit(number_items([1], parameters="a"))

    with pytest.raises(ValueError, match="pass keys"):
        executor.admit(number_items([2], parameters="b"))

    assert set(executor.step().finished) == {"item-1"}


def test_a_key_used_twice_and_a_batch_over_the_limits_are_refused() -> None:
    executor = executor_over(StubSession(), Limits(max_batch_items=2, max_item_tokens=4))
    executor.admit(number_items([1]))

    with pytest.raises(ValueError, match="admitted already"):
        executor.admit(number_items([1]))
    with pytest.raises(ValueError, match="limits"):
        executor.admit(number_items([2, 3]))
    with pytest.raises(ValueError, match="outside"):
        executor.admit(number_items([2], length=5))

    assert set(executor.step().finished) == {"item-1"}


@pytest.mark.parametrize(
    ("output", "complaint"),
    [
        (np.zeros((2, 1), np.float32), "for 3 row"),
        (np.zeros((4, 1), np.float32), "for 3 row"),
        (np.float32(1), "for 3 row"),
    ],
)
def test_outputs_that_cannot_be_matched_to_items_fail_the_pass(output: Array, complaint: str) -> None:
    executor = executor_over(StubSession(lambda values: np.asarray(output)))
    executor.admit(number_items([1, 2, 3]))

    with pytest.raises(OutputMismatchError, match=complaint):
        executor.step()


def test_a_failed_pass_chains_its_cause_and_leaves_nothing_admitted() -> None:
    def behave(values: list[float]) -> None:
        raise RuntimeError("kernel fault")

    session = StubSession(behave)
    executor = executor_over(session)
    executor.admit(number_items([1]))

    with pytest.raises(PassFailedError) as caught:
        executor.step()

    assert isinstance(caught.value.__cause__, RuntimeError)
    assert executor.step().stats is None


def test_a_row_that_is_not_finite_is_its_own_items_fault() -> None:
    executor = executor_over(StubSession(lambda values: np.array([[1], [np.nan], [np.inf]], np.float32)))
    executor.admit(number_items([1, 2, 3]))

    finished = executor.step().finished

    assert [isinstance(finished[f"item-{value}"], ItemFault) for value in (1, 2, 3)] == [False, True, True]


def test_the_warm_up_of_a_compiling_runtime_runs_each_shape_twice_and_traffic_adds_none() -> None:
    limits = Limits(max_batch_items=4, max_batch_tokens=64, max_item_tokens=32)
    session = StubSession(compiles_per_shape=True)
    executor = executor_over(session, limits)

    report = executor.warm_up()
    warmed = {shape.shape for shape in report.passes}
    executor.admit(number_items([1, 2, 3], length=9))
    stats = executor.step().stats

    assert warmed == set(executor.shapes.warm_shapes())
    assert len(session.runs) == 1 + 2 * len(warmed) + 1
    assert stats is not None
    assert stats.shape in warmed


def test_padding_rows_give_no_result() -> None:
    executor = executor_over(StubSession(compiles_per_shape=True))
    executor.admit(number_items([1, 2, 3]))

    result = executor.step()

    assert len(result.finished) == 3
    assert result.stats is not None
    assert (result.stats.count, result.stats.shape.rows) == (3, 4)


def test_a_probe_passes_while_the_sample_gives_the_same_answer() -> None:
    session = StubSession()
    executor = executor_over(session)
    executor.warm_up()

    executor.probe()

    session.behave = lambda values: np.full((len(values), 1), 7, np.float32)
    with pytest.raises(PassFailedError, match="another answer"):
        executor.probe()
    session.behave = lambda values: np.full((len(values), 1), np.nan, np.float32)
    with pytest.raises(PassFailedError, match="sample fails"):
        executor.probe()


def test_a_probe_leaves_admitted_items_alone() -> None:
    executor = executor_over(StubSession())
    executor.admit([PassItem("mine", PreparedItem(1, 5.0), None)])

    executor.probe()

    assert set(executor.step().finished) == {"mine"}


def test_a_model_that_gives_nan_for_the_sample_does_not_warm_up() -> None:
    executor = executor_over(StubSession(lambda values: np.full((len(values), 1), np.nan, np.float32)))

    with pytest.raises(PassFailedError, match="sample fails"):
        executor.warm_up()


def test_closing_closes_the_session_and_forgets_the_items() -> None:
    session = StubSession()
    executor = executor_over(session, LIMITS)
    executor.admit(number_items([SAMPLE]))

    executor.close()

    assert session.closed == 1
    assert executor.step().stats is None


def test_a_pass_that_does_not_fit_says_so_and_has_caches_given_back() -> None:
    def behave(values: list[float]) -> None:
        if len(values) > 2:
            raise RuntimeError("no memory")

    session = StubSession(behave)
    executor = executor_over(session)
    executor.admit(number_items([1, 2, 3]))

    with pytest.raises(OutOfMemoryError, match="3 x 1 does not fit"):
        executor.step()

    assert session.shrinks == 1


def test_memory_of_the_process_itself_counts_as_well() -> None:
    class Hungry(NumberTask):
        def collate(self, items: Sequence[PreparedItem], shape: PassShape) -> dict[str, Array]:
            return {"values": np.zeros((shape.rows, 1 << 50), np.float32)} if len(items) > 1 else {}

    executor = OneShotExecutor(Hungry(), StubSession(), LIMITS)
    executor.admit(number_items([1, 2]))

    with pytest.raises(OutOfMemoryError):
        executor.step()


def test_the_warm_up_reports_shapes_that_do_not_fit_unless_none_does() -> None:
    def behave(values: list[float]) -> None:
        if len(values) > most:
            raise RuntimeError("no memory")

    limits = Limits(max_batch_items=8, max_batch_tokens=64, max_item_tokens=8)
    most = 2
    report = OneShotExecutor(NumberTask(), StubSession(behave, compiles_per_shape=True), limits).warm_up()

    assert {shape.shape.rows for shape in report.passes} == {1, 2}
    assert {shape.rows for shape in report.too_large} == {4}, "what is larger still was not tried"
    most = 0
    with pytest.raises(OutOfMemoryError):
        OneShotExecutor(NumberTask(), StubSession(behave), limits).warm_up()

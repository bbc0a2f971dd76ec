"""The table of states: every pair, legal or not."""

import itertools

import pytest

from batchfleet.jobs.states import (
    SETTLED_FROM_RUNNING,
    TERMINAL,
    IllegalTransitionError,
    JobState,
    can_change,
    check_change,
)

LEGAL = {
    *(("queued", new) for new in ("running", "failed", "cancelled", "expired")),
    *(("running", new) for new in ("succeeded", "failed", "cancelled", "expired", "queued")),
}


@pytest.mark.parametrize(("current", "new"), list(itertools.product(JobState, JobState)))
def test_every_arrow(current: JobState, new: JobState) -> None:
    legal = (current.value, new.value) in LEGAL

    assert can_change(current, new) == legal
    if legal:
        check_change(current, new)
    else:
        with pytest.raises(IllegalTransitionError):
            check_change(current, new)


def test_terminal_states_are_those_without_a_way_out() -> None:
    assert {state for state in JobState if not any(can_change(state, new) for new in JobState)} == TERMINAL
    assert all(state.terminal for state in TERMINAL)
    assert JobState.RUNNING not in SETTLED_FROM_RUNNING

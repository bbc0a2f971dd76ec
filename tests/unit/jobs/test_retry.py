"""Attempts and crashes: what another go costs, and when there is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfleet.jobs.job import JobErrorCode
from batchfleet.jobs.retry import (
    BACKOFF_CAP_S,
    RETRYABLE,
    CrashDecision,
    after_crash,
    after_error,
    is_dead_letter,
)


@given(attempts=st.integers(1, 50), more=st.integers(1, 50), jitter=st.floats(0, 1, exclude_max=True))
def test_the_delay_grows_and_is_bounded(attempts: int, more: int, jitter: float) -> None:
    decision = after_error(JobErrorCode.PASS_FAILED, attempts=attempts, max_attempts=attempts + more, jitter=jitter)

    assert decision.retry
    full = min(BACKOFF_CAP_S, 2.0 ** (attempts - 1))
    assert full / 2 <= decision.delay_s <= full


@pytest.mark.parametrize("code", [code for code in JobErrorCode if code not in RETRYABLE] + ["a task's own"])
def test_what_stays_wrong_is_not_retried(code: str) -> None:
    assert not after_error(code, attempts=1, max_attempts=9, jitter=0.0).retry


def test_the_last_attempt_is_the_last() -> None:
    assert not after_error(JobErrorCode.PASS_FAILED, attempts=3, max_attempts=3, jitter=0.0).retry


@pytest.mark.parametrize(
    ("crashes", "suspect", "in_pass", "expected"),
    [
        (0, False, False, CrashDecision(0, suspect=False, fail=False)),
        (1, True, False, CrashDecision(1, suspect=True, fail=False)),
        (0, False, True, CrashDecision(1, suspect=True, fail=False)),
        (1, True, True, CrashDecision(2, suspect=True, fail=True)),
        (0, False, None, CrashDecision(1, suspect=False, fail=False)),
        (1, False, None, CrashDecision(2, suspect=True, fail=False)),
        (2, True, None, CrashDecision(3, suspect=True, fail=True)),
    ],
)
def test_what_a_crash_means(crashes: int, suspect: bool, in_pass: bool | None, expected: CrashDecision) -> None:
    assert after_crash(crashes=crashes, suspect=suspect, in_pass=in_pass) == expected


@pytest.mark.parametrize(
    ("attempts", "code", "dead"),
    [
        (3, "pass_failed", True),
        (1, "pass_failed", False),
        (0, "worker_crashed", True),
        (0, "run_timeout", True),
        (0, None, False),
    ],
)
def test_dead_letters(attempts: int, code: str | None, dead: bool) -> None:
    assert is_dead_letter(attempts, 3, code) is dead

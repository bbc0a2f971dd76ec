"""What becomes of a running job whose owner will not settle it."""

from dataclasses import replace

import pytest

from batchfleet.jobs.job import JobErrorCode
from batchfleet.jobs.states import JobState
from batchfleet.jobs.verdict import RunningJob, after_death, after_timeout

NOW = 1000.0
JOB = RunningJob("0" * 32, epoch=3, attempts=0, max_attempts=3, crashes=0, suspect=False, expires_at=None)


def test_death_costs_a_crash_and_no_delay() -> None:
    verdict = after_death(JOB, NOW)

    assert (verdict.state, verdict.crashes, verdict.attempts, verdict.delay_s) == (JobState.QUEUED, 1, 0, 0.0)
    assert (verdict.epoch, verdict.error) == (3, None)


def test_a_conviction_names_its_reason() -> None:
    verdict = after_death(replace(JOB, crashes=1, suspect=True), NOW, in_pass=True)

    assert verdict.error is not None
    assert (verdict.state, verdict.error.code) == (JobState.FAILED, JobErrorCode.WORKER_CRASHED)
    assert "2 workers died" in verdict.error.message


@pytest.mark.parametrize(("expires_at", "state"), [(NOW, JobState.EXPIRED), (NOW + 1, JobState.QUEUED)])
def test_a_job_whose_time_is_over_does_not_come_back(expires_at: float, state: JobState) -> None:
    job = replace(JOB, expires_at=expires_at)

    assert after_death(job, NOW).state is state
    assert after_timeout(job, NOW, 0.5).state is state


def test_a_conviction_outweighs_the_time_to_live() -> None:
    job = replace(JOB, crashes=1, suspect=True, expires_at=NOW - 1)

    assert after_death(job, NOW, in_pass=True).state is JobState.FAILED


def test_a_timeout_costs_an_attempt_and_backs_off() -> None:
    verdict = after_timeout(JOB, NOW, 0.5)

    assert verdict.error is not None
    assert (verdict.state, verdict.attempts, verdict.crashes, verdict.delay_s) == (JobState.QUEUED, 1, 0, 0.75)
    assert verdict.error.code == JobErrorCode.RUN_TIMEOUT


def test_the_last_timeout_fails_without_delay() -> None:
    verdict = after_timeout(replace(JOB, attempts=2), NOW, 0.5)

    assert (verdict.state, verdict.attempts, verdict.delay_s) == (JobState.FAILED, 3, 0.0)

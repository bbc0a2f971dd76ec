"""How long an object store that is away is waited for."""

from batchfleet.jobs.job import new_job_id
from workers.absence import Absences, AbsenceTerms

BUCKET = "bucket"
TERMS = AbsenceTerms(patience_s=3600.0, delay_s=(1.0, 60.0), pause_s=(0.5, 10.0), probe_s=60.0)


def test_a_job_waits_longer_each_time_and_fails_after_an_hour() -> None:
    absences, job, now = Absences(TERMS), new_job_id(), 0.0
    delays = []
    while (delay := absences.failed(BUCKET, job, now, jitter=1.0)) is not None:
        delays.append(delay)
        now += delay

    assert delays[:4] == [1.0, 1.0, 1.0, 1.5]
    assert delays == sorted(delays)
    assert max(delays) == 60.0
    assert 3600.0 <= now <= 3660.0
    assert len(delays) < 80


def test_jitter_spreads_the_jobs_over_half_of_the_delay() -> None:
    absences, job = Absences(TERMS), new_job_id()

    assert absences.failed(BUCKET, job, 0.0, jitter=0.0) == 0.5


def test_a_bucket_that_is_away_is_asked_by_one_after_a_pause_and_the_others_go_back_untried() -> None:
    absences = Absences(TERMS)
    assert absences.delay(BUCKET, new_job_id(), 0.0, 0.0) is None
    absences.failed(BUCKET, new_job_id(), 0.0, 0.0)

    assert absences.delay(BUCKET, new_job_id(), 0.4, 0.0) is not None
    assert absences.delay("another", new_job_id(), 0.4, 0.0) is None
    assert absences.delay(BUCKET, new_job_id(), 0.5, 0.0) is None, "the probe"
    assert absences.delay(BUCKET, new_job_id(), 50.0, 0.0) is not None, "it hangs"
    assert absences.delay(BUCKET, new_job_id(), 61.0, 0.0) is None, "it is lost: another one"


def test_what_answers_is_asked_by_all_again() -> None:
    absences, job = Absences(TERMS), new_job_id()
    absences.failed(BUCKET, job, 0.0, 0.0)
    absences.worked(BUCKET, job)

    assert absences.delay(BUCKET, job, 0.1, 0.0) is None
    assert absences.failed(BUCKET, job, 4_000.0, 1.0) == 1.0, "its patience begins anew"


def test_going_back_untried_counts_as_waiting() -> None:
    absences, job = Absences(TERMS), new_job_id()
    absences.failed(BUCKET, new_job_id(), 0.0, 0.0)
    absences.delay(BUCKET, job, 0.1, 0.0)

    assert absences.failed(BUCKET, job, 3_601.0, 0.0) is None

"""The store, as workers see it when a run is over: settles and hand-backs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from batchfleet.jobs.job import HandBack, JobError, Settlement, new_job_id
from batchfleet.jobs.states import JobState
from tests.support.stores import KINDS, Bench, open_bench, success


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    with open_bench(request.param, tmp_path) as bench:
        yield bench


class TestSettle:
    def test_a_thousand_results_from_one_block(self, bench: Bench) -> None:
        """Each gets its own slice: empty ones, blobs and none at all in between."""
        boot = bench.boot()
        claimed = bench.running(boot, 1000)
        block = bytes(range(256)) * 40
        rows = [
            success(job, offset=at * 7, length=at % 5, format=f'{{"at":{at}}}')
            if at % 10
            else success(job, blob_key=f"{job.id}/{job.epoch}", format='{"blob":true}')
            for at, job in enumerate(claimed)
        ]

        outcome = bench.store.settle(boot, rows, block)

        assert outcome.stale == ()
        assert outcome.applied == tuple((job.id, JobState.SUCCEEDED) for job in claimed)
        results = {
            record.id: record.result for record in bench.store.look_up([job.id for job in claimed], with_results=True)
        }
        for row in rows:
            result = results[row.id]
            assert result is not None
            assert (result.format, result.blob_key) == (row.format, row.blob_key)
            assert result.data == (None if row.blob_key else block[row.offset : row.offset + row.length])

    def test_a_result_of_no_bytes_is_a_result(self, bench: Bench) -> None:
        """All items failed, and the job asked for a partial result: there is a format, and nothing else."""
        boot = bench.boot()
        alone, beside, full = bench.running(boot, 3)
        bench.store.settle(boot, [success(alone, format='{"n":2}')], b"")
        bench.store.settle(boot, [success(full, length=4), success(beside, offset=4, format='{"n":1}')], b"full")

        for claimed in (alone, beside):
            result = bench.record(claimed.id).result
            assert result is not None
            assert (result.data, result.blob_key) == (b"", None)

    def test_an_old_epoch_changes_nothing(self, bench: Bench) -> None:
        boot = bench.boot()
        (old,) = bench.running(boot)
        bench.store.hand_back(boot, [HandBack(old.id, old.epoch)])
        (new,) = bench.store.claim(boot, [old.id])

        outcome = bench.store.settle(boot, [success(old, length=3), success(new, offset=3, length=3)], b"oldnew")

        assert (outcome.applied, outcome.stale) == (((new.id, JobState.SUCCEEDED),), (old.id,))
        result = bench.record(new.id).result
        assert result is not None
        assert result.data == b"new"

    def test_another_owner_changes_nothing(self, bench: Bench) -> None:
        (claimed,) = bench.running(bench.boot())
        thief = bench.boot()

        assert bench.store.settle(thief, [success(claimed)], b"").stale == (claimed.id,)
        assert bench.store.hand_back(thief, [HandBack(claimed.id, claimed.epoch)]) == []
        assert bench.states([claimed.id]) == [JobState.RUNNING]

    def test_a_job_settled_twice_keeps_the_first(self, bench: Bench) -> None:
        boot = bench.boot()
        (claimed,) = bench.running(boot)
        first, second = success(claimed, length=1), success(claimed, offset=1, length=1)

        both = bench.store.settle(boot, [first, second], b"12")
        again = bench.store.settle(boot, [second], b"12")

        assert (both.applied, both.stale) == (((claimed.id, JobState.SUCCEEDED),), (claimed.id,))
        assert again.stale == (claimed.id,)
        result = bench.record(claimed.id).result
        assert result is not None
        assert result.data == b"1"

    def test_unknown_jobs_and_mad_epochs_are_stale(self, bench: Bench) -> None:
        boot = bench.boot()
        (claimed,) = bench.running(boot)
        rows = [
            Settlement(id=new_job_id(), epoch=1, state=JobState.SUCCEEDED),
            Settlement(id=claimed.id, epoch=2**63 - 1, state=JobState.SUCCEEDED),
            Settlement(id=claimed.id, epoch=2**80, state=JobState.SUCCEEDED),
            Settlement(id=claimed.id, epoch=-1, state=JobState.SUCCEEDED),
        ]

        outcome = bench.store.settle(boot, rows, b"")

        assert outcome.stale == tuple(row.id for row in rows)
        assert bench.store.hand_back(boot, [HandBack(claimed.id, 2**80)]) == []

    @pytest.mark.parametrize(("offset", "length"), [(0, 4), (3, 1), (-1, 1), (0, -1), (2**70, 1)])
    def test_a_result_outside_the_block_is_refused(self, bench: Bench, offset: int, length: int) -> None:
        """A short slice would be stored as if it were the result."""
        boot = bench.boot()
        (claimed,) = bench.running(boot)

        with pytest.raises(ValueError, match="outside the block"):
            bench.store.settle(boot, [success(claimed, offset=offset, length=length)], b"123")

        assert bench.states([claimed.id]) == [JobState.RUNNING]

    def test_a_failure_keeps_its_error_and_counts(self, bench: Bench) -> None:
        boot = bench.boot()
        (claimed,) = bench.running(boot)
        error = JobError("invalid_input", "inputs[2] is no text: \"'\\ 🚀", item=2)
        row = success(claimed, state=JobState.FAILED, format=None, error=error, provenance='{"runtime":"x"}')

        bench.store.settle(boot, [row], b"")

        record = bench.record(claimed.id)
        assert (record.state, record.error, record.attempts) == (JobState.FAILED, error, 1)
        assert (record.provenance, record.result) == ('{"runtime":"x"}', None)

    @pytest.mark.parametrize(
        ("message", "stored"),
        [("a\x00b", "a\ufffdb"), ("half \ud83d pair", "half \ufffd pair"), ("é\x00", "é\ufffd")],
    )
    def test_any_message_can_be_stored(self, bench: Bench, message: str, stored: str) -> None:
        """Messages come from models; one that a database cannot hold must not sink the batch."""
        boot = bench.boot()
        claimed, retried = bench.running(boot, 2)
        error = JobError("pass_failed", message)

        bench.store.settle(
            boot,
            [
                success(claimed, state=JobState.FAILED, format=None, error=error),
                success(retried, state=JobState.QUEUED, format=None, error=error),
            ],
            b"",
        )

        assert bench.record(claimed.id).error == JobError("pass_failed", stored)
        assert bench.record(retried.id).error == JobError("pass_failed", stored)

    def test_a_retry_waits_and_counts_an_attempt(self, bench: Bench) -> None:
        boot = bench.boot()
        (claimed,) = bench.running(boot)
        error = JobError("pass_failed", "first try")
        row = success(claimed, state=JobState.QUEUED, format=None, retry_in_s=8.0, error=error)

        outcome = bench.store.settle(boot, [row], b"")

        assert outcome.applied == ((claimed.id, JobState.QUEUED),)
        record = bench.record(claimed.id)
        assert (record.attempts, record.error, record.started_at, record.finished_at) == (1, error, None, None)
        assert bench.store.claim(boot, [claimed.id]) == []
        assert bench.store.announceable(10) == []

        bench.advance(8.1)
        assert [job.id for job in bench.store.announceable(10)] == [claimed.id]
        (again,) = bench.store.claim(boot, [claimed.id])
        assert (again.attempts, again.epoch) == (1, claimed.epoch + 1)

    def test_success_clears_the_error_of_an_earlier_try(self, bench: Bench) -> None:
        boot = bench.boot()
        (claimed,) = bench.running(boot)
        bench.store.settle(
            boot, [success(claimed, state=JobState.QUEUED, format=None, error=JobError("pass_failed", "x"))], b""
        )
        (again,) = bench.store.claim(boot, [claimed.id])

        bench.store.settle(boot, [success(again)], b"")

        assert bench.record(claimed.id).error is None

    def test_it_counts_even_after_the_lease_is_gone(self, bench: Bench) -> None:
        """Finished results still settle: the epoch guards them, not the lease."""
        boot = bench.boot()
        (claimed,) = bench.running(boot)
        bench.store.retire(boot)

        assert bench.store.settle(boot, [success(claimed)], b"").stale == ()

    def test_retries_and_endings_in_one_call(self, bench: Bench) -> None:
        boot = bench.boot()
        claimed = bench.running(boot, 5)
        states = [
            JobState.SUCCEEDED,
            JobState.QUEUED,
            JobState.FAILED,
            JobState.EXPIRED,
            JobState.CANCELLED,
        ]
        rows = [success(job, state=state) for job, state in zip(claimed, states, strict=True)]

        outcome = bench.store.settle(boot, rows, b"")

        assert [state for _, state in outcome.applied] == states
        assert bench.states([job.id for job in claimed]) == states
        assert [bench.record(job.id).attempts for job in claimed] == [0, 1, 1, 0, 0]


class TestHandBack:
    def test_it_is_free_and_announced_at_once(self, bench: Bench) -> None:
        boot = bench.boot()
        claimed = bench.running(boot, 2)

        back = bench.store.hand_back(boot, [HandBack(job.id, job.epoch) for job in claimed])

        assert sorted(back) == sorted(job.id for job in claimed)
        record = bench.record(claimed[0].id)
        assert (record.state, record.attempts, record.crashes) == (JobState.QUEUED, 0, 0)
        assert len(bench.store.announceable(10)) == 2

    def test_an_old_epoch_changes_nothing(self, bench: Bench) -> None:
        boot = bench.boot()
        (claimed,) = bench.running(boot)

        assert bench.store.hand_back(boot, [HandBack(claimed.id, claimed.epoch - 1)]) == []
        assert bench.states([claimed.id]) == [JobState.RUNNING]

    def test_with_a_delay_it_is_claimed_and_announced_only_later_still_free(self, bench: Bench) -> None:
        boot = bench.boot()
        at_once, later = bench.running(boot, 2)

        rows = [HandBack(at_once.id, at_once.epoch), HandBack(later.id, later.epoch, delay_s=30.0)]
        assert set(bench.store.hand_back(boot, rows)) == {at_once.id, later.id}

        assert [one.id for one in bench.store.announceable(10)] == [at_once.id]
        assert [one.id for one in bench.store.claim(boot, [at_once.id, later.id])] == [at_once.id]
        bench.advance(29.0)
        assert bench.store.claim_ready(boot, [], 10) == []
        bench.advance(1.0)
        assert later.id in [one.id for one in bench.store.announceable(10)]
        (again,) = bench.store.claim_ready(boot, [], 10)
        assert (again.id, again.attempts, again.crashes) == (later.id, 0, 0)

    def test_a_delay_does_not_outlast_the_time_to_live(self, bench: Bench) -> None:
        boot = bench.boot()
        (claimed,) = bench.running(boot, ttl_s=10.0)
        bench.store.hand_back(boot, [HandBack(claimed.id, claimed.epoch, delay_s=60.0)])

        bench.advance(10.0)
        assert bench.store.expire(10) == [claimed.id]
        assert bench.record(claimed.id).state is JobState.EXPIRED

    def test_past_its_time_to_live_it_expires(self, bench: Bench) -> None:
        boot = bench.boot()
        (claimed,) = bench.running(boot, ttl_s=5.0)
        bench.advance(6.0)

        assert bench.store.hand_back(boot, [HandBack(claimed.id, claimed.epoch)]) == [claimed.id]
        record = bench.record(claimed.id)
        assert record.state is JobState.EXPIRED
        assert record.finished_at is not None

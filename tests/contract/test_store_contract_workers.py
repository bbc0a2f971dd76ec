"""The store, as workers see it: leases, claims, settles and hand-backs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from batchfleet.jobs.job import (
    HandBack,
    JobError,
    Lane,
    Settlement,
    WorkerLease,
    WorkerState,
    new_job_id,
)
from batchfleet.jobs.states import JobState
from tests.support.stores import KINDS, TTL_S, Bench, open_bench, success


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    with open_bench(request.param, tmp_path) as bench:
        yield bench


class TestLeases:
    def test_a_lease_says_who_and_how_long_ago(self, bench: Bench) -> None:
        boot = new_job_id()
        bench.store.register(
            WorkerLease(boot=boot, name="host-0", pid=2**22, state=WorkerState.STARTING, models=("a", "b"))
        )
        bench.advance(3.0)

        (lease,) = bench.store.workers()

        assert (lease.boot, lease.name, lease.pid, lease.models) == (boot, "host-0", 2**22, ("a", "b"))
        assert lease.state is WorkerState.STARTING
        assert lease.heartbeat_age_s == pytest.approx(3.0, abs=0.9)

    def test_a_heartbeat_renews_it(self, bench: Bench) -> None:
        boot = bench.boot()
        bench.advance(10.0)

        assert bench.store.heartbeat(boot, WorkerState.DRAINING)

        (lease,) = bench.store.workers()
        assert lease.state is WorkerState.DRAINING
        assert lease.heartbeat_age_s == pytest.approx(0.0, abs=0.9)

    def test_registering_again_renews_it(self, bench: Bench) -> None:
        """The answer to the first call may have been lost."""
        lease = WorkerLease(boot=new_job_id(), name="w", pid=1, state=WorkerState.STARTING)

        bench.store.register(lease)
        bench.store.register(lease)

        assert len(bench.store.workers()) == 1

    def test_a_retired_boot_is_gone(self, bench: Bench) -> None:
        boot = bench.boot()

        bench.store.retire(boot)
        bench.store.retire(boot)

        assert bench.store.workers() == []
        assert not bench.store.heartbeat(boot, WorkerState.READY)

    def test_without_a_lease_nothing_is_claimed(self, bench: Bench) -> None:
        """A boot that was declared dead must not take work that nobody would rescue."""
        ids = bench.submit(2)
        boot = bench.boot()
        bench.store.bury(boot, [])

        assert bench.store.claim(boot, ids) == []
        assert bench.store.claim_ready(boot, [], 10) == []
        assert bench.store.claim("never registered", ids) == []
        assert bench.states(ids) == [JobState.QUEUED] * 2

    def test_equal_names_are_different_boots(self, bench: Bench) -> None:
        """Case Q19: a restarted worker of the same name must not keep its predecessor's jobs alive."""
        before = bench.boot("host-0")
        (claimed,) = bench.running(before)
        bench.advance(TTL_S + 1)
        after = bench.boot("host-0")
        bench.store.heartbeat(after, WorkerState.READY)

        outcome = bench.store.rescue(TTL_S, 10)

        assert outcome.requeued == (claimed.id,)
        assert outcome.dead_boots == (before,)
        assert [lease.boot for lease in bench.store.workers()] == [after]


class TestClaim:
    def test_in_the_order_of_the_hint_and_each_once(self, bench: Bench) -> None:
        ids = bench.submit(5)
        wanted = [ids[3], ids[0], ids[3], new_job_id(), ids[4]]

        claimed = bench.store.claim(bench.boot(), wanted)

        assert [job.id for job in claimed] == [ids[3], ids[0], ids[4]]

    def test_a_job_goes_to_one_boot(self, bench: Bench) -> None:
        ids = bench.submit(3)

        assert len(bench.store.claim(bench.boot(), ids)) == 3
        assert bench.store.claim(bench.boot(), ids) == []

    def test_not_before_its_time(self, bench: Bench) -> None:
        (job_id,) = bench.submit(run_at=bench.record(bench.submit()[0]).submitted_at + 100.0)
        boot = bench.boot()

        assert bench.store.claim(boot, [job_id]) == []
        bench.advance(101.0)
        bench.store.heartbeat(boot, WorkerState.READY)
        (claimed,) = bench.store.claim(boot, [job_id])

        assert claimed.age_s == pytest.approx(1.0, abs=0.9)

    def test_not_after_its_time_to_live(self, bench: Bench) -> None:
        (job_id,) = bench.submit(ttl_s=5.0)
        bench.advance(5.0)
        boot = bench.boot()

        assert bench.store.claim(boot, [job_id]) == []
        assert bench.store.claim_ready(boot, [], 10) == []

    def test_each_claim_raises_the_epoch(self, bench: Bench) -> None:
        boot = bench.boot()
        (first,) = bench.running(boot)
        bench.store.hand_back(boot, [HandBack(first.id, first.epoch)])

        (second,) = bench.store.claim(boot, [first.id])

        assert second.epoch == first.epoch + 1


class TestClaimReady:
    def test_only_models_that_the_worker_serves(self, bench: Bench) -> None:
        a = bench.submit(2, model="a")
        bench.submit(2, model="b")
        c = bench.submit(2, model="c")

        claimed = bench.store.claim_ready(bench.boot(), ["a", "c", "none"], 10)

        assert sorted(job.id for job in claimed) == sorted(a + c)

    def test_all_models_if_none_is_named(self, bench: Bench) -> None:
        ids = bench.submit(2, model="a") + bench.submit(2, model="b")

        assert sorted(job.id for job in bench.store.claim_ready(bench.boot(), [], 10)) == sorted(ids)

    def test_as_many_as_fit_but_at_least_one(self, bench: Bench) -> None:
        bench.submit(5, item_count=4)
        boot = bench.boot()

        assert len(bench.store.claim_ready(boot, [], 11)) == 2
        assert len(bench.store.claim_ready(boot, [], 1)) == 1

    def test_oldest_first_within_a_flow(self, bench: Bench) -> None:
        first = bench.submit(3)
        bench.advance(1.0)
        bench.submit(3)

        claimed = bench.store.claim_ready(bench.boot(), [], 3)

        assert sorted(job.id for job in claimed) == sorted(first)

    def test_a_small_tenant_is_served_beside_a_big_one(self, bench: Bench) -> None:
        """Case Q18: A's thousand jobs were there first."""
        bench.submit(1000, tenant="a")
        (small,) = bench.submit(tenant="b")

        claimed = bench.store.claim_ready(bench.boot(), [], 4)

        assert small in [job.id for job in claimed]

    def test_lanes_share_by_weight_and_none_starves(self, bench: Bench) -> None:
        bench.submit(200, lane=Lane.BULK)
        bench.submit(200, lane=Lane.ONLINE)

        claimed = bench.store.claim_ready(bench.boot(), [], 64)

        lanes = [job.lane for job in claimed]
        assert 0 < lanes.count(Lane.BULK) < lanes.count(Lane.ONLINE) // 8

    def test_jobs_of_the_future_are_in_nobodys_way(self, bench: Bench) -> None:
        bench.submit(50, run_at=4_000_000_000.0)
        (now,) = bench.submit()

        assert [job.id for job in bench.store.claim_ready(bench.boot(), [], 10)] == [now]


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

    def test_past_its_time_to_live_it_expires(self, bench: Bench) -> None:
        boot = bench.boot()
        (claimed,) = bench.running(boot, ttl_s=5.0)
        bench.advance(6.0)

        assert bench.store.hand_back(boot, [HandBack(claimed.id, claimed.epoch)]) == [claimed.id]
        record = bench.record(claimed.id)
        assert record.state is JobState.EXPIRED
        assert record.finished_at is not None

"""The store, as the scheduler sees it: announcing, expiry, rescue and burial."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from batchfleet.jobs.job import DueWork, JobErrorCode, JobFilter, Lane, QueueDepth, WorkerState
from batchfleet.jobs.states import JobState
from tests.support.stores import KINDS, TTL_S, Bench, open_bench, success


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    with open_bench(request.param, tmp_path) as bench:
        yield bench


class TestAnnounce:
    def test_the_announcer_gets_two_seconds(self, bench: Bench) -> None:
        (ours,) = bench.submit(announced_by_submitter=False)
        (theirs,) = bench.submit(announced_by_submitter=True)

        assert [job.id for job in bench.store.announceable(10)] == [ours]
        bench.advance(2.1)
        assert theirs in [job.id for job in bench.store.announceable(10)]

    def test_it_backs_off(self, bench: Bench) -> None:
        """A hint is repeated after 2, 4, 8, 16, 32 and then every 60 seconds, while nobody claims."""
        bench.submit(announced_by_submitter=False)

        for wait in (2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0):
            assert len(bench.store.announceable(10)) == 1
            bench.advance(wait - 1.0)
            assert not bench.store.due(TTL_S).announce
            bench.advance(1.0)
            assert bench.store.due(TTL_S).announce

    def test_not_before_its_time_and_not_after(self, bench: Bench) -> None:
        now = bench.record(bench.submit()[0]).submitted_at
        bench.store.cancel([record.id for record in bench.store.list_jobs(JobFilter())])
        (later,) = bench.submit(run_at=now + 100.0, announced_by_submitter=False)
        bench.submit(ttl_s=50.0)

        bench.advance(99.0)
        assert bench.store.announceable(10) == []
        bench.advance(1.5)
        assert [job.id for job in bench.store.announceable(10)] == [later]

    def test_claimed_jobs_are_not_announced(self, bench: Bench) -> None:
        bench.running(bench.boot(), 3, announced_by_submitter=False)

        assert bench.store.announceable(10) == []

    def test_limit_and_fairness(self, bench: Bench) -> None:
        """A tenant's flood fills neither the broker nor the relay's turn."""
        bench.submit(200, tenant="flood", announced_by_submitter=False)
        bench.submit(2, tenant="small", announced_by_submitter=False)

        announced = bench.store.announceable(8)

        assert len(announced) == 8
        assert [job.tenant for job in announced].count("small") == 2

    def test_flows_with_hints_enough_are_left_as_they_are(self, bench: Bench) -> None:
        """The full flow's jobs are the oldest and many; they must not hide the others."""
        full = bench.submit(100, model="full", announced_by_submitter=False)
        bench.advance(1.0)
        other = bench.submit(3, model="full", lane=Lane.BULK, announced_by_submitter=False)

        announced = bench.store.announceable(5, skip=[("full", Lane.STANDARD), ("none", Lane.BULK)])

        assert sorted(job.id for job in announced) == sorted(other)
        assert bench.store.announceable(200, skip=[("full", Lane.STANDARD)]) == []
        assert sorted(job.id for job in bench.store.announceable(200)) == sorted(full)

    def test_everything_is_announced_in_the_end(self, bench: Bench) -> None:
        ids = bench.submit(30, announced_by_submitter=False) + bench.submit(
            5, lane=Lane.BULK, announced_by_submitter=False
        )

        announced = [job.id for _ in range(5) for job in bench.store.announceable(7)]

        assert sorted(announced) == sorted(ids)


class TestDue:
    def test_nothing(self, bench: Bench) -> None:
        bench.boot()
        bench.submit()

        assert bench.store.due(TTL_S) == DueWork()

    def test_each_by_itself(self, bench: Bench) -> None:
        bench.submit(announced_by_submitter=False)
        assert bench.store.due(TTL_S) == DueWork(announce=True)
        bench.store.announceable(10)
        assert bench.store.due(TTL_S) == DueWork()

        bench.submit(ttl_s=1.0)
        bench.advance(1.1)
        assert bench.store.due(TTL_S) == DueWork(expire=True)
        bench.store.expire(10)
        assert bench.store.due(TTL_S) == DueWork()

        bench.boot()
        bench.advance(TTL_S + 1)
        assert bench.store.due(TTL_S).rescue
        bench.store.rescue(TTL_S, 10)
        assert not bench.store.due(TTL_S).rescue

    def test_a_wedged_run_and_an_orphan_ask_for_rescue(self, bench: Bench) -> None:
        wedged = bench.boot()
        bench.running(wedged, run_timeout_s=5.0)
        bench.advance(6.0)
        bench.store.heartbeat(wedged, WorkerState.READY)
        assert bench.store.due(TTL_S).rescue
        bench.store.rescue(TTL_S, 10)

        bench.running(wedged)
        assert not bench.store.due(TTL_S).rescue
        bench.store.retire(wedged)
        assert bench.store.due(TTL_S).rescue


class TestExpire:
    def test_only_queued_jobs_whose_time_is_over(self, bench: Bench) -> None:
        (over,) = bench.submit(ttl_s=5.0)
        fine = bench.submit(ttl_s=50.0) + bench.submit()
        (running,) = bench.running(bench.boot(), ttl_s=5.0)
        bench.advance(6.0)

        assert bench.store.expire(10) == [over]
        assert bench.states([over, *fine, running.id]) == [
            JobState.EXPIRED,
            JobState.QUEUED,
            JobState.QUEUED,
            JobState.RUNNING,
        ]
        assert bench.record(over).finished_at is not None

    def test_by_pages(self, bench: Bench) -> None:
        ids = bench.submit(5, ttl_s=5.0)
        bench.advance(6.0)

        pages = [bench.store.expire(2) for _ in range(4)]

        assert [len(page) for page in pages] == [2, 2, 1, 0]
        assert sorted(job_id for page in pages for job_id in page) == sorted(ids)


class TestRescue:
    def test_a_live_boot_keeps_its_jobs(self, bench: Bench) -> None:
        """Case Q13: a run longer than the lease is nobody's business while the heartbeat comes."""
        boot = bench.boot()
        (claimed,) = bench.running(boot)
        for _ in range(9):
            bench.advance(5.0)
            assert bench.store.heartbeat(boot, WorkerState.READY)
            assert bench.store.rescue(TTL_S, 10).requeued == ()

        assert bench.store.settle(boot, [success(claimed)], b"").stale == ()

    def test_a_dead_boots_jobs_are_queued_at_once(self, bench: Bench) -> None:
        boot = bench.boot()
        claimed = bench.running(boot, 3)
        bench.advance(TTL_S + 1)

        outcome = bench.store.rescue(TTL_S, 10)

        assert sorted(outcome.requeued) == sorted(job.id for job in claimed)
        assert (outcome.ended, outcome.dead_boots) == ((), (boot,))
        record = bench.record(claimed[0].id)
        assert (record.state, record.crashes, record.attempts) == (JobState.QUEUED, 1, 0)
        assert len(bench.store.announceable(10)) == 3
        assert not bench.store.heartbeat(boot, WorkerState.READY)

    def test_what_the_dead_still_say_is_stale(self, bench: Bench) -> None:
        boot = bench.boot()
        (claimed,) = bench.running(boot)
        bench.advance(TTL_S + 1)
        bench.store.rescue(TTL_S, 10)
        bench.store.claim(bench.boot(), [claimed.id])

        assert bench.store.settle(boot, [success(claimed)], b"").stale == (claimed.id,)

    def test_by_pages_and_the_lease_goes_last(self, bench: Bench) -> None:
        boot = bench.boot()
        claimed = bench.running(boot, 5)
        bench.advance(TTL_S + 1)

        pages = [bench.store.rescue(TTL_S, 2) for _ in range(4)]

        assert [len(page.requeued) for page in pages] == [2, 2, 1, 0]
        assert [page.dead_boots for page in pages] == [(), (), (boot,), ()]
        assert sorted(job_id for page in pages for job_id in page.requeued) == sorted(job.id for job in claimed)

    def test_several_dead_boots_and_live_ones(self, bench: Bench) -> None:
        dead = [bench.boot(), bench.boot()]
        lost = [bench.running(boot, 2) for boot in dead]
        bench.advance(TTL_S + 1)
        live = bench.boot()
        bench.running(live, 2)

        outcome = bench.store.rescue(TTL_S, 100)

        assert sorted(outcome.requeued) == sorted(job.id for jobs in lost for job in jobs)
        assert sorted(outcome.dead_boots) == sorted(dead)
        assert [lease.boot for lease in bench.store.workers()] == [live]

    def test_jobs_of_a_boot_without_a_lease(self, bench: Bench) -> None:
        """A lease removed by hand or by mistake must not hide its jobs for ever."""
        boot = bench.boot()
        (claimed,) = bench.running(boot)
        bench.store.retire(boot)

        outcome = bench.store.rescue(TTL_S, 10)

        assert (outcome.requeued, outcome.dead_boots) == ((claimed.id,), ())

    def test_three_lost_machines_convict(self, bench: Bench) -> None:
        """Without a journal all of a boot's jobs are charged; only a crash when alone is a conviction."""
        (job_id,) = bench.submit()
        seen = []
        for _ in range(3):
            (claimed,) = bench.store.claim(bench.boot(), [job_id])
            seen.append((claimed.crashes, claimed.suspect))
            bench.advance(TTL_S + 1)
            outcome = bench.store.rescue(TTL_S, 10)

        assert seen == [(0, False), (1, False), (2, True)]
        assert outcome.ended == ((job_id, JobState.FAILED),)
        record = bench.record(job_id)
        assert record.error is not None
        assert (record.error.code, record.crashes, record.attempts) == (JobErrorCode.WORKER_CRASHED, 3, 0)
        assert [letter.id for letter in bench.store.list_jobs(JobFilter(dead_letters=True))] == [job_id]

    def test_past_its_time_to_live_it_expires(self, bench: Bench) -> None:
        (claimed,) = bench.running(bench.boot(), ttl_s=5.0)
        bench.advance(TTL_S + 1)

        assert bench.store.rescue(TTL_S, 10).ended == ((claimed.id, JobState.EXPIRED),)
        assert bench.record(claimed.id).finished_at is not None


class TestWedgedRuns:
    def test_a_run_past_its_timeout_counts_as_an_attempt(self, bench: Bench) -> None:
        boot = bench.boot()
        (claimed,) = bench.running(boot, run_timeout_s=30.0)
        bench.running(boot, run_timeout_s=300.0)
        bench.advance(31.0)
        bench.store.heartbeat(boot, WorkerState.READY)

        outcome = bench.store.rescue(TTL_S, 10)

        assert (outcome.requeued, outcome.dead_boots) == ((claimed.id,), ())
        record = bench.record(claimed.id)
        assert record.error is not None
        assert (record.attempts, record.crashes, record.error.code) == (1, 0, JobErrorCode.RUN_TIMEOUT)
        # It backs off: half of a second and a half of the other half, by the bench's chance.
        assert bench.store.claim(boot, [claimed.id]) == []
        bench.advance(0.8)
        assert len(bench.store.claim(boot, [claimed.id])) == 1

    def test_the_last_attempt_is_a_dead_letter(self, bench: Bench) -> None:
        boot = bench.boot()
        (claimed,) = bench.running(boot, run_timeout_s=5.0, max_attempts=1)
        bench.advance(6.0)
        bench.store.heartbeat(boot, WorkerState.READY)

        assert bench.store.rescue(TTL_S, 10).ended == ((claimed.id, JobState.FAILED),)
        assert bench.store.settle(boot, [success(claimed)], b"").stale == (claimed.id,)
        assert [job.id for job in bench.store.list_jobs(JobFilter(dead_letters=True))] == [claimed.id]

    def test_by_pages(self, bench: Bench) -> None:
        boot = bench.boot()
        bench.running(boot, 5, run_timeout_s=5.0)
        bench.advance(6.0)
        bench.store.heartbeat(boot, WorkerState.READY)

        assert [len(bench.store.rescue(TTL_S, 2).requeued) for _ in range(4)] == [2, 2, 1, 0]


class TestBury:
    def test_only_jobs_in_the_pass_are_suspects(self, bench: Bench) -> None:
        boot = bench.boot()
        suspect, innocent = bench.running(boot, 2)

        outcome = bench.store.bury(boot, [suspect.id])

        assert sorted(outcome.requeued) == sorted([suspect.id, innocent.id])
        assert (outcome.ended, outcome.dead_boots) == ((), (boot,))
        again = {job.id: job for job in bench.store.claim(bench.boot(), [suspect.id, innocent.id])}
        assert (again[suspect.id].crashes, again[suspect.id].suspect) == (1, True)
        assert (again[innocent.id].crashes, again[innocent.id].suspect) == (0, False)

    def test_the_second_crash_convicts(self, bench: Bench) -> None:
        """Case B11: poison ends at its second crash."""
        (job_id,) = bench.submit()
        for _ in range(2):
            boot = bench.boot()
            bench.store.claim(boot, [job_id])
            outcome = bench.store.bury(boot, [job_id])

        assert outcome.ended == ((job_id, JobState.FAILED),)
        record = bench.record(job_id)
        assert record.error is not None
        assert (record.error.code, record.crashes) == (JobErrorCode.WORKER_CRASHED, 2)

    def test_without_suspects_everything_comes_back_free(self, bench: Bench) -> None:
        boot = bench.boot()
        claimed = bench.running(boot, 3)

        outcome = bench.store.bury(boot, [])

        assert len(outcome.requeued) == 3
        assert all(record.crashes == 0 for record in bench.store.look_up([job.id for job in claimed]))
        assert bench.store.workers() == []

    def test_a_second_time_changes_nothing(self, bench: Bench) -> None:
        boot = bench.boot()
        (claimed,) = bench.running(boot)
        bench.store.bury(boot, [claimed.id])
        bench.store.claim(bench.boot(), [claimed.id])

        outcome = bench.store.bury(boot, [claimed.id])

        assert (outcome.requeued, outcome.ended, outcome.dead_boots) == ((), (), ())
        assert bench.states([claimed.id]) == [JobState.RUNNING]

    def test_jobs_in_the_journal_that_it_no_longer_owns_are_left_alone(self, bench: Bench) -> None:
        boot, other = bench.boot(), bench.boot()
        (theirs,) = bench.running(other)

        bench.store.bury(boot, [theirs.id])

        assert bench.states([theirs.id]) == [JobState.RUNNING]


class TestObservation:
    def test_depths_are_the_databases_truth(self, bench: Bench) -> None:
        """Case B15."""
        boot = bench.boot()
        bench.submit(3, model="a", lane=Lane.BULK, inputs=b'["a", "b"]', item_count=2)
        bench.running(boot, 2, model="a")
        (done,) = bench.running(boot, model="b")
        bench.store.settle(boot, [success(done)], b"")
        bench.advance(10.0)
        bench.submit(1, model="a", lane=Lane.BULK)

        depths = {(depth.model, depth.lane, depth.state): depth for depth in bench.store.queue_depths()}

        assert set(depths) == {
            ("a", Lane.BULK, JobState.QUEUED),
            ("a", Lane.STANDARD, JobState.RUNNING),
        }
        assert depths["a", Lane.BULK, JobState.QUEUED].jobs == 4
        assert depths["a", Lane.STANDARD, JobState.RUNNING].jobs == 2
        assert (depths["a", Lane.BULK, JobState.QUEUED].items, depths["a", Lane.BULK, JobState.QUEUED].input_bytes) == (
            3 * 2 + 1,
            3 * len('["a", "b"]') + len('["text"]'),
        )
        assert depths["a", Lane.STANDARD, JobState.RUNNING].items == 2
        assert [depth.oldest_age_s for depth in depths.values()] == pytest.approx([10.0, 10.0], abs=0.9)

    def test_an_empty_queue_has_no_depths(self, bench: Bench) -> None:
        depths: list[QueueDepth] = bench.store.queue_depths()

        assert depths == []
        bench.store.ping()

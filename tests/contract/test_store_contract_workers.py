"""The store, as workers see it when they take work: leases and claims."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from batchfleet.jobs.job import (
    HandBack,
    Lane,
    WorkerLease,
    WorkerState,
    new_job_id,
)
from batchfleet.jobs.states import JobState
from tests.support.stores import KINDS, TTL_S, Bench, open_bench


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

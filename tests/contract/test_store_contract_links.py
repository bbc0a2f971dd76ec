"""The store and a job's links: where its inputs come from, and what its end owes to whom."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from batchfleet.jobs.debts import Debt
from batchfleet.jobs.job import (
    NO_LINKS,
    ClaimedJob,
    HandBack,
    JobError,
    JobErrorCode,
    JobFilter,
    JobLinks,
    WorkerState,
)
from batchfleet.jobs.states import JobState
from tests.support.stores import KINDS, TTL_S, Bench, new_job, open_bench, success

INPUT = JobLinks(input_uri="s3://in/naïve 🚀.json")
OUTPUT = JobLinks(output_uri="s3://out/'a'/%s.json")
CALLBACK = JobLinks(callback_url="https://example.com/hook?x=:y")
ALL = JobLinks(input_uri="s3://in/a", output_uri="s3://out/a", callback_url="https://example.com/")
OWING = JobLinks(output_uri="s3://out/a", callback_url="https://example.com/")


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    with open_bench(request.param, tmp_path) as bench:
        yield bench


def kinds(bench: Bench) -> list[tuple[str, str, str]]:
    """Returns job, kind and event of everything owed."""
    return [(debt.job_id, debt.kind, debt.event) for debt in bench.owed()]


class TestLinks:
    @pytest.mark.parametrize("links", [NO_LINKS, JobLinks(), INPUT, OUTPUT, CALLBACK, ALL])
    def test_they_are_seen_as_they_were_given(self, bench: Bench, links: JobLinks) -> None:
        (job_id,) = bench.submit(links=links)
        bench.submit()

        assert bench.record(job_id).links == links
        assert {record.links for record in bench.store.list_jobs(JobFilter())} == {links, NO_LINKS}

    def test_a_claim_says_where_inputs_lie(self, bench: Bench) -> None:
        jobs = [new_job(links=links) for links in (NO_LINKS, INPUT, CALLBACK, ALL)]
        bench.store.submit(jobs)

        claimed = bench.store.claim(bench.boot(), [job.id for job in jobs])

        assert [job.input_uri for job in claimed] == [None, INPUT.input_uri, None, ALL.input_uri]

    def test_a_claim_without_hints_says_so_too(self, bench: Bench) -> None:
        bench.submit(links=INPUT)

        (claimed,) = bench.store.claim_ready(bench.boot(), [], 10)

        assert claimed.input_uri == INPUT.input_uri

    def test_a_repeated_submit_keeps_the_first(self, bench: Bench) -> None:
        first = new_job(links=OWING, idempotency_key="k", fingerprint="f")
        bench.store.submit([first])

        bench.store.submit([first])
        bench.store.submit([new_job(links=INPUT, idempotency_key="k", fingerprint="f")])

        assert [record.links for record in bench.store.list_jobs(JobFilter())] == [OWING]


class TestDebts:
    def test_a_debt_says_all_that_is_to_be_done(self, bench: Bench) -> None:
        boot = bench.boot()
        (claimed,) = bench.running(boot, links=ALL, tenant="Größe")
        bench.store.settle(boot, [success(claimed)], b"")

        output, webhook = bench.owed()

        ended = bench.record(claimed.id).finished_at
        assert ended is not None
        told = Debt(
            job_id=claimed.id,
            kind="webhook",
            tenant="Größe",
            target="https://example.com/",
            event="job.succeeded",
            created_at=ended,
        )
        assert webhook == told
        assert output == replace(told, kind="output", target="s3://out/a")

    @pytest.mark.parametrize("links", [NO_LINKS, INPUT])
    def test_who_asked_for_nothing_is_owed_nothing(self, bench: Bench, links: JobLinks) -> None:
        boot = bench.boot()
        (claimed,) = bench.running(boot, links=links)

        bench.store.settle(boot, [success(claimed)], b"")

        assert bench.owed() == []

    def test_only_what_was_asked_for(self, bench: Bench) -> None:
        boot = bench.boot()
        plain, output, callback = (bench.running(boot, links=links)[0] for links in (NO_LINKS, OUTPUT, CALLBACK))

        bench.store.settle(boot, [success(callback), success(plain), success(output)], b"")

        assert sorted(kinds(bench)) == sorted(
            [(output.id, "output", "job.succeeded"), (callback.id, "webhook", "job.succeeded")]
        )

    @pytest.mark.parametrize("state", [state for state in JobState if state.terminal])
    def test_every_end_that_a_worker_settles(self, bench: Bench, state: JobState) -> None:
        boot = bench.boot()
        (claimed,) = bench.running(boot, links=OWING)

        bench.store.settle(boot, [success(claimed, state=state)], b"")

        assert kinds(bench) == [(claimed.id, kind, f"job.{state.value}") for kind in ("output", "webhook")]

    def test_retries_hand_backs_and_stale_settles_owe_nothing(self, bench: Bench) -> None:
        boot = bench.boot()
        retried, handed = bench.running(boot, 2, links=OWING)
        bench.store.settle(boot, [success(retried, state=JobState.QUEUED, format=None)], b"")
        bench.store.hand_back(boot, [HandBack(handed.id, handed.epoch)])

        bench.store.settle(boot, [success(retried), success(handed)], b"")

        assert bench.owed() == []

    def test_retries_and_ends_in_one_call(self, bench: Bench) -> None:
        boot = bench.boot()
        claimed = bench.running(boot, 6, links=CALLBACK)
        states = [JobState.QUEUED, JobState.SUCCEEDED, JobState.FAILED] * 2

        bench.store.settle(boot, [success(job, state=state) for job, state in zip(claimed, states, strict=True)], b"")

        ended = [job.id for job, state in zip(claimed, states, strict=True) if state.terminal]
        assert [debt.job_id for debt in bench.owed()] == sorted(ended)

    def test_a_job_settled_twice_owes_once(self, bench: Bench) -> None:
        boot = bench.boot()
        (claimed,) = bench.running(boot, links=OWING)

        bench.store.settle(boot, [success(claimed), success(claimed, state=JobState.FAILED)], b"")
        bench.store.settle(boot, [success(claimed)], b"")
        bench.store.cancel([claimed.id])

        assert kinds(bench) == [(claimed.id, kind, "job.succeeded") for kind in ("output", "webhook")]

    def test_cancelled_queued_and_running(self, bench: Bench) -> None:
        (running,) = bench.running(bench.boot(), links=OWING)
        (queued,) = bench.submit(links=CALLBACK)
        (theirs,) = bench.submit(links=CALLBACK, tenant="b")

        bench.store.cancel([queued, running.id, theirs], tenant="default")
        bench.store.cancel([queued, running.id])

        assert sorted(kinds(bench)) == sorted(
            [
                (running.id, "output", "job.cancelled"),
                (running.id, "webhook", "job.cancelled"),
                (queued, "webhook", "job.cancelled"),
            ]
        )

    def test_expired_in_the_queue(self, bench: Bench) -> None:
        (job_id,) = bench.submit(links=CALLBACK, ttl_s=5.0)
        bench.submit(links=CALLBACK)
        bench.advance(6.0)

        bench.store.expire(10)

        assert kinds(bench) == [(job_id, "webhook", "job.expired")]

    def test_expired_when_handed_back(self, bench: Bench) -> None:
        boot = bench.boot()
        (late,) = bench.running(boot, links=CALLBACK, ttl_s=5.0)
        (fine,) = bench.running(boot, links=CALLBACK)
        bench.advance(6.0)

        bench.store.hand_back(boot, [HandBack(job.id, job.epoch) for job in (late, fine)])

        assert kinds(bench) == [(late.id, "webhook", "job.expired")]

    @pytest.mark.parametrize("end", ["expired", "failed"])
    @pytest.mark.parametrize("how", ["rescue", "bury"])
    def test_of_a_dead_worker(self, bench: Bench, end: str, how: str) -> None:
        boot = bench.boot()
        (claimed,) = bench.running(boot, links=OWING, ttl_s=5.0 if end == "expired" else None)
        bench.running(boot, links=CALLBACK)
        if end == "failed":
            boot = self._convict(bench, boot, claimed)
        bench.advance(TTL_S + 1)

        if how == "rescue":
            bench.store.rescue(TTL_S, 10)
        else:
            bench.store.bury(boot, [claimed.id])

        assert kinds(bench) == [(claimed.id, kind, f"job.{end}") for kind in ("output", "webhook")]

    def _convict(self, bench: Bench, boot: str, claimed: ClaimedJob) -> str:
        """Lets the job's worker die in its pass; returns the next one that runs it, alone."""
        bench.store.bury(boot, [claimed.id])
        assert bench.owed() == []
        boot = bench.boot()
        assert len(bench.store.claim(boot, [claimed.id])) == 1
        return boot

    def test_of_a_wedged_run(self, bench: Bench) -> None:
        boot = bench.boot()
        again, last = (bench.running(boot, links=CALLBACK, run_timeout_s=1.0, max_attempts=n)[0] for n in (2, 1))
        bench.advance(2.0)
        bench.store.heartbeat(boot, WorkerState.READY)

        bench.store.rescue(TTL_S, 10)

        assert bench.states([again.id, last.id]) == [JobState.QUEUED, JobState.FAILED]
        assert kinds(bench) == [(last.id, "webhook", "job.failed")]

    def test_what_a_deleted_job_owed_stays_owed(self, bench: Bench) -> None:
        (job_id,) = bench.submit(links=OWING)
        bench.store.cancel([job_id])
        before = bench.owed()

        bench.store.delete([job_id])

        assert len(before) == 2
        assert bench.owed() == before

    def test_a_thousand_ends_at_once(self, bench: Bench) -> None:
        boot = bench.boot()
        claimed = bench.running(boot, 1000, links=OWING)
        error = JobError(JobErrorCode.INPUT_INVALID, "no")

        bench.store.settle(
            boot, [success(job, state=JobState.FAILED, format=None, error=error) for job in claimed], b""
        )

        assert [debt.job_id for debt in bench.owed()] == [job_id for job in claimed for job_id in (job.id, job.id)]

"""The store and time gone by: jobs deleted and purged, results removed, blobs that are still needed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from batchfleet.database.opening import open_database
from batchfleet.database.statements import sql
from batchfleet.jobs.job import (
    ClaimedJob,
    Deleted,
    HandBack,
    JobFilter,
    JobId,
    JobLinks,
    JobRecord,
    StoredResult,
    new_job_id,
)
from batchfleet.jobs.states import JobState
from tests.support.stores import KINDS, SHARED_KINDS, Bench, new_job, open_bench, success

HOUR_S = 3600.0
OWING = JobLinks(output_uri="s3://out/a", callback_url="https://example.com/")


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    with open_bench(request.param, tmp_path) as bench:
        yield bench


def ended(bench: Bench, count: int = 1, **changes: object) -> list[JobId]:
    """Returns jobs that have succeeded, each with a result of three bytes."""
    boot = bench.boot()
    claimed = bench.running(boot, count, **changes)
    rows = [success(job, length=3, provenance='{"p":1}') for job in claimed]
    assert bench.store.settle(boot, rows, b"abc").stale == ()
    return [job.id for job in claimed]


def in_blobs(bench: Bench, count: int = 1) -> dict[JobId, str]:
    """Returns jobs that have succeeded with a large result, and its key."""
    boot = bench.boot()
    keys = {job.id: job for job in bench.running(boot, count)}
    bench.store.settle(boot, [success(job, blob_key=key_of(job)) for job in keys.values()], b"")
    return {job_id: key_of(job) for job_id, job in keys.items()}


def key_of(job: ClaimedJob | JobRecord) -> str:
    return f"{job.id}/{job.epoch}"


class TestDelete:
    def test_nothing_of_the_job_is_left(self, bench: Bench) -> None:
        (gone,) = ended(bench, idempotency_key="k", fingerprint="f", links=OWING, metadata=b"{}")
        (kept,) = ended(bench, idempotency_key="l", fingerprint="f", links=OWING)
        bench.pay()

        assert bench.store.delete([gone]) == [Deleted(gone, JobState.SUCCEEDED)]

        assert [record.id for record in bench.store.look_up([gone, kept], with_results=True)] == [kept]
        assert bench.record(kept).links == OWING
        assert bench.record(kept).result == StoredResult(format="{}", data=b"abc")

    def test_its_idempotency_key_is_free(self, bench: Bench) -> None:
        (gone,) = ended(bench, idempotency_key="k", fingerprint="f")
        (kept,) = ended(bench, idempotency_key="l", fingerprint="f")
        bench.store.delete([gone])

        again, held = bench.store.submit([new_job(idempotency_key=key, fingerprint="g") for key in "kl"])

        assert (again.created, again.conflict) == (True, False)
        assert (held.id, held.conflict) == (kept, True)

    def test_the_caller_learns_of_the_blob(self, bench: Bench) -> None:
        blobs = in_blobs(bench, 2)
        (plain,) = ended(bench)

        deleted = {gone.id: gone.blob_key for gone in bench.store.delete([*blobs, plain])}

        assert deleted == {**blobs, plain: None}

    @pytest.mark.parametrize("state", [JobState.QUEUED, JobState.RUNNING])
    def test_what_has_not_ended_stays(self, bench: Bench, state: JobState) -> None:
        (running,) = bench.running(bench.boot())
        (queued,) = bench.submit()
        job_id = running.id if state is JobState.RUNNING else queued

        assert bench.store.delete([job_id]) == [Deleted(job_id, state)]
        assert bench.states([job_id]) == [state]

    @pytest.mark.parametrize("state", [state for state in JobState if state.terminal])
    def test_what_has_ended_goes(self, bench: Bench, state: JobState) -> None:
        boot = bench.boot()
        (claimed,) = bench.running(boot)
        bench.store.settle(boot, [success(claimed, state=state)], b"")

        assert [gone.state for gone in bench.store.delete([claimed.id])] == [state]
        assert bench.store.look_up([claimed.id]) == []

    def test_one_whose_output_is_still_to_be_written_stays_until_then(self, bench: Bench) -> None:
        (owing,) = ended(bench, idempotency_key="k", fingerprint="f", links=OWING)

        assert bench.store.delete([owing]) == [Deleted(owing, JobState.SUCCEEDED, owed=True)]
        (record,) = bench.store.look_up([owing], with_results=True)
        assert record.result == StoredResult(format="{}", data=b"abc")
        assert not bench.store.submit([new_job(idempotency_key="k", fingerprint="f")])[0].created

        bench.pay()
        assert bench.store.delete([owing]) == [Deleted(owing, JobState.SUCCEEDED)]
        assert bench.store.look_up([owing]) == []

    def test_a_webhook_that_is_owed_goes_out_without_the_record(self, bench: Bench) -> None:
        (told,) = ended(bench, links=JobLinks(callback_url="https://example.com/"))
        before = bench.owed()

        assert bench.store.delete([told]) == [Deleted(told, JobState.SUCCEEDED)]
        assert bench.store.look_up([told]) == []
        assert bench.owed() == before

    def test_not_another_tenants_and_not_twice(self, bench: Bench) -> None:
        (job_id,) = ended(bench, tenant="a")

        assert bench.store.delete([job_id, new_job_id()], tenant="b") == []
        assert bench.states([job_id]) == [JobState.SUCCEEDED]
        assert len(bench.store.delete([job_id, job_id], tenant="a")) == 1
        assert bench.store.delete([job_id], tenant="a") == []

    def test_a_run_under_way_is_stale_and_nobody_is_told(self, bench: Bench) -> None:
        boot = bench.boot()
        (claimed,) = bench.running(boot, links=OWING)
        bench.store.cancel([claimed.id])
        bench.pay()
        bench.store.delete([claimed.id])
        before = bench.owed()

        assert bench.store.settle(boot, [success(claimed, length=1)], b"x").stale == (claimed.id,)
        assert bench.store.revoked(boot) == []
        assert bench.owed() == before

    def test_nothing_is_nothing(self, bench: Bench) -> None:
        assert bench.store.delete([]) == []
        assert bench.store.purge_jobs(0.0, 10) == []
        assert bench.store.purge_results(0.0, 10) == []
        assert bench.store.named_blobs([]) == set()


class TestPurgeJobs:
    def test_only_those_that_ended_long_ago(self, bench: Bench) -> None:
        old = ended(bench, 3, idempotency_key=None)
        (queued,) = bench.submit()
        (running,) = bench.running(bench.boot())
        bench.advance(HOUR_S)
        (young,) = ended(bench)

        assert bench.store.purge_jobs(HOUR_S + 60.0, 10) == []
        purged = bench.store.purge_jobs(HOUR_S - 60.0, 10)

        assert sorted(purged) == sorted((job_id, None) for job_id in old)
        assert {record.id for record in bench.store.list_jobs(JobFilter())} == {queued, running.id, young}

    def test_by_the_end_and_not_by_the_beginning(self, bench: Bench) -> None:
        """A job that waited for long was submitted before all others, and ended after them."""
        waited = bench.submit(20)
        old = ended(bench, 5)
        bench.advance(HOUR_S)
        boot = bench.boot()
        bench.store.settle(boot, [success(job) for job in bench.store.claim(boot, waited)], b"")

        assert sorted(job_id for job_id, _ in bench.store.purge_jobs(60.0, 10)) == sorted(old)
        assert len(bench.store.list_jobs(JobFilter())) == 20

    def test_oldest_first_and_by_pages(self, bench: Bench) -> None:
        order = []
        for _ in range(6):
            order += ended(bench)
            bench.advance(1.0)
        bench.advance(HOUR_S)

        pages = [[job_id for job_id, _ in bench.store.purge_jobs(60.0, 4)] for _ in range(3)]

        assert pages[2] == []
        assert sorted(pages[0]) == sorted(order[:4])
        assert sorted(pages[1]) == sorted(order[4:])

    def test_as_delete_does(self, bench: Bench) -> None:
        (job_id,) = ended(bench, idempotency_key="k", fingerprint="f", links=OWING)
        blobs = in_blobs(bench)
        before = bench.owed()
        bench.pay()
        bench.advance(HOUR_S)

        assert dict(bench.store.purge_jobs(60.0, 10)) == {job_id: None, **blobs}

        assert bench.store.submit([new_job(idempotency_key="k", fingerprint="g")])[0].created
        assert len(bench.owed()) == len(before) == 2

    @pytest.mark.parametrize(
        "links", [JobLinks(output_uri="s3://out/a"), JobLinks(callback_url="https://example.com/")]
    )
    def test_what_is_still_owed_stays_until_it_is_paid(self, bench: Bench, links: JobLinks) -> None:
        owing = ended(bench, 5, links=links)
        bench.advance(1.0)
        old = ended(bench, 2)
        bench.advance(HOUR_S)

        assert sorted(job_id for job_id, _ in bench.store.purge_jobs(60.0, 2)) == sorted(old)
        assert bench.store.purge_jobs(60.0, 10) == []
        assert all(record.result for record in bench.store.look_up(owing, with_results=True))
        bench.pay()
        assert sorted(job_id for job_id, _ in bench.store.purge_jobs(60.0, 10)) == sorted(owing)


class TestPurgeResults:
    def test_the_job_stays_and_says_that_its_result_is_gone(self, bench: Bench) -> None:
        (old,) = ended(bench)
        before = bench.record(old)
        bench.advance(HOUR_S)
        (young,) = ended(bench)

        assert bench.store.purge_results(60.0, 10) == [(old, None)]
        assert bench.store.purge_results(60.0, 10) == []

        assert before.result is not None
        record = bench.record(old)
        assert (record.state, record.result, record.provenance) == (JobState.SUCCEEDED, None, before.provenance)
        assert bench.record(young).result is not None
        for records in (bench.store.list_jobs(JobFilter()), bench.store.look_up([old, young])):
            assert {each.id: each.result_gone for each in records} == {old: True, young: False}

    def test_blobs_are_named_once(self, bench: Bench) -> None:
        blobs = in_blobs(bench, 3)
        bench.advance(HOUR_S)

        assert dict(bench.store.purge_results(60.0, 10)) == blobs
        assert bench.store.named_blobs(list(blobs.values())) == set()
        assert {key for _, key in bench.store.purge_jobs(60.0, 10)} == {None}

    def test_jobs_without_a_result_are_passed_by(self, bench: Bench) -> None:
        boot = bench.boot()
        failed, expired = bench.running(boot, 2)
        rows = [success(failed, state=JobState.FAILED, format=None, provenance="{}")]
        bench.store.settle(boot, [*rows, success(expired, state=JobState.EXPIRED, format=None)], b"")
        bench.store.cancel(bench.submit())
        bench.advance(HOUR_S)

        assert bench.store.purge_results(60.0, 10) == []
        assert bench.record(failed.id).provenance == "{}"

    def test_by_the_end_and_by_pages(self, bench: Bench) -> None:
        waited = bench.submit(20)
        old = [*ended(bench, 3)]
        bench.advance(1.0)
        old += ended(bench, 3)
        bench.advance(HOUR_S)
        boot = bench.boot()
        bench.store.settle(boot, [success(job, length=1) for job in bench.store.claim(boot, waited)], b"x")

        pages = [sorted(job_id for job_id, _ in bench.store.purge_results(60.0, 3)) for _ in range(3)]

        assert pages == [sorted(old[:3]), sorted(old[3:]), []]

    def test_what_is_still_to_be_written_elsewhere_stays(self, bench: Bench) -> None:
        (owed,) = ended(bench, links=JobLinks(output_uri="s3://out/a"))
        (told,) = ended(bench, links=JobLinks(callback_url="https://example.com/"))
        bench.advance(HOUR_S)

        assert bench.store.purge_results(60.0, 10) == [(told, None)]
        assert bench.record(owed).result is not None
        bench.pay()
        assert bench.store.purge_results(60.0, 10) == [(owed, None)]

    def test_what_is_owed_does_not_stop_the_others(self, bench: Bench) -> None:
        ended(bench, 5, links=JobLinks(output_uri="s3://out/a"))
        bench.advance(1.0)
        old = ended(bench, 2)
        bench.advance(HOUR_S)

        assert sorted(job_id for job_id, _ in bench.store.purge_results(60.0, 2)) == sorted(old)


@pytest.mark.parametrize("kind", SHARED_KINDS)
def test_results_that_the_version_before_stored_are_judged_by_their_job(kind: str, tmp_path: Path) -> None:
    """It does not know of the column that says when a result was stored."""
    with open_bench(kind, tmp_path) as bench:
        (old,) = ended(bench)
        bench.advance(HOUR_S)
        (young,) = ended(bench)
        database = open_database(bench.url)
        database.write(lambda tx: tx.change(sql("UPDATE job_results SET stored_at = 0"), {}))
        database.close()

        assert bench.store.purge_results(60.0, 10) == [(old, None)]
        assert bench.record(young).result is not None


class TestNamedBlobs:
    def test_those_of_results_and_of_runs_under_way(self, bench: Bench) -> None:
        (stored,) = in_blobs(bench).values()
        (running,) = bench.running(bench.boot())
        inline = [f"{job_id}/1" for job_id in ended(bench)]
        queued = [f"{job_id}/{epoch}" for job_id in bench.submit() for epoch in (0, 1)]
        others = [f"{new_job_id()}/1", f"{running.id}/0", f"{running.id}/2", stored[:-1] + "2"]

        named = bench.store.named_blobs([stored, key_of(running), *inline, *queued, *others])

        assert named == {stored, key_of(running)}

    def test_a_blob_of_an_earlier_run_is_not_needed(self, bench: Bench) -> None:
        boot = bench.boot()
        (first,) = bench.running(boot)
        bench.store.hand_back(boot, [HandBack(first.id, first.epoch)])
        assert bench.store.named_blobs([key_of(first)]) == set()
        (second,) = bench.store.claim(boot, [first.id])

        assert bench.store.named_blobs([key_of(first), key_of(second)]) == {key_of(second)}
        bench.store.cancel([first.id])
        assert bench.store.named_blobs([key_of(first), key_of(second)]) == set()

    @pytest.mark.parametrize(
        "key", ["notes.txt", "a/b", f"{'A' * 32}/1", f"{'0' * 32}/01", f"{'0' * 32}/1/2", "x" * 32]
    )
    def test_what_is_no_result_is_not_ours_to_remove(self, bench: Bench, key: str) -> None:
        assert bench.store.named_blobs([key]) == {key}

    def test_an_epoch_that_no_job_has(self, bench: Bench) -> None:
        (running,) = bench.running(bench.boot())

        assert bench.store.named_blobs([f"{running.id}/{2**63 - 1}"]) == set()
        assert bench.store.named_blobs([f"{running.id}/{2**63}"]) == {f"{running.id}/{2**63}"}

    def test_a_thousand_at_once(self, bench: Bench) -> None:
        blobs = in_blobs(bench, 1000)

        assert bench.store.named_blobs([*blobs.values(), *(f"{new_job_id()}/1" for _ in range(1000))]) == set(
            blobs.values()
        )

"""The store, as clients see it: every kind of store answers alike. See also `test_store_contract_*.py`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from batchfleet.jobs.job import JobError, JobErrorCode, JobFilter, Lane, OnItemError, Settlement, new_job_id
from batchfleet.jobs.states import TRANSITIONS, JobState
from tests.support.stores import KINDS, Bench, new_job, open_bench, success


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    with open_bench(request.param, tmp_path) as bench:
        yield bench


class TestSubmit:
    def test_what_was_asked_is_what_is_claimed(self, bench: Bench) -> None:
        """The queue interprets nothing: bytes come back as they went in, NUL and all."""
        job = new_job(
            inputs='["naïve \u0000 🚀"]'.encode() + b"\x00\xff",
            parameters=b'{"normalize": true}\x00',
            metadata=b'{"\xc3\xa9": 1}',
            lane=Lane.BULK,
            adapter="fr",
            tenant="Größe 🚀",
            item_count=7,
            on_item_error=OnItemError.PARTIAL,
            run_timeout_s=60.0,
            max_attempts=5,
            traceparent="00-aa-bb-01",
            ttl_s=30.0,
            retry_of=new_job_id(),
        )
        bench.store.submit([job])
        bench.advance(4.0)
        boot = bench.boot()

        (claimed,) = bench.store.claim(boot, [job.id])
        record = bench.record(job.id)

        assert claimed.age_s == pytest.approx(4.0, abs=0.9)
        assert claimed.ttl_left_s == pytest.approx(26.0, abs=0.9)
        same = ("id", "model", "version", "adapter", "tenant", "lane", "item_count", "max_attempts")
        assert [getattr(claimed, name) for name in same] == [getattr(job, name) for name in same]
        assert [getattr(record, name) for name in same] == [getattr(job, name) for name in same]
        assert (claimed.inputs, claimed.parameters, claimed.traceparent) == (
            job.inputs,
            job.parameters,
            job.traceparent,
        )
        assert (claimed.on_item_error, claimed.run_timeout_s) == (OnItemError.PARTIAL, 60.0)
        assert (claimed.epoch, claimed.attempts, claimed.crashes, claimed.suspect) == (1, 0, 0, False)
        assert (record.metadata, record.retry_of, record.state) == (job.metadata, job.retry_of, JobState.RUNNING)

    def test_answers_come_in_order(self, bench: Bench) -> None:
        jobs = [new_job() for _ in range(50)]

        answers = bench.store.submit(jobs)

        assert [answer.id for answer in answers] == [job.id for job in jobs]
        assert all(answer.created and answer.state is JobState.QUEUED for answer in answers)

    def test_nothing_is_nothing(self, bench: Bench) -> None:
        boot = bench.boot()

        assert bench.store.submit([]) == []
        assert bench.store.look_up([]) == []
        assert bench.store.cancel([]) == []
        assert bench.store.claim(boot, []) == []
        assert bench.store.claim_ready(boot, [], 10) == []
        assert bench.store.settle(boot, [], b"").applied == ()
        assert bench.store.hand_back(boot, []) == []
        assert bench.store.announceable(10) == []
        assert bench.store.expire(10) == []

    def test_a_call_repeated_after_a_lost_commit_changes_nothing(self, bench: Bench) -> None:
        """The caller made the ids, so that the store recognises what it has, wherever the job stands by now."""
        jobs = [new_job(), new_job(idempotency_key="k", fingerprint="f")]
        bench.store.submit(jobs)
        bench.store.claim(bench.boot(), [jobs[0].id])

        again = bench.store.submit([*jobs, new_job()])

        assert [answer.created for answer in again] == [True, True, True]
        assert [answer.state for answer in again] == [JobState.RUNNING, JobState.QUEUED, JobState.QUEUED]
        assert len(bench.store.list_jobs(JobFilter())) == 3

    def test_input_size_and_counts_travel_with_the_announcement(self, bench: Bench) -> None:
        bench.submit(inputs=b"x" * 1234, item_count=3, announced_by_submitter=False)

        (announcement,) = bench.store.announceable(10)

        assert (announcement.input_bytes, announcement.item_count) == (1234, 3)


class TestIdempotency:
    def test_the_same_key_and_body_repeat_the_first_answer(self, bench: Bench) -> None:
        first = new_job(idempotency_key="k", fingerprint="f")
        bench.store.submit([first])
        bench.store.claim(bench.boot(), [first.id])

        (answer,) = bench.store.submit([new_job(idempotency_key="k", fingerprint="f")])

        assert (answer.id, answer.created, answer.conflict) == (first.id, False, False)
        assert answer.state is JobState.RUNNING

    def test_another_body_is_a_conflict_and_hinders_nobody(self, bench: Bench) -> None:
        first = new_job(idempotency_key="k", fingerprint="f")
        bench.store.submit([first])
        neighbour = new_job()

        conflict, other = bench.store.submit([new_job(idempotency_key="k", fingerprint="g"), neighbour])

        assert (conflict.id, conflict.created, conflict.conflict) == (first.id, False, True)
        assert (other.id, other.created) == (neighbour.id, True)
        assert len(bench.store.list_jobs(JobFilter())) == 2

    def test_keys_are_the_tenants_own(self, bench: Bench) -> None:
        jobs = [new_job(tenant=tenant, idempotency_key="k", fingerprint=tenant) for tenant in "ab"]

        assert all(answer.created for answer in bench.store.submit(jobs))

    def test_duplicates_inside_one_call(self, bench: Bench) -> None:
        """The first of them is the job, whatever order keys are stored in."""
        jobs = [
            new_job(idempotency_key="z", fingerprint="1"),
            new_job(idempotency_key="a", fingerprint="1"),
            new_job(idempotency_key="z", fingerprint="1"),
            new_job(idempotency_key="a", fingerprint="2"),
        ]

        answers = bench.store.submit(jobs)

        assert [answer.id for answer in answers] == [jobs[0].id, jobs[1].id, jobs[0].id, jobs[1].id]
        assert [answer.created for answer in answers] == [True, True, False, False]
        assert [answer.conflict for answer in answers] == [False, False, False, True]
        assert {answer.state for answer in answers} == {JobState.QUEUED}
        assert len(bench.store.list_jobs(JobFilter())) == 2

    def test_a_key_may_hold_anything(self, bench: Bench) -> None:
        key = "ключ 🚀 \" ' \\ %s :name"
        first = new_job(idempotency_key=key, fingerprint="f")

        bench.store.submit([first])
        (answer,) = bench.store.submit([new_job(idempotency_key=key, fingerprint="f")])

        assert answer.id == first.id


class TestLookUp:
    def test_only_jobs_that_exist_and_are_the_tenants(self, bench: Bench) -> None:
        (mine,) = bench.submit(tenant="a")
        (theirs,) = bench.submit(tenant="b")

        found = bench.store.look_up([mine, theirs, new_job_id(), mine], tenant="a")

        assert [record.id for record in found] == [mine]
        assert len(bench.store.look_up([mine, theirs])) == 2

    def test_results_come_only_when_asked_for(self, bench: Bench) -> None:
        boot = bench.boot()
        (claimed,) = bench.running(boot)
        bench.store.settle(boot, [success(claimed, length=3, format='{"a":1}', provenance='{"p":1}')], b"abc")

        (without,) = bench.store.look_up([claimed.id])
        with_result = bench.record(claimed.id)

        assert (without.result, without.provenance) == (None, '{"p":1}')
        assert with_result.result is not None
        assert (with_result.result.data, with_result.result.format) == (b"abc", '{"a":1}')
        assert with_result.provenance == '{"p":1}'

    def test_a_thousand_at_once(self, bench: Bench) -> None:
        ids = bench.submit(1000)

        assert {record.id for record in bench.store.look_up(ids)} == set(ids)


class TestList:
    def test_pages_newest_first(self, bench: Bench) -> None:
        ids = bench.submit(25)
        seen: list[str] = []

        after = None
        while page := bench.store.list_jobs(JobFilter(after=after, limit=10)):
            seen += [record.id for record in page]
            after = page[-1].id

        assert seen == sorted(ids, reverse=True)

    def test_filters_combine(self, bench: Bench) -> None:
        boot = bench.boot()
        bench.submit(2, tenant="a", model="x")
        bench.running(boot, 3, tenant="a", model="y")
        bench.submit(4, tenant="b", model="y")

        def count(**wanted: object) -> int:
            return len(bench.store.list_jobs(JobFilter(**wanted)))  # type: ignore[arg-type]

        assert count(tenant="a") == 5
        assert count(model="y") == 7
        assert count(states=frozenset({JobState.RUNNING})) == 3
        assert count(states=frozenset({JobState.RUNNING, JobState.QUEUED}), tenant="b") == 4
        assert count(tenant="a", model="y", states=frozenset({JobState.QUEUED})) == 0
        assert count(limit=3) == 3

    def test_dead_letters_used_up_their_attempts_or_crashes(self, bench: Bench) -> None:
        boot = bench.boot()
        used_up, wrong, crashed, fine = bench.running(boot, 4, max_attempts=2)
        (last_try,) = bench.running(boot, max_attempts=1)
        failed = {"state": JobState.FAILED, "format": None}
        bench.store.settle(
            boot,
            [
                success(used_up, state=JobState.QUEUED, format=None, error=JobError("pass_failed", "first")),
                success(wrong, **failed, error=JobError("invalid_input", "no text", item=0)),
                success(crashed, **failed, error=JobError(JobErrorCode.WORKER_CRASHED, "twice")),
                success(last_try, **failed, error=JobError(JobErrorCode.PASS_FAILED, "only")),
                success(fine),
            ],
            b"",
        )
        (again,) = bench.store.claim(boot, [used_up.id])
        bench.store.settle(boot, [success(again, **failed, error=JobError("pass_failed", "last"))], b"")

        letters = bench.store.list_jobs(JobFilter(dead_letters=True))

        assert {record.id for record in letters} == {used_up.id, crashed.id, last_try.id}
        assert bench.store.list_jobs(JobFilter(dead_letters=True, tenant="nobody")) == []
        assert bench.record(wrong.id).error == JobError("invalid_input", "no text", item=0)


class TestCancel:
    def test_a_queued_and_a_running_job(self, bench: Bench) -> None:
        boot = bench.boot()
        (running,) = bench.running(boot)
        (queued,) = bench.submit()

        answers = bench.store.cancel([queued, running.id, new_job_id()])

        assert sorted(answers) == sorted([(queued, JobState.CANCELLED, True), (running.id, JobState.CANCELLED, True)])
        assert bench.record(queued).finished_at is not None

    def test_a_second_time_changes_nothing(self, bench: Bench) -> None:
        (job_id,) = bench.submit()
        bench.store.cancel([job_id])
        before = bench.record(job_id)

        assert bench.store.cancel([job_id]) == [(job_id, JobState.CANCELLED, False)]
        assert bench.record(job_id).epoch == before.epoch

    def test_not_another_tenants(self, bench: Bench) -> None:
        (job_id,) = bench.submit(tenant="a")

        assert bench.store.cancel([job_id], tenant="b") == []
        assert bench.states([job_id]) == [JobState.QUEUED]

    def test_during_a_run_the_owners_settle_is_stale(self, bench: Bench) -> None:
        boot = bench.boot()
        (claimed,) = bench.running(boot)
        bench.store.cancel([claimed.id])

        outcome = bench.store.settle(boot, [success(claimed, length=1)], b"x")

        assert (outcome.applied, outcome.stale) == ((), (claimed.id,))
        assert bench.record(claimed.id).result is None

    def test_the_owner_is_told_once(self, bench: Bench) -> None:
        boot, other = bench.boot(), bench.boot()
        claimed = bench.running(boot, 3)
        bench.store.cancel([claimed[0].id, claimed[2].id])

        assert bench.store.revoked(other) == []
        assert sorted(bench.store.revoked(boot)) == sorted([claimed[0].id, claimed[2].id])
        assert bench.store.revoked(boot) == []

    @pytest.mark.parametrize("ending", ["retire", "bury", "rescue"])
    def test_a_boot_that_is_gone_is_not_remembered(self, bench: Bench, ending: str) -> None:
        boot = bench.boot()
        (claimed,) = bench.running(boot)
        bench.store.cancel([claimed.id])

        bench.advance(20.0)
        if ending == "retire":
            bench.store.retire(boot)
        elif ending == "bury":
            bench.store.bury(boot, [])
        else:
            bench.store.rescue(15.0, 10)

        assert bench.store.revoked(boot) == []
        assert bench.states([claimed.id]) == [JobState.CANCELLED]


@pytest.mark.parametrize("state", list(JobState))
class TestEveryArrow:
    """Each way to change a job, tried from each state: it applies only where the table has the arrow."""

    def put(self, bench: Bench, state: JobState) -> tuple[str, str, int]:
        """Brings a job into a state and returns (boot, job id, epoch)."""
        boot = bench.boot()
        (claimed,) = bench.running(boot, ttl_s=None)
        if state is JobState.QUEUED:
            bench.store.settle(boot, [success(claimed, state=state, format=None)], b"")
        elif state is JobState.CANCELLED:
            bench.store.cancel([claimed.id])
        elif state is not JobState.RUNNING:
            bench.store.settle(boot, [success(claimed, state=state)], b"")
        assert bench.states([claimed.id]) == [state]
        return boot, claimed.id, bench.record(claimed.id).epoch

    def test_claim(self, bench: Bench, state: JobState) -> None:
        boot, job_id, epoch = self.put(bench, state)

        claimed = bench.store.claim(boot, [job_id])

        assert len(claimed) == (JobState.RUNNING in TRANSITIONS[state])
        assert bench.record(job_id).epoch == epoch + len(claimed)

    @pytest.mark.parametrize(
        "new", [JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED, JobState.QUEUED]
    )
    def test_settle(self, bench: Bench, state: JobState, new: JobState) -> None:
        boot, job_id, epoch = self.put(bench, state)
        before = bench.record(job_id)

        outcome = bench.store.settle(boot, [Settlement(id=job_id, epoch=epoch, state=new)], b"")

        if state is JobState.RUNNING:
            assert outcome.applied == ((job_id, new),)
            assert bench.record(job_id).state is new
        else:
            assert outcome.stale == (job_id,)
            assert bench.record(job_id) == before

    def test_nothing_is_settled_as_running(self, bench: Bench, state: JobState) -> None:
        boot, job_id, epoch = self.put(bench, state)

        with pytest.raises(ValueError, match="running"):
            bench.store.settle(boot, [Settlement(id=job_id, epoch=epoch, state=JobState.RUNNING)], b"")

        assert bench.states([job_id]) == [state]

    def test_cancel(self, bench: Bench, state: JobState) -> None:
        _, job_id, _ = self.put(bench, state)

        ((_, now, changed),) = bench.store.cancel([job_id])

        assert changed == (JobState.CANCELLED in TRANSITIONS[state])
        assert now is (JobState.CANCELLED if changed else state)

    def test_bury(self, bench: Bench, state: JobState) -> None:
        boot, job_id, _ = self.put(bench, state)
        before = bench.record(job_id)

        outcome = bench.store.bury(boot, [job_id])

        if state is JobState.RUNNING:
            assert outcome.requeued == (job_id,)
        else:
            assert (outcome.requeued, outcome.ended) == ((), ())
            assert bench.record(job_id) == before

    def test_terminal_states_have_an_end(self, bench: Bench, state: JobState) -> None:
        _, job_id, _ = self.put(bench, state)
        record = bench.record(job_id)

        assert (record.finished_at is not None) == state.terminal
        assert (record.started_at is None) == (state is JobState.QUEUED)

"""The store under many hands: threads of a process, and processes of a machine."""

import itertools
import multiprocessing
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any, TypeVar

import pytest

from batchfleet.database.opening import open_database
from batchfleet.database.statements import Sql, sql
from batchfleet.database.transaction import Parameters, Transaction
from batchfleet.jobs.job import ClaimedJob, HandBack, JobFilter, JobLinks, Submitted, new_job_id
from batchfleet.jobs.sql.store import SqlStore
from batchfleet.jobs.sql.submit import submit
from batchfleet.jobs.states import JobState
from tests.support.stores import KINDS, SHARED_KINDS, TTL_S, Bench, new_job, open_bench, success

JOBS = 120
HANDS = 4
ROUNDS = 8
OWING = JobLinks(output_uri="s3://out/a", callback_url="https://example.com/")


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    with open_bench(request.param, tmp_path) as bench:
        yield bench


@pytest.fixture(params=SHARED_KINDS)
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    with open_bench(request.param, tmp_path) as bench:
        yield bench


T = TypeVar("T")


def together(work: Callable[[int], T], hands: int = HANDS) -> list[T]:
    """Runs work in threads that start at once."""
    gate = threading.Barrier(hands)

    def run(number: int) -> T:
        gate.wait(timeout=30)
        return work(number)

    with ThreadPoolExecutor(hands) as pool:
        return list(pool.map(run, range(hands)))


def test_threads_claim_disjoint_jobs(bench: Bench) -> None:
    """All are offered the same ids; each job goes to one of them, and none is left over."""
    ids = bench.submit(JOBS)
    boots = [bench.boot() for _ in range(HANDS)]

    claims = together(
        lambda n: [job.id for at in range(0, JOBS, 8) for job in bench.store.claim(boots[n], ids[at : at + 8])]
    )

    assert sorted(job_id for claimed in claims for job_id in claimed) == sorted(ids)


def test_threads_without_hints_claim_disjoint_jobs(bench: Bench) -> None:
    ids = bench.submit(JOBS)
    boots = [bench.boot() for _ in range(HANDS)]

    def drain(number: int) -> list[str]:
        mine: list[str] = []
        while claimed := bench.store.claim_ready(boots[number], [], 7):
            mine += [job.id for job in claimed]
        return mine

    claims = together(drain)
    claims.append([job.id for job in bench.store.claim_ready(boots[0], [], JOBS)])

    assert sorted(job_id for claimed in claims for job_id in claimed) == sorted(ids)


def test_one_key_from_many_threads_is_one_job(bench: Bench) -> None:
    answers = together(
        lambda n: bench.store.submit(
            [
                new_job(idempotency_key=key, fingerprint="f")
                # Each thread brings the keys in another order.
                for key in sorted("abcdef", key=lambda key: (ord(key) * (n + 3)) % 7)
            ]
        )
    )

    flat = [answer for some in answers for answer in some]
    assert len({answer.id for answer in flat}) == 6
    assert sum(answer.created for answer in flat) == 6
    assert len(bench.store.list_jobs(JobFilter())) == 6


def test_settle_and_cancel_at_once_agree(bench: Bench) -> None:
    """Whichever comes first wins each job; nobody wins it twice, and nothing deadlocks."""
    boot = bench.boot()
    claimed = bench.running(boot, JOBS)
    rows = [success(job) for job in claimed]

    def work(number: int) -> set[str]:
        if number % 2:
            return {job_id for job_id, _, changed in bench.store.cancel([row.id for row in reversed(rows)]) if changed}
        return {job_id for job_id, _ in bench.store.settle(boot, rows, b"").applied}

    settled, cancelled = together(work, 2)

    assert settled.isdisjoint(cancelled)
    assert settled | cancelled == {job.id for job in claimed}
    for job_id in settled:
        assert bench.record(job_id).state is JobState.SUCCEEDED


def test_rescue_and_settle_at_once_agree(bench: Bench) -> None:
    boot = bench.boot()
    claimed = bench.running(boot, JOBS)
    bench.advance(TTL_S + 1)

    def work(number: int) -> set[str]:
        if number:
            return set(bench.store.rescue(TTL_S, 1000).requeued)
        return {job_id for job_id, _ in bench.store.settle(boot, [success(job) for job in claimed], b"").applied}

    settled, rescued = together(work, 2)

    assert settled.isdisjoint(rescued)
    assert settled | rescued == {job.id for job in claimed}


def test_all_that_ends_and_removes_jobs_at_once(bench: Bench) -> None:
    """Nothing fails, nothing deadlocks, and each job that was ended, by whomever, owes each thing once."""
    boot = bench.boot()
    made = 0
    for number in range(ROUNDS):
        claimed = bench.running(boot, JOBS, links=OWING)
        made += len(claimed)
        together(partial(_end_and_remove, bench, boot, claimed, number), len(WAYS))

        left = [record.id for record in bench.store.look_up([job.id for job in claimed])]
        bench.store.cancel(left)
        bench.pay()
        assert len(bench.store.delete(left)) == len(left)
    owed = Counter((debt.job_id, debt.kind) for debt in bench.owed())

    assert set(owed.values()) == {1}
    assert len(owed) == 2 * made
    assert rows_left(bench) == 0


WAYS = ("settle", "settle", "cancel", "hand back", "delete", "delete", "purge jobs", "purge results")


def _end_and_remove(bench: Bench, boot: str, claimed: list[ClaimedJob], number: int, hand: int) -> None:
    """One thread's part: the same jobs as all others, in an order of its own."""
    mine = random.Random(number * len(WAYS) + hand).sample(claimed, len(claimed))
    for at in range(0, len(mine), JOBS // 4):
        some = mine[at : at + JOBS // 4]
        ids = [job.id for job in some]
        match WAYS[hand]:
            case "settle":
                states = itertools.cycle([JobState.SUCCEEDED, JobState.QUEUED, JobState.FAILED])
                rows = [success(job, state=next(states), length=1, blob_key=f"{job.id}/{job.epoch}") for job in some]
                bench.store.settle(boot, rows, b"x")
            case "cancel":
                bench.store.cancel(ids)
            case "hand back":
                bench.store.hand_back(boot, [HandBack(job.id, job.epoch) for job in some])
            case "delete":
                bench.store.delete(ids)
            case "purge jobs":
                bench.pay()  # what is owed keeps its job
                bench.store.purge_jobs(-60.0, JOBS // 8)
            case _:
                bench.store.purge_results(-60.0, JOBS // 8)


def rows_left(bench: Bench) -> int:
    """Counts what is stored beside jobs; all of it goes with them."""
    if bench.kind == "memory":
        return 0
    tables = ("jobs", "job_inputs", "job_links", "job_results", "idempotency_keys")
    counts = ", ".join(f"(SELECT COUNT(*) FROM {table})" for table in tables)  # noqa: S608 - names of ours
    database = open_database(bench.url)
    ((*found,),) = database.read(lambda tx: tx.rows(sql(f"SELECT {counts}"), {}))
    database.close()
    return sum(found)


class _Interrupted:
    """A transaction in which somebody else does something after the first change."""

    def __init__(self, tx: Transaction, other: Callable[[], object]) -> None:
        self._tx = tx
        self._other = iter([other])

    def change(self, statement: Sql, parameters: Parameters) -> int:
        changed = self._tx.change(statement, parameters)
        for other in self._other:
            other()
        return changed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)


def test_a_key_that_is_freed_meanwhile_is_taken_again(postgres: str) -> None:
    """A submit that finds its key taken, and then gone, must not go on without one. On SQLite nobody comes between."""
    database, store = open_database(postgres), SqlStore(postgres)
    first, second, third = (new_job(idempotency_key="k", fingerprint="f") for _ in range(3))
    store.submit([first])
    store.cancel([first.id])

    def work(tx: Transaction) -> list[Submitted]:
        return submit(_Interrupted(tx, lambda: store.delete([first.id])), [second])

    (answer,) = database.write(work)
    (repeated,) = store.submit([third])
    database.close()
    store.close()

    assert (answer.id, answer.created) == (second.id, True)
    assert (repeated.id, repeated.created) == (second.id, False)


def test_relays_announce_each_job_once(bench: Bench) -> None:
    ids = bench.submit(JOBS, announced_by_submitter=False)

    announced = together(lambda _: [job.id for _ in range(HANDS) for job in bench.store.announceable(JOBS)])

    assert sorted(job_id for some in announced for job_id in some) == sorted(ids)


def test_readers_do_not_wait_for_writers(shared: Bench) -> None:
    ids = shared.submit(10)
    boot = shared.boot()

    def work(number: int) -> int:
        if number:
            return sum(len(shared.store.look_up(ids, with_results=True)) for _ in range(20))
        for _ in range(20):
            claimed = shared.store.claim(boot, ids)
            shared.store.hand_back(boot, [HandBack(job.id, job.epoch) for job in claimed])
        return 0

    assert together(work) == [0, 200, 200, 200]


def _claim_all(url: str, ids: list[str], out: "SimpleQueue[list[str]]") -> None:
    store = SqlStore(url)
    boot = new_job_id()
    from batchfleet.jobs.job import WorkerLease, WorkerState

    store.register(WorkerLease(boot=boot, name="process", pid=1, state=WorkerState.READY))
    mine = [job.id for at in range(0, len(ids), 8) for job in store.claim(boot, ids[at : at + 8])]
    while claimed := store.claim_ready(boot, [], 5):
        mine += [job.id for job in claimed]
    store.close()
    out.put(mine)


def test_processes_claim_disjoint_jobs(shared: Bench) -> None:
    """They share nothing but the database, and on SQLite the lock beside it."""
    ids = [job_id for _ in range(3) for job_id in shared.submit(JOBS)]
    context = multiprocessing.get_context("spawn")
    out: SimpleQueue[list[str]] = context.SimpleQueue()
    processes = [context.Process(target=_claim_all, args=(shared.url, ids[:JOBS], out)) for _ in range(3)]

    for process in processes:
        process.start()
    claims = [out.get() for _ in processes]
    for process in processes:
        process.join(timeout=30)

    assert [process.exitcode for process in processes] == [0, 0, 0]
    taken = [job_id for claimed in claims for job_id in claimed]
    assert sorted(taken) == sorted(ids)


def _submit_in_child(store: SqlStore, out: "SimpleQueue[list[str]]") -> None:
    job = new_job()
    store.submit([job])
    out.put([job.id])
    store.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_store_survives_a_fork(shared: Bench) -> None:
    """A child that inherits an open store opens its own connections and lock, and leaves the parent's alone."""
    assert isinstance(shared.store, SqlStore)
    shared.submit(1)
    context = multiprocessing.get_context("fork")
    out: SimpleQueue[list[str]] = context.SimpleQueue()
    child = context.Process(target=_submit_in_child, args=(shared.store, out))

    child.start()
    (from_child,) = out.get()
    child.join(timeout=30)
    shared.submit(1)

    assert child.exitcode == 0
    assert shared.record(from_child).state is JobState.QUEUED
    assert len(shared.store.list_jobs(JobFilter())) == 3

"""The store under many hands: threads of a process, and processes of a machine."""

import multiprocessing
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import TypeVar

import pytest

from batchfleet.jobs.job import HandBack, JobFilter, new_job_id
from batchfleet.jobs.sql.store import SqlStore
from batchfleet.jobs.states import JobState
from tests.support.stores import KINDS, SHARED_KINDS, TTL_S, Bench, new_job, open_bench, success

JOBS = 120
HANDS = 4


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

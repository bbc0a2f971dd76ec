"""What a Postgres fleet meets every day: restarts, crashes, cut connections, none left. Nothing of ours is restarted.

The threads stand for services: what they are told is unavailable they repeat, as the services do.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any, Self, TypeVar

import psycopg
import pytest

from batchfleet.database.metadata import metadata
from batchfleet.database.opening import open_database
from batchfleet.database.statements import sql
from batchfleet.database.transaction import Transaction
from batchfleet.errors import StoreUnavailableError
from batchfleet.jobs.job import ClaimedJob, JobFilter, JobId, WorkerLease, WorkerState, new_job_id
from batchfleet.jobs.sql.store import SqlStore
from batchfleet.jobs.states import JobState
from tests.support.postgres import PostgresServer
from tests.support.stores import new_job, success
from tests.support.upstack import eventually

T = TypeVar("T")

PORTION = 20
WAIT_S = 60.0
SERVICES = 2
"""Submitters, and as many workers."""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    running = PostgresServer(max_connections=20, superuser_reserved_connections=0)
    running.start()
    yield running
    running.close()


@pytest.fixture
def own_postgres(server: PostgresServer) -> PostgresServer:
    """The module's server, emptied: one of each test's own would take a second each."""
    tables = ", ".join(table.name for table in metadata.sorted_tables)
    server.execute(f"TRUNCATE {tables}")
    return server


@pytest.fixture
def store(own_postgres: PostgresServer) -> Iterator[SqlStore]:
    opened = SqlStore(own_postgres.url)
    yield opened
    opened.close()


def patiently(call: Callable[[], T]) -> T:
    """Repeats a call while the database is away."""

    def look() -> T | None:
        try:
            return call()
        except StoreUnavailableError:
            return None

    return eventually(look, "the database is back", WAIT_S)


class Load:
    """Submitters and workers over one store, from many threads, until told to end."""

    def __init__(self, store: SqlStore) -> None:
        self.store = store
        self.outages = 0
        self.progress = threading.Semaphore(0)
        self._stopping = threading.Event()
        self._pool = ThreadPoolExecutor(2 * SERVICES)
        self._submitters: list[Future[list[JobId]]] = []
        self._workers: list[Future[list[JobId]]] = []

    def __enter__(self) -> Self:
        for _ in range(SERVICES):
            self._submitters.append(self._pool.submit(self._submit))
            self._workers.append(self._pool.submit(self._work))
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stopping.set()
        self._pool.shutdown()

    def advance(self, portions: int = 10) -> None:
        """Returns when the workers have settled so many more portions."""
        for _ in range(portions):
            assert self.progress.acquire(timeout=WAIT_S)

    def finish(self) -> tuple[list[JobId], list[JobId]]:
        """Lets everybody end; returns what was submitted and what was settled, with repetitions."""
        self._stopping.set()
        submitted = [job for future in self._submitters for job in future.result(WAIT_S)]
        settled = [job for future in self._workers for job in future.result(WAIT_S)]
        return submitted, settled

    def _patiently(self, call: Callable[[], T]) -> T:
        def look() -> T | None:
            try:
                return call()
            except StoreUnavailableError:
                self.outages += 1
                return None

        return eventually(look, "the database is back", WAIT_S)

    def _submit(self) -> list[JobId]:
        ids: list[JobId] = []
        while not self._stopping.is_set():
            jobs = [new_job() for _ in range(PORTION)]
            self._patiently(lambda jobs=jobs: self.store.submit(jobs))  # type: ignore[misc]
            ids += [job.id for job in jobs]
        return ids

    def _work(self) -> list[JobId]:
        boot, settled = new_job_id(), list[JobId]()
        lease = WorkerLease(boot=boot, name="w", pid=1, state=WorkerState.READY, models=())
        self._patiently(lambda: self._register(lease))
        while True:
            claimed = self._patiently(lambda: self.store.claim_ready(boot, [], PORTION))
            settled += self._settle(boot, claimed)
            if not claimed and self._stopping.is_set():
                return settled

    def _register(self, lease: WorkerLease) -> bool:
        self.store.register(lease)
        return True

    def _settle(self, boot: str, claimed: list[ClaimedJob]) -> list[JobId]:
        rows = [success(job) for job in claimed]
        outcome = self._patiently(lambda: self.store.settle(boot, rows, b""))
        self.progress.release()
        return [job for job, _ in outcome.applied]


@pytest.mark.parametrize("fault", ["restart", "crash", "cut"])
def test_a_store_under_load_survives(fault: str, own_postgres: PostgresServer, store: SqlStore) -> None:
    with Load(store) as load:
        for _ in range(3):
            load.advance()
            if fault == "restart":
                own_postgres.restart()
            elif fault == "crash":
                own_postgres.kill()
                own_postgres.start()
            else:
                assert own_postgres.cut_connections() > 0
        load.advance()
        submitted, settled = load.finish()

    assert load.outages > 0
    assert len(settled) == len(set(settled)), "a settle was applied twice"
    # An answer that was lost with its connection leaves a claim or a settle that its caller never heard of: the
    # first is the rescuer's, the second is done. Nothing else may be missing.
    states = own_postgres.execute("SELECT state, count(*) FROM jobs GROUP BY 1")
    assert sum(count for _, count in states) == len(submitted)
    assert {state for state, _ in states} <= {"succeeded", "running"}
    own_postgres.execute("DELETE FROM workers")
    lost = [job for (job,) in own_postgres.execute("SELECT id FROM jobs WHERE state = 'running'")]
    assert len(store.rescue(15.0, 10_000).requeued) == len(lost)
    assert own_postgres.execute("SELECT count(*) FROM job_results") == [(len(submitted) - len(lost),)]


def test_a_transaction_whose_connection_is_cut_leaves_nothing(own_postgres: PostgresServer) -> None:
    database = open_database(own_postgres.url)
    insert = sql("INSERT INTO duties (name, taken_at) VALUES (:name, 0)")

    def cut_in_the_middle(tx: Transaction) -> None:
        tx.change(insert, {"name": "first"})
        own_postgres.cut_connections()
        tx.change(insert, {"name": "second"})

    with pytest.raises(StoreUnavailableError, match="it is shutting down"):
        database.write(cut_in_the_middle)

    assert database.read(lambda tx: tx.rows(sql("SELECT * FROM duties"), {})) == []
    assert database.write(lambda tx: tx.change(insert, {"name": "third"})) == 1
    database.close()


def test_a_commit_whose_connection_is_cut_is_told_as_an_outage(own_postgres: PostgresServer) -> None:
    database = open_database(own_postgres.url)
    insert = sql("INSERT INTO duties (name, taken_at) VALUES ('first', 0)")

    def cut_at_the_end(tx: Transaction) -> None:
        tx.change(insert, {})
        own_postgres.cut_connections()

    with pytest.raises(StoreUnavailableError):
        database.write(cut_at_the_end)

    assert database.write(lambda tx: tx.change(insert, {})) == 1
    database.close()


def test_idle_connections_that_were_cut_are_replaced_unnoticed(own_postgres: PostgresServer, store: SqlStore) -> None:
    store.submit([new_job()])
    own_postgres.cut_connections()

    assert store.submit([new_job()])[0].created

    own_postgres.cut_connections()
    assert len(store.list_jobs(JobFilter())) == 2


def test_no_connections_left_is_an_outage_that_ends(own_postgres: PostgresServer, store: SqlStore) -> None:
    with ExitStack() as hogs:
        for connection in connect_all(own_postgres):
            hogs.enter_context(connection)
        with pytest.raises(StoreUnavailableError, match="no connection left"):
            store.submit([new_job()])
        with pytest.raises(StoreUnavailableError, match="no connection left"):
            store.ping()

    assert patiently(lambda: store.submit([new_job()]))[0].state is JobState.QUEUED


def connect_all(server: PostgresServer) -> "Iterator[psycopg.Connection[Any]]":
    """Yields connections until there are no more."""
    with suppress(psycopg.OperationalError):
        while True:
            yield server.connect()


def test_a_transaction_that_hangs_is_ended_and_frees_its_rows(own_postgres: PostgresServer, store: SqlStore) -> None:
    """Its process was stopped, say, in the middle: others may have its rows after a while (here half a second)."""
    job = store.submit([new_job()])[0].id
    boot = new_job_id()
    store.register(WorkerLease(boot=boot, name="w", pid=1, state=WorkerState.READY, models=()))
    with suppress(psycopg.Error), own_postgres.connect() as hung:
        hung.execute("SET idle_in_transaction_session_timeout = '500ms'")
        hung.execute("BEGIN")
        hung.execute("UPDATE jobs SET announce_count = 5")

        # SKIP LOCKED: it takes what is free, and waits for nobody.
        claimed = eventually(lambda: store.claim(boot, [job]) or None, "the row is free", WAIT_S)

    assert [found.id for found in claimed] == [job]


def test_a_process_that_was_stopped_in_a_transaction_is_told_of_an_outage(own_postgres: PostgresServer) -> None:
    database = open_database(f"{own_postgres.url}?options=-c%20idle_in_transaction_session_timeout=1")
    gone = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'"

    def sleep_in_the_middle(tx: Transaction) -> int:
        eventually(lambda: own_postgres.execute(gone) == [(0,)] or None, "the server has had enough", WAIT_S)
        return tx.change(sql("DELETE FROM duties"), {})

    with pytest.raises(StoreUnavailableError, match="stood still for too long"):
        database.write(sleep_in_the_middle)
    database.close()


def test_a_replica_is_left_at_once(own_postgres: PostgresServer, store: SqlStore) -> None:
    """After a failover the old connections lead to a server that takes no writes."""
    store.submit([new_job()])
    own_postgres.execute("ALTER DATABASE fleet SET default_transaction_read_only = on")
    own_postgres.cut_connections()
    with pytest.raises(StoreUnavailableError, match="takes no writes"):
        store.submit([new_job()])

    with own_postgres.connect() as primary:
        primary.execute("SET default_transaction_read_only = off")
        primary.execute("ALTER DATABASE fleet RESET default_transaction_read_only")

    assert store.submit([new_job()])[0].created

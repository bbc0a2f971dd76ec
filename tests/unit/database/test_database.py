"""Transactions: all or nothing, and one kind of error when the database is away."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from batchfleet.clock import ManualClock
from batchfleet.database.opening import open_database
from batchfleet.database.sqlite import SqliteDatabase, database_file, lock_file
from batchfleet.database.statements import sql
from batchfleet.database.transaction import Transaction
from batchfleet.errors import StoreUnavailableError
from batchfleet.jobs.job import JobFilter, Settlement, WorkerLease, WorkerState
from batchfleet.jobs.sql.flows import MAX_FLOWS
from batchfleet.jobs.sql.store import SqlStore
from batchfleet.jobs.states import JobState
from tests.support.stores import new_job, open_bench, sqlite_url


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "mysql://localhost/x"])
def test_other_databases_are_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        open_database(url)


def test_a_password_is_not_shown() -> None:
    with pytest.raises(ValueError, match="not a") as refusal:
        open_database("mysql://user:secret@localhost/x")

    assert "secret" not in str(refusal.value)


def test_nothing_is_opened_before_the_first_use(tmp_path: Path) -> None:
    SqlStore(f"sqlite:///{tmp_path}/store.db").close()

    # Closing takes the lock, and makes its file; the database is never touched.
    assert not (tmp_path / "store.db").exists()


def test_work_that_fails_leaves_nothing(tmp_path: Path) -> None:
    database = open_database(sqlite_url(tmp_path))
    insert = sql("INSERT INTO workers VALUES ('b', 'n', 1, 'ready', '[]', 0, 0)")

    def work(tx: Transaction) -> None:
        tx.change(insert, {})
        raise RuntimeError("after the insert")

    with pytest.raises(RuntimeError, match="after the insert"):
        database.write(work)

    assert database.read(lambda tx: tx.rows(sql("SELECT * FROM workers"), {})) == []
    assert database.write(lambda tx: tx.change(insert, {})) == 1
    database.close()


def test_a_write_has_one_time_throughout(tmp_path: Path) -> None:
    clock = ManualClock(5.0)
    database = open_database(sqlite_url(tmp_path), clock)

    def work(tx: Transaction) -> tuple[float, float]:
        first = tx.now
        clock.advance(1.0)
        return first, tx.now

    assert database.write(work) == (5.0, 5.0)
    database.close()


def test_only_claims_do_not_wait_for_the_disk(tmp_path: Path) -> None:
    """0 is off, 1 writes without waiting, 2 waits for the disk: what was answered must survive a power cut."""
    levels: list[int] = []

    def recorded(database: SqliteDatabase) -> SqliteDatabase:
        write = database.write

        def noting(work: Any, *, durable: bool = True) -> Any:
            def and_note(tx: Transaction) -> Any:
                levels.append(database._writer.execute("PRAGMA synchronous").fetchone()[0])  # type: ignore[union-attr]
                return work(tx)

            return write(and_note, durable=durable)

        database.write = noting  # type: ignore[method-assign]
        return database

    store = SqlStore(sqlite_url(tmp_path))
    assert isinstance(store._database, SqliteDatabase)
    recorded(store._database)
    job = new_job()
    store.register(WorkerLease(boot="b" * 32, name="w", pid=1, state=WorkerState.READY))
    store.submit([job])
    (claimed,) = store.claim("b" * 32, [job.id])
    store.settle("b" * 32, [Settlement(id=job.id, epoch=claimed.epoch, state=JobState.SUCCEEDED, format="npy")], b"")

    assert levels == [2, 2, 1, 2]
    store.close()


def test_a_database_without_tables_says_what_to_do(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/empty.db")

    with pytest.raises(StoreUnavailableError, match="batchfleet db upgrade"):
        store.submit([new_job()])
    with pytest.raises(StoreUnavailableError, match="batchfleet db upgrade"):
        store.list_jobs(JobFilter())
    store.close()


def test_a_folder_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/missing/store.db")

    with pytest.raises(StoreUnavailableError):
        store.ping()
    with pytest.raises(StoreUnavailableError):
        store.submit([new_job()])


def test_a_file_that_is_no_database_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_bytes(b"this is no database" * 1000)
    store = SqlStore(f"sqlite:///{tmp_path}/store.db")

    with pytest.raises(StoreUnavailableError):
        store.submit([new_job()])
    store.close()


def test_it_comes_back_when_the_database_does(tmp_path: Path) -> None:
    """A store that met an outage is good again afterwards, with nothing of the failed call applied."""
    url = sqlite_url(tmp_path)
    store = SqlStore(url)
    stranger = sqlite3.connect(database_file(url))
    stranger.execute("ALTER TABLE job_inputs RENAME TO away")

    with pytest.raises(StoreUnavailableError):
        store.submit([new_job()])
    stranger.execute("ALTER TABLE away RENAME TO job_inputs")
    stranger.close()

    store.submit([new_job()])
    assert len(store.list_jobs(JobFilter())) == 1
    store.close()


def test_postgres_that_is_not_there_is_unavailable() -> None:
    store = SqlStore("postgresql+psycopg://nobody@127.0.0.1:1/none")

    with pytest.raises(StoreUnavailableError):
        store.submit([new_job()])
    with pytest.raises(StoreUnavailableError):
        store.ping()
    store.close()


def test_the_lock_lies_beside_the_file() -> None:
    assert lock_file(database_file("sqlite:////data/jobs.db")) == Path("/data/jobs.db.lock")


def test_more_flows_than_one_choice_looks_at(tmp_path: Path) -> None:
    """The oldest of the whole queue join the choice, so that flows past the bound come in by age."""
    with open_bench("sqlite", tmp_path) as bench:
        old = new_job(tenant="zzz", announced_by_submitter=False)
        bench.store.submit([old])
        bench.advance(5.0)
        bench.store.submit(
            [new_job(tenant=f"t{number:04}", announced_by_submitter=False) for number in range(MAX_FLOWS + 50)]
        )

        claimed = bench.store.claim_ready(bench.boot(), [], 2000)

        assert old.id in [job.id for job in claimed]
        assert len(claimed) >= MAX_FLOWS

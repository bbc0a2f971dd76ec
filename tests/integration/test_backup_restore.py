"""A backup beside running writers is of one moment, and what a restore to it means is what the how-to says."""

import contextlib
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from batchfleet.database.opening import open_database
from batchfleet.jobs.job import JobId, JobLinks, WorkerLease, WorkerState, new_job_id
from batchfleet.jobs.sql.store import SqlStore
from batchfleet.jobs.states import JobState
from batchfleet.results.local_blobs import LocalBlobs
from migrations import upgrade
from tests.support.docpages import ROOT, blocks_of
from tests.support.postgres import PostgresServer, _binaries
from tests.support.stores import new_job, sqlite_url, stored_debts, success

TTL_S = 15.0
LINKS = JobLinks(callback_url="https://receiver.example/hook")


PAGE = "docs/how-to/operate.md"


@dataclass(frozen=True)
class Fleet:
    """A database and blobs, and the how-to's own commands for them.

    Attributes:
        back_up: Makes one more backup.
        restore: Restores the newest backup.
        rows: What a statement finds.
    """

    url: str
    folder: Path
    back_up: Callable[[], None]
    restore: Callable[[], None]
    rows: Callable[[str], list[Any]]

    def age(self) -> None:
        """Makes every lease of the database old."""
        self.rows("UPDATE workers SET seen_at = seen_at - 100")

    @property
    def blobs(self) -> LocalBlobs:
        """Where large results lie."""
        return LocalBlobs(self.folder / "blobs")


def recipe(heading: str, command: str) -> str:
    """Returns the block of the page's section that has the command."""
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## )", (ROOT / PAGE).read_text(), re.MULTILINE | re.DOTALL)
    (found,) = [block.text for block in blocks_of(PAGE, section) if command in block.text]
    return str(found)


def run_recipe(text: str, folder: Path, url: str, programs: Path) -> None:
    """Runs a block of the page with `/srv/batchfleet` here, as the reader's shell would."""
    environment = {
        "PATH": os.pathsep.join((str(programs), str(Path(sys.executable).parent), os.environ["PATH"])),
        "BATCHFLEET_DATABASE_URL": url,
        "BATCHFLEET_BLOB_URL": f"file://{folder}/blobs",
        "BATCHFLEET_SECRETS_DIR": str(folder),
    }
    script = "set -e\n" + text.replace("/srv/batchfleet", str(folder))
    ended = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def fleet_of(kind: str, folder: Path, url: str, rows: Callable[[str], list[Any]]) -> Fleet:
    for name in ("backups", "blobs"):
        (folder / name).mkdir()
    programs = _binaries()
    back_up = recipe(f"Back up {kind}", "deploy/back-up")
    restore = recipe(f"Restore {kind}", "backup=")
    return Fleet(
        url,
        folder,
        lambda: run_recipe(back_up, folder, url, programs),
        lambda: run_recipe(restore, folder, url, programs),
        rows,
    )


def sqlite_fleet(folder: Path) -> Fleet:
    def rows(statement: str) -> list[Any]:
        with contextlib.closing(sqlite3.connect(folder / "batchfleet.db")) as connection, connection:
            return connection.execute(statement).fetchall()

    return fleet_of("SQLite", folder, sqlite_url(folder, "batchfleet.db"), rows)


@pytest.fixture(params=["sqlite", "postgres"])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Fleet:
    if request.param == "sqlite":
        return sqlite_fleet(tmp_path)
    server: PostgresServer = request.getfixturevalue("own_postgres")
    return fleet_of("Postgres", tmp_path, server.url, server.execute)


@pytest.fixture
def stores(fleet: Fleet) -> Iterator[Callable[[], SqlStore]]:
    """Opens stores, as the processes of before and after the restore have each their own."""
    with contextlib.ExitStack() as stack:

        def opened() -> SqlStore:
            store = SqlStore(fleet.url)
            stack.callback(store.close)
            return store

        yield opened


def test_a_backup_beside_writers_holds_whole_jobs_and_the_first_of_them(
    fleet: Fleet, stores: Callable[[], SqlStore]
) -> None:
    writer, submitted, some, stop = stores(), list[JobId](), threading.Event(), threading.Event()

    def submit() -> None:
        while not stop.is_set():
            jobs = [new_job() for _ in range(5)]
            writer.submit(jobs)
            submitted.extend(job.id for job in jobs)
            if len(submitted) >= 50:
                some.set()

    thread = threading.Thread(target=submit)
    thread.start()
    assert some.wait(30)
    known_before = len(submitted)
    fleet.back_up()
    stop.set()
    thread.join()
    writer.close()

    fleet.restore()
    upgrade(fleet.url)

    kept = {record.id for record in stores().look_up(submitted)}
    assert kept == set(submitted[: len(kept)])
    assert len(kept) >= known_before
    assert len(kept) % 5 == 0
    (counts,) = fleet.rows("SELECT (SELECT count(*) FROM jobs), (SELECT count(*) FROM job_inputs)")
    assert tuple(counts) == (len(kept), len(kept))


def test_what_a_restore_to_an_older_moment_means(fleet: Fleet, stores: Callable[[], SqlStore]) -> None:
    store, worker = stores(), new_job_id()
    store.register(WorkerLease(boot=worker, name="w", pid=1, state=WorkerState.READY))
    done, running, queued = (new_job(links=LINKS) for _ in range(3))
    keyed = new_job(idempotency_key="before", fingerprint="a")
    store.submit([done, running, queued, keyed])
    claimed = {claim.id: claim for claim in store.claim(worker, [done.id, running.id])}
    store.settle(worker, [success(claimed[done.id], length=2)], b"42")

    fleet.back_up()
    store.settle(worker, [success(claimed[running.id])], b"")
    (late,) = store.claim(worker, [queued.id])
    store.settle(worker, [success(late)], b"")
    lost = new_job(idempotency_key="after", fingerprint="b")
    store.submit([lost])
    store.close()
    fleet.restore()
    upgrade(fleet.url)
    restored = stores()

    # Jobs submitted since are gone; the others are as they were.
    found = {
        record.id: record for record in restored.look_up([done.id, running.id, queued.id, lost.id], with_results=True)
    }
    assert {record.id: record.state for record in found.values()} == {
        done.id: JobState.SUCCEEDED,
        running.id: JobState.RUNNING,
        queued.id: JobState.QUEUED,
    }
    # A key of before gets the first job; one of after makes a new one.
    again, anew = restored.submit(
        [
            new_job(idempotency_key="before", fingerprint="a"),
            new_job(idempotency_key="after", fingerprint="b"),
        ]
    )
    assert (again.created, again.id) == (False, keyed.id)
    assert anew.created
    # What was claimed since the backup, by a worker that should have been stopped, changes nothing.
    assert restored.settle(worker, [success(late)], b"").stale == (late.id,)
    # A job that was running is rescued when its lease is over, at one crash at most.
    fleet.age()
    assert restored.rescue(TTL_S, 10).requeued == (running.id,)
    # What was owed is owed still, once; what had been made since is owed again when the job has ended again.
    assert owed(fleet) == [done.id]
    finish(restored, [running.id, queued.id])
    assert sorted(owed(fleet)) == sorted([done.id, running.id, queued.id])


def test_a_second_backup_has_the_large_results_of_since_and_restores_into_an_empty_place(
    fleet: Fleet, stores: Callable[[], SqlStore]
) -> None:
    first = end_with_a_blob(fleet, stores(), b"first")
    fleet.back_up()
    second = end_with_a_blob(fleet, stores(), b"second")
    fleet.back_up()
    shutil.rmtree(fleet.folder / "blobs")
    for left in fleet.folder.glob("batchfleet.db*"):
        left.unlink()
    if fleet.url.startswith("postgresql"):
        fleet.rows("DROP SCHEMA public CASCADE")
        fleet.rows("CREATE SCHEMA public")

    fleet.restore()

    restored = {record.id: record for record in stores().look_up([first, second], with_results=True)}
    for job, data in ((first, b"first"), (second, b"second")):
        assert restored[job].state is JobState.SUCCEEDED
        result = restored[job].result
        assert result is not None
        assert result.blob_key is not None
        assert fleet.blobs.get(result.blob_key) == data
    # The first backup is still there, and has what it had.
    older, newer = sorted((fleet.folder / "backups").iterdir())
    assert len([path for path in (older / "blobs").rglob("*") if path.is_file()]) == 1
    assert len([path for path in (newer / "blobs").rglob("*") if path.is_file()]) == 2


def test_a_restore_puts_aside_what_was_there_each_time(tmp_path: Path) -> None:
    """The files of two databases in one folder would make a third, of nobody's."""
    fleet = sqlite_fleet(tmp_path)
    fleet.back_up()
    for _ in range(2):
        (fleet.folder / "batchfleet.db-wal").write_bytes(b"of another")
        fleet.restore()

    aside = sorted(fleet.folder.glob("replaced.*/batchfleet.db-wal"))
    assert [path.read_bytes() for path in aside] == [b"of another"] * 2
    assert fleet.rows("PRAGMA integrity_check") == [("ok",)]


def test_a_backup_that_failed_is_not_the_newest(tmp_path: Path) -> None:
    fleet = sqlite_fleet(tmp_path)
    fleet.back_up()
    (fleet.folder / "batchfleet.db").rename(fleet.folder / "elsewhere")

    with pytest.raises(AssertionError, match="unable to open"):
        fleet.back_up()

    assert sorted(path.suffix == ".part" for path in (fleet.folder / "backups").iterdir()) == [False, True]
    fleet.restore()


def end_with_a_blob(fleet: Fleet, store: SqlStore, data: bytes) -> JobId:
    """Runs a job whose result is in the blob store."""
    boot, job = new_job_id(), new_job()
    store.register(WorkerLease(boot=boot, name="w", pid=1, state=WorkerState.READY))
    store.submit([job])
    (claim,) = store.claim(boot, [job.id])
    key = f"{job.id}/{claim.epoch}"
    fleet.blobs.put(key, data)
    store.settle(boot, [success(claim, blob_key=key)], b"")
    store.close()
    return job.id


def finish(store: SqlStore, ids: list[JobId]) -> None:
    boot = new_job_id()
    store.register(WorkerLease(boot=boot, name="next", pid=2, state=WorkerState.READY))
    store.settle(boot, [success(claim) for claim in store.claim(boot, ids)], b"")


def owed(fleet: Fleet) -> list[JobId]:
    database = open_database(fleet.url)
    try:
        return [debt.job_id for debt in stored_debts(database)]
    finally:
        database.close()

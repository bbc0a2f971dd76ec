"""Statements reach their rows by an index on Postgres too, whatever is stored beside them.

What the planner may do is told to it per session, so that only the plan of a store's own session says anything. For
SQLite see `tests/unit/jobs/test_query_plans.py`.
"""

import re
from collections.abc import Iterator

import pytest

from batchfleet.database.opening import open_database
from batchfleet.database.statements import Sql, sql
from batchfleet.database.transaction import Database, Transaction
from batchfleet.jobs.job import JobLinks, WorkerLease, WorkerState, new_job_id
from batchfleet.jobs.sql import row_locks, settle
from batchfleet.jobs.sql.store import SqlStore
from tests.support.postgres import empty_database, session_connection
from tests.support.stores import new_job, success
from tests.unit.jobs.test_query_plans import BY_ID, BY_INDEX

JOBS = 4_000
BOOT = "boot"
LINKS = JobLinks(output_uri="s3://out/a", callback_url="https://example.com/")


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    """A database in which every index has many entries, and whose planner knows it."""
    url = empty_database()
    _fill(url)
    session_connection().execute("ANALYZE")
    database = open_database(url)
    yield database
    database.close()


def _fill(url: str) -> None:
    store = SqlStore(url)
    store.register(WorkerLease(boot=BOOT, name="worker", pid=1, state=WorkerState.READY))
    queued = [new_job(ttl_s=1e6, model=f"m{at % 5}", idempotency_key=str(at)) for at in range(JOBS)]
    others = [new_job(ttl_s=1e6, links=LINKS) for at in range(3 * JOBS // 4)]
    store.submit(queued + others)
    claimed = store.claim(BOOT, [job.id for job in others])
    store.settle(BOOT, [success(job, length=1) for job in claimed[::4]], b"x")
    store.cancel([job.id for job in claimed[1::4]])
    store.close()


def plan(database: Database, statement: Sql) -> list[str]:
    """Returns the nodes of the plan that a store's session makes of a statement."""
    names = dict.fromkeys(re.findall(r"(?<![:\w]):(\w+)", statement.sqlite))
    texts: dict[str, object] = {
        "boot": BOOT,
        "tenant": None,
        "pending": "pending",
        "output": "output",
        "block": b"",
        "rows": "[]",
    }
    explained = Sql("", "EXPLAIN (COSTS OFF) " + statement.postgresql)

    def ask(tx: Transaction) -> list[str]:
        texts.update({"ids": tx.ids([new_job_id(), new_job_id()]), "id": new_job_id()})
        return [row[0] for row in tx.rows(explained, {name: texts.get(name, 1) for name in names})]

    return database.read(ask)


@pytest.mark.parametrize("name", BY_ID)
def test_rows_named_by_id_are_reached_by_id(database: Database, name: str) -> None:
    steps = plan(database, BY_ID[name])

    reached = [step for step in steps if re.search(r" (on|using) .*(jobs|job_|outbox)", step) and "Scan" in step]
    assert reached
    assert all("_pkey" in step for step in reached), steps
    assert any("Index Cond: (id = " in step or ".id = " in step for step in steps), steps


@pytest.mark.parametrize("name", BY_INDEX)
def test_searches_are_served_by_their_index(database: Database, name: str) -> None:
    statement, index = BY_INDEX[name]

    steps = plan(database, statement)

    assert any(index in step for step in steps), steps
    assert not any("Seq Scan on job" in step for step in steps), steps


@pytest.mark.parametrize("statement", [settle._END, settle._RETRY, settle._HAND_BACK], ids=["end", "retry", "back"])
def test_rows_are_locked_in_the_order_in_which_they_come(database: Database, statement: Sql) -> None:
    """They come sorted by id: two that change the same jobs never wait for each other."""
    steps = plan(database, statement)

    outer, inner = (step.strip() for step in steps if "Scan" in step)
    assert outer.endswith("Function Scan on jsonb_array_elements e"), steps
    assert inner.endswith("Index Scan using jobs_pkey on jobs"), steps


def test_rows_locked_by_id_come_in_its_order(database: Database) -> None:
    """By a sort, or because the index is walked in its order."""
    lock, below, *_ = (step.strip(" ->") for step in plan(database, row_locks._LOCK))

    assert lock == "LockRows"
    assert below in {"Sort", "Index Scan using jobs_pkey on jobs"}


def test_explaining_changes_nothing(database: Database) -> None:
    counted = sql("SELECT state, COUNT(*) FROM jobs GROUP BY state ORDER BY state")

    counts = database.read(lambda tx: tx.rows(counted, {}))

    assert counts == [("cancelled", 750), ("queued", 4000), ("running", 1500), ("succeeded", 750)]

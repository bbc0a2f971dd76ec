"""Hot statements reach their rows by id, whatever the planner believes of the table's size."""

import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import dialect as sqlite_dialect

from batchfleet.database.sqlite import database_file
from batchfleet.database.statements import Dialect, Sql
from batchfleet.jobs.job import JobFilter, new_job_id
from batchfleet.jobs.sql import (
    cancel,
    claim,
    debts,
    due,
    flows,
    links,
    lookup,
    relay,
    rescue,
    retention,
    row_locks,
    settle,
    submit,
)
from batchfleet.jobs.states import JobState
from batchfleet.outbox import sql as deliveries
from batchfleet.outbox.delivery import DeliveryFilter, DeliveryState
from tests.support.stores import sqlite_url

BY_ID = {
    "claim": claim._CLAIM,
    "inputs": claim._INPUTS,
    "look up": lookup._LOOK_UP,
    "look up with results": lookup._LOOK_UP_RESULTS,
    "lock": row_locks._LOCK,
    "existing": submit._EXISTING,
    "settle": settle._END,
    "retry": settle._RETRY,
    "hand back": settle._HAND_BACK,
    "cancel": cancel._CANCEL,
    "states": cancel._STATES,
    "announce": relay._MOVE_ON,
    "rescue": rescue._WRITE,
    "debts": debts._OWE,
    "links": links._LINKS,
    "delete": retention._DELETE_JOBS,
    "delete inputs": retention._DELETE_INPUTS,
    "delete links": retention._DELETE_LINKS,
    "delete results": retention._DELETE_RESULTS,
    "forget results": retention._FORGET_RESULTS,
    "named blobs": retention._NAMED,
    "begin a delivery": deliveries._BEGIN,
    "finish a delivery": deliveries._FINISH,
    "replay a delivery": deliveries._REPLAY,
}
BY_INDEX = {
    "due": (due._DUE, "jobs_queued_by_announce_at"),
    "due to expire": (due._DUE, "jobs_queued_by_expires_at"),
    "due to rescue": (due._DUE, "jobs_running_by_owner"),
    "expired": (relay._EXPIRE, "jobs_queued_by_expires_at"),
    "owners": (rescue._OWNERS, "jobs_running_by_owner"),
    "running": (rescue._RUNNING, "jobs_running_by_owner"),
    "revoked": (cancel._REVOKED, "jobs_cancelled_by_owner"),
    "models": (flows._MODELS, "jobs_queued_by_flow"),
    "flows": (flows._FLOWS, "jobs_queued_by_flow"),
    "heads": (flows._READY_HEADS, "jobs_queued_by_flow"),
    "due heads": (flows._DUE_HEADS, "jobs_queued_by_flow"),
    "oldest": (flows._OLDEST, "jobs_queued_by_announce_at"),
    "ended": (retention._ENDED, "jobs_ended_by_finished_at"),
    "old results": (retention._OLD_RESULTS, "job_results_by_stored_at"),
    "still owed": (retention._OLD_RESULTS, "outbox_once"),
    "keys": (retention._DELETE_KEYS, "idempotency_keys_by_job"),
    "owed": (retention._OWED, "outbox_once"),
    "due deliveries": (deliveries._TAKE_DUE, "outbox_pending_by_due_at"),
    "old deliveries": (deliveries._PURGE, "outbox_finished_by_finished_at"),
}
_AFTER = new_job_id()
LISTINGS: dict[str, tuple[JobFilter | DeliveryFilter, str]] = {
    "jobs": (JobFilter(tenant="a"), "jobs_by_tenant"),
    "next jobs": (JobFilter(tenant="a", after=_AFTER), "jobs_by_tenant"),
    "some jobs": (JobFilter(tenant="a", model="m", states=frozenset({JobState.QUEUED})), "jobs_by_tenant"),
    "dead letters": (JobFilter(tenant="a", dead_letters=True, after=_AFTER), "jobs_failed_by_tenant"),
    "deliveries": (DeliveryFilter(tenant="a"), "outbox_by_tenant"),
    "next deliveries": (DeliveryFilter(tenant="a", after=_AFTER), "outbox_by_tenant"),
    "some deliveries": (DeliveryFilter(tenant="a", states=frozenset({DeliveryState.FAILED})), "outbox_by_tenant"),
    "a job's deliveries": (DeliveryFilter(job_id=_AFTER), "outbox_once"),
    "a tenant's job's deliveries": (DeliveryFilter(tenant="a", job_id=_AFTER, after=_AFTER), "outbox_once"),
}
"""What a page is asked of, and the index that leads to it, and to no row of other tenants or jobs."""


def listing(wanted: JobFilter | DeliveryFilter, dialect: Dialect) -> sa.Select[Any]:
    """Returns the query for a page."""
    if isinstance(wanted, JobFilter):
        return lookup.listing(wanted, dialect)
    return deliveries.listing(wanted)


MANY = re.compile(r"(SEARCH|SCAN) (?!json_each|CONSTANT ROW|\(subquery|hop|owners|oldest|turns|s$|w |workers|[ejrt]$)")
REACHED_BY_ID = re.compile(r"USING (PRIMARY KEY|(COVERING )?INDEX sqlite_autoindex_\w+_1) \(id=\?\)")


def plan(statement: Sql, folder: Path) -> list[str]:
    """Returns how SQLite reaches rows that are many."""
    names = dict.fromkeys(re.findall(r":(\w+)", statement.sqlite))
    parameters = {name: "[]" if name in {"ids", "rows"} else 0 for name in names}
    connection = sqlite3.connect(database_file(sqlite_url(folder)))
    steps = [row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + statement.sqlite, parameters)]
    connection.close()
    # Rows of the parameter and of common table expressions are small.
    return [step for step in steps if MANY.match(step)]


@pytest.mark.parametrize("name", BY_ID)
def test_rows_named_by_id_are_reached_by_id(name: str, tmp_path: Path) -> None:
    """Once a planner walked all that a boot owns for each row of a settle: 4 ms a row."""
    steps = plan(BY_ID[name], tmp_path)

    assert steps
    assert all(REACHED_BY_ID.search(step) for step in steps), steps


@pytest.mark.parametrize("name", BY_INDEX)
def test_searches_are_served_by_their_index(name: str, tmp_path: Path) -> None:
    statement, index = BY_INDEX[name]

    steps = plan(statement, tmp_path)

    assert any(index in step for step in steps), steps
    assert not any(step.startswith("SCAN") for step in steps), steps


@pytest.mark.parametrize("name", LISTINGS)
def test_a_page_is_read_from_its_index(name: str, tmp_path: Path) -> None:
    """In order: only the few of one job are sorted."""
    wanted, index = LISTINGS[name]
    dialect = sqlite_dialect(paramstyle="named")
    query = listing(wanted, "sqlite").compile(dialect=dialect, compile_kwargs={"render_postcompile": True})
    connection = sqlite3.connect(database_file(sqlite_url(tmp_path)))

    steps = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}", query.params)]

    connection.close()
    assert any(index in step and step.startswith("SEARCH") for step in steps), steps
    assert not any(step.startswith("SCAN") for step in steps), steps
    assert any("TEMP B-TREE" in step for step in steps) == (index == "outbox_once"), steps

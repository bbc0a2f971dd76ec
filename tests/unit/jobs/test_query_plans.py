"""Hot statements reach their rows by id, whatever the planner believes of the table's size."""

import re
import sqlite3
from pathlib import Path

import pytest

from batchfleet.database.sqlite import database_file
from batchfleet.database.statements import Sql
from batchfleet.jobs.sql import cancel, claim, debts, due, flows, links, relay, rescue, retention, settle
from tests.support.stores import sqlite_url

BY_ID = {
    "claim": claim._CLAIM,
    "settle": settle._END,
    "retry": settle._RETRY,
    "hand back": settle._HAND_BACK,
    "cancel": cancel._CANCEL,
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
}


MANY = re.compile(r"(SEARCH|SCAN) (?!json_each|CONSTANT ROW|hop|owners|s$|w |workers|[ejrt]$)")
REACHED_BY_ID = re.compile(r"USING (PRIMARY KEY|(COVERING )?INDEX sqlite_autoindex_\w+_1) \(id=\?\)")


def plan(statement: Sql, folder: Path) -> list[str]:
    """Returns how SQLite reaches rows that are many."""
    names = dict.fromkeys(re.findall(r":(\w+)", statement.sqlite))
    parameters = {name: "[]" if name in {"ids", "rows"} else 0 for name in names}
    connection = sqlite3.connect(database_file(sqlite_url(folder)))
    steps = [row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + statement.sqlite, parameters)]
    connection.close()
    # Rows of the parameter and of common table expressions are small.
    return [
        step
        for step in steps
        if re.match(r"(SEARCH|SCAN) (?!json_each|CONSTANT ROW|hop|owners|s$|w |workers|[ejrt]$)", step)
    ]


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

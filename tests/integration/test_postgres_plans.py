"""On Postgres, too, hot statements reach their rows by id or by their index, with the plan that serves all calls.

Tables without statistics are what a planner meets in a fleet that has just been busy: it takes them for small.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from psycopg import sql

from batchfleet.database.metadata import metadata
from batchfleet.database.opening import open_database
from batchfleet.database.postgres import PostgresDatabase
from batchfleet.database.statements import Sql
from tests.unit.jobs.test_query_plans import BY_ID, BY_INDEX

PARAMETER = re.compile(r"%\((\w+)\)[sb]")
LARGE = {"jobs", "job_inputs", "job_results", "job_links", "outbox", "idempotency_keys"}
OF_IDS = {"jobs", "job_inputs", "job_results", "job_links"}
"""Tables whose primary key is the job's id."""


@pytest.fixture
def database(postgres: str) -> Iterator[PostgresDatabase]:
    opened = open_database(postgres)
    assert isinstance(opened, PostgresDatabase)
    yield opened
    opened.close()


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the steps of a plan."""
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)


def scans(database: PostgresDatabase, statement: Sql) -> list[dict[str, Any]]:
    """Returns how the rows of large tables are reached, by the plan that is made once and kept."""
    names = list(dict.fromkeys(PARAMETER.findall(statement.postgresql)))
    text = PARAMETER.sub(lambda match: f"${names.index(match[1]) + 1}", statement.postgresql).replace("%%", "%")
    values = sql.SQL(", ").join([sql.NULL] * len(names))
    with database._begun() as (connection, _):
        types = ", ".join("float8" if name == "now" else "unknown" for name in names)
        connection.execute(f"PREPARE hot {f'({types})' if names else ''} AS {text}".encode())
        call = sql.SQL("EXECUTE hot ({})" if names else "EXECUTE hot").format(values)
        (row,) = connection.execute(sql.SQL("EXPLAIN (FORMAT JSON) {}").format(call)).fetchall()
        connection.execute("DEALLOCATE hot")
        (kept,) = connection.execute("SHOW plan_cache_mode").fetchall()
    assert kept == ("force_generic_plan",)
    steps = [step for step in nodes(row[0][0]["Plan"]) if "Scan" in step["Node Type"]]
    # An index's own half of a bitmap scan does not name its table.
    table_of = {str(index.name): table.name for table in metadata.sorted_tables for index in table.indexes}
    table_of |= {f"{table.name}_pkey": table.name for table in metadata.sorted_tables}
    known = [
        step | {"Relation Name": step.get("Relation Name", table_of.get(step.get("Index Name", "")))} for step in steps
    ]
    return [step for step in known if step["Relation Name"] in LARGE]


@pytest.mark.parametrize("name", BY_ID)
def test_rows_named_by_id_are_reached_by_id(name: str, database: PostgresDatabase) -> None:
    found = [step for step in scans(database, BY_ID[name]) if step["Relation Name"] in OF_IDS]

    assert found
    assert not any(step["Node Type"] == "Seq Scan" for step in found), found
    by_index = [step for step in found if "Index Name" in step]
    assert {step["Index Name"] for step in by_index} == {f"{step['Relation Name']}_pkey" for step in found}
    assert all("id" in step["Index Cond"] for step in by_index), found


@pytest.mark.parametrize("name", BY_INDEX)
def test_searches_are_served_by_their_index(name: str, database: PostgresDatabase) -> None:
    statement, index = BY_INDEX[name]

    found = scans(database, statement)

    assert any(step.get("Index Name") == index for step in found), found
    assert not any(step["Node Type"] == "Seq Scan" for step in found), found

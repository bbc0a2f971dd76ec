"""On Postgres, too, hot statements reach their rows by id or by their index, with the plan that serves all calls.

Whatever the planner knows of the tables: a plan that was made on an empty queue is kept, and serves a flood.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from psycopg import sql
from sqlalchemy.dialects.postgresql.psycopg import dialect

from batchfleet.database.metadata import metadata
from batchfleet.database.opening import open_database
from batchfleet.database.postgres import PostgresDatabase
from batchfleet.database.statements import Sql
from batchfleet.jobs.job import JobLinks, WorkerLease, WorkerState
from batchfleet.jobs.sql import submit
from batchfleet.jobs.sql.store import SqlStore
from tests.support.postgres import PostgresServer, session_server
from tests.support.stores import new_job, success
from tests.unit.jobs.test_query_plans import BY_ID, BY_INDEX, LISTINGS, listing

DIALECT = dialect()  # type: ignore[no-untyped-call]
PARAMETER = re.compile(r"%\((\w+)\)[sb]")
LARGE = {"jobs", "job_inputs", "job_results", "job_links", "outbox", "idempotency_keys"}
OF_IDS = {"jobs", "job_inputs", "job_results", "job_links", "outbox"}
"""Tables whose primary key is an id."""
WHOLE = {f"{table}_pkey" for table in LARGE} | {"outbox_once", "jobs_by_tenant", "outbox_by_tenant"}
"""Indexes with an entry for every row: nobody reads one from end to end."""
LINKS = JobLinks(output_uri="s3://out/a", callback_url="https://example.com/")


def filled(url: str, jobs: int) -> None:
    """Puts rows into every table that a plan leads to."""
    store = SqlStore(url)
    store.register(WorkerLease(boot="boot", name="worker", pid=1, state=WorkerState.READY))
    store.submit(new := [new_job(ttl_s=1e6, links=LINKS, idempotency_key=str(at)) for at in range(jobs)])
    claimed = store.claim("boot", [job.id for job in new])
    store.settle("boot", [success(job, length=1) for job in claimed], b"x")
    store.close()


def fresh(server: PostgresServer, database: str) -> float:
    """Tables nobody has looked at: the planner guesses ten pages."""
    return -1


def vacuumed(server: PostgresServer, database: str) -> float:
    """Empty tables that are known to be empty, as after autovacuum on a fleet that has nothing to do."""
    server.execute("VACUUM", database=database)
    return 0


def drained(server: PostgresServer, database: str) -> float:
    """Known to be empty with pages left, so that they count as empty however much they grow."""
    filled(server.database_url(database), 300)
    for table in LARGE:
        server.execute(f"DELETE FROM {table}", database=database)  # noqa: S608 - names of ours
    server.execute("VACUUM (TRUNCATE false)", database=database)
    return 0


def one_row(server: PostgresServer, database: str) -> float:
    """Statistics of the first job."""
    filled(server.database_url(database), 1)
    server.execute("ANALYZE", database=database)
    return 1


def many(server: PostgresServer, database: str) -> float:
    """Statistics of a busy fleet, all of one tenant and one model."""
    filled(server.database_url(database), 2000)
    server.execute("ANALYZE", database=database)
    return 2000


@pytest.fixture(scope="module", params=[fresh, vacuumed, drained, one_row, many], ids=lambda state: state.__name__)
def database(request: pytest.FixtureRequest) -> Iterator[PostgresDatabase]:
    """A database of these tests' own, whose statistics nobody changes behind their back."""
    server = session_server()
    url = server.new_database()
    name = url.rpartition("/")[2]
    for table in LARGE:
        server.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)", database=name)
    known = request.param(server, name)
    counted = server.execute("SELECT relname, reltuples FROM pg_class WHERE relkind = 'r'", database=name)
    assert {count for table, count in counted if table == "jobs"} == {known}
    opened = open_database(url)
    assert isinstance(opened, PostgresDatabase)
    yield opened
    opened.close()


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the steps of a plan."""
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)


def plan(database: PostgresDatabase, statement: Sql) -> list[dict[str, Any]]:
    """Returns the steps of the plan that is made once and kept."""
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
    return list(nodes(row[0][0]["Plan"]))


def scans(database: PostgresDatabase, statement: Sql) -> list[dict[str, Any]]:
    """Returns how the rows of large tables are reached."""
    steps = [step for step in plan(database, statement) if "Scan" in step["Node Type"]]
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
    assert all(re.search(r"\bid = ", step.get("Index Cond", "")) for step in by_index), found


@pytest.mark.parametrize("name", BY_INDEX)
def test_searches_are_served_by_their_index(name: str, database: PostgresDatabase) -> None:
    statement, index = BY_INDEX[name]

    found = scans(database, statement)

    assert any(step.get("Index Name") == index for step in found), found
    assert not any(step["Node Type"] == "Seq Scan" for step in found), found
    whole = [step for step in found if step.get("Index Name") in WHOLE]
    assert all("Index Cond" in step for step in whole), whole


def test_the_jobs_of_taken_keys_are_reached_by_key_and_id(database: PostgresDatabase) -> None:
    found = scans(database, submit._HOLDERS)

    conditions = {step["Index Name"]: step.get("Index Cond", "") for step in found if "Index Name" in step}
    assert conditions.keys() == {"idempotency_keys_pkey", "jobs_pkey"}
    assert all(name in conditions["idempotency_keys_pkey"] for name in ("tenant = ", "key = ")), found
    assert "id = " in conditions["jobs_pkey"], found


@pytest.mark.parametrize("name", LISTINGS)
def test_a_page_is_read_from_its_index(name: str, database: PostgresDatabase) -> None:
    wanted, index = LISTINGS[name]
    query = listing(wanted, "postgresql").compile(dialect=DIALECT, compile_kwargs={"render_postcompile": True})

    steps = plan(database, Sql("", str(query)))

    reached = [step for step in steps if step.get("Relation Name") in {"jobs", "outbox"}]
    by_index = [step for step in steps if step.get("Index Name") == index]
    assert len(reached) == len(by_index) == 1, steps
    column = "job_id" if index == "outbox_once" else "tenant"
    assert column in by_index[0]["Index Cond"], steps
    assert any(step["Node Type"] == "Sort" for step in steps) == (index == "outbox_once"), steps

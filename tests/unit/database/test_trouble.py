"""What callers are told of a database that is of no use: one line without SQL, hosts or users; the log has the rest."""

import sqlite3
import stat
from pathlib import Path

import psycopg
import pytest
from alembic.script import ScriptDirectory
from psycopg import errors

import migrations
from batchfleet.database.schema import NEEDED
from batchfleet.database.trouble import NO_SCHEMA, unusable
from batchfleet.errors import StoreUnavailableError
from batchfleet.jobs.sql.store import SqlStore
from migrations.run import last_additive, upgrade
from tests.support.stores import sqlite_url

SECRETS = ("db.internal", "10.1.2.3", "alice", "SELECT", "LINE", "\n", "orders")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            psycopg.OperationalError('connection to "10.1.2.3" failed: Connection refused\n\tIs it?'),
            "connection refused",
        ),
        (psycopg.OperationalError('FATAL: password authentication failed for user "alice"'), "user or password"),
        (psycopg.OperationalError('FATAL:  database "orders" does not exist'), "no such database"),
        (psycopg.OperationalError("failed to resolve host 'db.internal': Name or service not known"), "host name"),
        (psycopg.OperationalError("connection timeout expired\n- host: 'db.internal'"), "no answer in time"),
        (psycopg.OperationalError('something of "alice" nobody has seen'), "the log has more"),
        (errors.AdminShutdown("terminating connection of alice"), "shutting down"),
        (errors.UndefinedTable('relation "orders" does not exist\nLINE 2: FROM orders'), NO_SCHEMA),
        (errors.UndefinedColumn('column "orders.x" does not exist\nLINE 1: SELECT'), NO_SCHEMA),
        (sqlite3.OperationalError("no such table: orders"), NO_SCHEMA),
        (sqlite3.OperationalError("table orders has no column named x"), NO_SCHEMA),
        (sqlite3.OperationalError("database is locked"), "locked"),
        (PermissionError(13, "Permission denied", "/home/alice/x.db"), "permission denied"),
    ],
)
def test_a_failure_is_told_without_the_drivers_words(error: Exception, told: str) -> None:
    found = unusable(error)

    assert told in str(found)
    assert not [secret for secret in SECRETS if secret in str(found)]
    assert "\n" not in (found.detail or "")
    assert found.detail == " ".join(str(error).split())


def test_the_schema_that_is_asked_for_is_the_newest_that_only_adds() -> None:
    assert last_additive(ScriptDirectory(str(Path(migrations.__file__).parent))) == NEEDED


@pytest.mark.parametrize("revision", [None, "0001", "0002"])
def test_a_database_with_no_or_an_old_schema_is_not_ready(tmp_path: Path, revision: str | None) -> None:
    url = f"sqlite:///{tmp_path}/some.db"
    if revision:
        upgrade(url, revision)
    store = SqlStore(url)

    with pytest.raises(StoreUnavailableError) as caught:
        store.ping()
    assert str(caught.value) == NO_SCHEMA

    upgrade(url)
    store.ping()
    store.close()


def test_one_of_a_newer_version_is_ready(tmp_path: Path) -> None:
    store = SqlStore(sqlite_url(tmp_path))
    (file,) = tmp_path.glob("*.db")
    with sqlite3.connect(file) as stranger:
        stranger.execute("UPDATE alembic_version SET version_num = '0099'")
    stranger.close()

    store.ping()
    store.close()


@pytest.mark.parametrize("by_migration", [True, False])
def test_a_file_that_is_made_is_for_its_owner_only(tmp_path: Path, by_migration: bool) -> None:
    url = f"sqlite:///{tmp_path}/some.db"
    if by_migration:
        upgrade(url)
    store = SqlStore(url)
    if by_migration:
        store.ping()
    else:
        with pytest.raises(StoreUnavailableError):
            store.ping()

    for file in tmp_path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    store.close()


def test_a_server_that_is_away_is_told_in_a_line_by_upgrade() -> None:
    with pytest.raises(StoreUnavailableError) as caught:
        upgrade("postgresql+psycopg://alice@127.0.0.1:1/orders")

    assert str(caught.value) == "the database cannot be upgraded: connection refused"

"""Migrations and the declared schema are the same database, and upgrading is safe at any time."""

import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

import migrations
from batchfleet.errors import StoreUnavailableError
from batchfleet.jobs.job import JobFilter
from batchfleet.jobs.sql.store import SqlStore
from migrations.schema import metadata
from tests.support.stores import POSTGRES_URL, new_job


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


def differences(url: str) -> list[object]:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        return list(compare_metadata(context, metadata))


def created(url: str) -> dict[str, str]:
    """Returns the SQL of all tables and indexes of a SQLite file, spacing aside."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        rows = connection.exec_driver_sql(
            "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name <> 'alembic_version'"
        ).fetchall()
    return {name: " ".join(text.split()) for name, text in rows}


def test_migrated_and_declared_schema_agree(url: str, tmp_path: Path) -> None:
    """Down to the text: a partial index without its condition would still be an index."""
    declared = f"sqlite:///{tmp_path}/declared.db"
    metadata.create_all(sa.create_engine(declared, poolclass=sa.NullPool))

    migrations.upgrade(url)

    assert differences(url) == []
    assert created(url) == created(declared)
    assert sum(" WHERE " in text for text in created(url).values()) == 7


if POSTGRES_URL:

    def test_migrated_and_declared_schema_agree_on_postgres() -> None:
        migrations.upgrade(POSTGRES_URL)

        assert differences(POSTGRES_URL) == []


def test_upgrading_again_changes_nothing(url: str) -> None:
    migrations.upgrade(url)
    store = SqlStore(url)
    store.submit([new_job()])
    before = created(url)

    migrations.upgrade(url)

    assert created(url) == before
    assert len(store.list_jobs(JobFilter())) == 1
    store.close()


def test_several_processes_upgrade_at_once(url: str) -> None:
    """Every process of a fresh stack may be the first."""
    code = "import sys, migrations; migrations.upgrade(sys.argv[1])"
    children = [
        subprocess.Popen([sys.executable, "-c", code, url], stderr=subprocess.PIPE, text=True) for _ in range(3)
    ]

    errors = [child.communicate(timeout=60)[1] for child in children]

    assert [child.returncode for child in children] == [0, 0, 0], errors
    assert differences(url) == []


def test_it_needs_no_file_but_the_package(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    migrations.upgrade(url)

    assert differences(url) == []


def test_the_revisions_are_one_line() -> None:
    script = ScriptDirectory(str(Path(migrations.__file__).parent))

    assert len(script.get_heads()) == 1
    assert len(script.get_bases()) == 1


@pytest.mark.parametrize(
    "unreachable", ["sqlite:////nowhere/at/all/store.db", "postgresql+psycopg://nobody@127.0.0.1:1/none"]
)
def test_a_database_that_cannot_be_reached_is_named(unreachable: str) -> None:
    with pytest.raises(StoreUnavailableError):
        migrations.upgrade(unreachable)

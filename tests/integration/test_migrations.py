"""Migrations and the declared schema are the same database, and upgrading is safe at any time."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
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
from migrations.run import last_additive
from migrations.schema import metadata
from tests.support.postgres import session_server
from tests.support.stores import new_job
from tests.support.upstack import eventually


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


def declared_indexes() -> list[sa.Index]:
    return [index for table in metadata.sorted_tables for index in table.indexes]


def test_migrated_and_declared_schema_agree(url: str, tmp_path: Path) -> None:
    """Down to the text: a partial index without its condition would still be an index."""
    declared = f"sqlite:///{tmp_path}/declared.db"
    metadata.create_all(sa.create_engine(declared, poolclass=sa.NullPool))

    migrations.upgrade(url)

    assert differences(url) == []
    assert created(url) == created(declared)
    partial = sum(index.dialect_options["sqlite"]["where"] is not None for index in declared_indexes())
    assert sum(" WHERE " in text for text in created(url).values()) == partial > 0


def test_migrated_and_declared_schema_agree_on_postgres(postgres: str) -> None:
    assert differences(postgres) == []


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


REVISION = """
revision = {revision!r}
down_revision = {before!r}
branch_labels = None
depends_on = None
step = {step!r}
"""


@pytest.mark.parametrize(
    ("steps", "last"), [("pre pre", "2"), ("pre post", "1"), ("pre post pre", "3"), ("pre pre post post", "2")]
)
def test_an_upgrade_before_the_deployment_ends_at_the_newest_additive_step(
    steps: str, last: str, tmp_path: Path
) -> None:
    (tmp_path / "versions").mkdir()
    for number, step in enumerate(steps.split(), 1):
        before = str(number - 1) if number > 1 else None
        text = REVISION.format(revision=str(number), before=before, step=step)
        (tmp_path / "versions" / f"{number}.py").write_text(text)

    assert last_additive(ScriptDirectory(str(tmp_path))) == last


def test_a_long_transaction_holds_up_the_upgrade_and_nobody_else() -> None:
    """The upgrade gives up its place in the queue for the table again and again: behind it, all would wait as well."""
    server = session_server()
    url = server.new_database(migrated=False)
    migrations.upgrade(url, "0001")
    waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'jobs'::regclass"
    database = sa.make_url(url).database or ""
    with server.connect(database) as reader, ThreadPoolExecutor(1) as pool:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM jobs")
        upgrading = pool.submit(migrations.upgrade, url)
        eventually(lambda: server.execute(waits, database=database) == [(1,)] or None, "the upgrade wants the table")

        # A worker of the version before: it waits for the upgrade at most until that gives way.
        server.execute("UPDATE jobs SET announce_count = 0", database=database)
        assert not upgrading.done()
        reader.execute("COMMIT")

        assert upgrading.result(60) == ()
    assert differences(url) == []


def test_an_index_whose_building_was_interrupted_is_built_again() -> None:
    server = session_server()
    url = server.new_database(migrated=False)
    migrations.upgrade(url, "0002")
    database = sa.make_url(url).database or ""
    with server.connect(database) as other:
        other.execute("CREATE INDEX jobs_ended_by_finished_at ON jobs (announce_count)")
        other.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'jobs_ended_by_finished_at'::regclass")

    migrations.upgrade(url)

    assert differences(url) == []
    assert server.execute("SELECT count(*) FROM pg_index WHERE NOT indisvalid", database=database) == [(0,)]


def test_upgrading_on_postgres_again_and_at_once_changes_nothing() -> None:
    url = session_server().new_database(migrated=False)
    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(migrations.upgrade, url) for _ in range(3)]
        left = [future.result(60) for future in running]

    assert left == [()] * 3
    assert differences(url) == []

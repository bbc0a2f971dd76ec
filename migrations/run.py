"""Bring a database to the newest schema, before or after the new version's processes start."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import Script, ScriptDirectory

from batchfleet.database.sqlite import database_file, lock_file, make_private
from batchfleet.database.trouble import unusable
from batchfleet.database.write_lock import WriteLock

LOCK_TIMEOUT_S = 2.0
"""A change of a table waits so long for those who use it, and they for it; then it lets them pass."""

TRIES = 60
"""How often it asks for the table again, a second apart."""

_POSTGRES_LOCK = 0x62_61_74_63_68
"""Key of the advisory lock under which one process migrates and the others wait."""

_POLL_S = 0.2
_PAUSE_S = 1.0


def upgrade(database_url: str, revision: str = "head", *, post: bool = True) -> tuple[str, ...]:
    """Upgrades the database; a no-op where it is there already.

    Args:
        database_url: The database.
        revision: How far at most.
        post: Whether the steps that need all old processes gone are taken as well. Without it the upgrade ends
            with the newest additive one; an empty database has no old processes.

    Returns:
        The revisions that are left to be applied.

    Raises:
        StoreUnavailableError: If the database cannot be reached, or its tables are in use for too long.
    """
    engine = sa.create_engine(database_url, poolclass=sa.NullPool)
    try:
        with _one_at_a_time(engine), engine.connect() as connection:
            config = Config()
            config.set_main_option("script_location", str(Path(__file__).parent))
            config.attributes["connection"] = connection
            script = ScriptDirectory.from_config(config)
            if not post and _current(connection) is not None:
                revision = last_additive(script)
            _upgrade(connection, config, revision)
            return tuple(entry.revision for entry in script.iterate_revisions("head", _current(connection) or "base"))
    except (sa.exc.OperationalError, OSError) as exc:
        # A file is told of: whoever upgrades has named it.
        file = f" {exc.filename}" if isinstance(exc, OSError) and exc.filename else ""
        raise unusable(getattr(exc, "orig", None) or exc, f"the database{file} cannot be upgraded") from exc
    except sa.exc.ProgrammingError as exc:
        if not isinstance(exc.orig, psycopg.errors.InsufficientPrivilege):
            raise
        raise unusable(exc.orig, "the database cannot be upgraded") from exc
    finally:
        engine.dispose()


def last_additive(script: ScriptDirectory) -> str:
    """Returns the newest revision that is applied before the new version starts."""
    return next(entry.revision for entry in script.walk_revisions() if step_of(entry) == "pre")


def step_of(script: Script) -> str:
    """Returns when a revision is applied: `pre` (it only adds; old code runs on) or `post` (no old code runs)."""
    step: str = script.module.step
    return step


def _current(connection: sa.Connection) -> str | None:
    current = MigrationContext.configure(connection).get_current_revision()
    connection.rollback()  # it began a transaction to look
    return current


def _upgrade(connection: sa.Connection, config: Config, revision: str) -> None:
    """Runs the migrations that are missing; again from where it stopped while a table is in use.

    A change of a table needs it for itself for a moment. Waiting for one long transaction would make everybody
    else queue up behind, so that it waits briefly, gives up, and comes back.
    """
    if connection.dialect.name != "postgresql":
        command.upgrade(config, revision)
        return
    for left in reversed(range(TRIES)):
        try:
            connection.execute(sa.text(f"SET lock_timeout = '{LOCK_TIMEOUT_S * 1000:.0f}ms'"))
            connection.commit()
            command.upgrade(config, revision)
        except sa.exc.OperationalError as exc:
            connection.rollback()
            if not left or not isinstance(exc.orig, psycopg.errors.LockNotAvailable):
                raise
            time.sleep(_PAUSE_S)
        else:
            return


@contextmanager
def _one_at_a_time(engine: sa.Engine) -> Iterator[None]:
    if engine.dialect.name == "sqlite":
        lock = WriteLock(lock_file(database_file(engine.url.render_as_string(hide_password=False))))
        try:
            with lock.held():
                make_private(database_file(engine.url.render_as_string(hide_password=False)))
                _shape_file(engine)
                yield
        finally:
            lock.close()
        return
    # The lock is the session's: it goes with this connection, however the upgrade ends. It is asked for again and
    # again, since a statement that waits for it is one that the building of an index would wait for.
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as session:
        while not session.scalar(sa.select(sa.func.pg_try_advisory_lock(_POSTGRES_LOCK))):
            time.sleep(_POLL_S)
        yield


def _shape_file(engine: sa.Engine) -> None:
    """Sets what a file keeps: large pages while it is empty, and its write-ahead log.

    Five results of 1.5 KB share a page of 8 KB, two one of 4 KB. The log is switched on here, once: two processes
    doing so at their first use would collide.
    """
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA page_size = 8192")
        connection.exec_driver_sql("PRAGMA journal_mode = WAL")

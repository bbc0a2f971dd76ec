"""Bring a database to the newest schema."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from batchfleet.database.sqlite import database_file, lock_file
from batchfleet.database.write_lock import WriteLock
from batchfleet.errors import StoreUnavailableError

_POSTGRES_LOCK = 0x62_61_74_63_68
"""Key of the advisory lock under which one process migrates and the others wait."""


def upgrade(database_url: str, revision: str = "head") -> None:
    """Upgrades the database; a no-op where it is there already.

    Raises:
        StoreUnavailableError: If the database cannot be reached.
    """
    engine = sa.create_engine(database_url, poolclass=sa.NullPool)
    try:
        with _one_at_a_time(engine), engine.connect() as connection:
            config = Config()
            config.set_main_option("script_location", str(Path(__file__).parent))
            config.attributes["connection"] = connection
            command.upgrade(config, revision)
    except (sa.exc.OperationalError, OSError) as exc:
        raise StoreUnavailableError(f"the database cannot be upgraded: {exc}") from exc
    finally:
        engine.dispose()


@contextmanager
def _one_at_a_time(engine: sa.Engine) -> Iterator[None]:
    if engine.dialect.name == "sqlite":
        lock = WriteLock(lock_file(database_file(engine.url.render_as_string(hide_password=False))))
        try:
            with lock.held():
                _shape_file(engine)
                yield
        finally:
            lock.close()
        return
    # The lock is the session's: it goes with this connection, however the upgrade ends.
    with engine.connect() as session:
        session.execute(sa.select(sa.func.pg_advisory_lock(_POSTGRES_LOCK)))
        yield


def _shape_file(engine: sa.Engine) -> None:
    """Sets what a file keeps: large pages while it is empty, and its write-ahead log.

    Five results of 1.5 KB share a page of 8 KB, two one of 4 KB. The log is switched on here, once: two processes
    doing so at their first use would collide.
    """
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA page_size = 8192")
        connection.exec_driver_sql("PRAGMA journal_mode = WAL")

"""Wiring: from a database URL to the adapter behind it."""

import sqlalchemy as sa

from batchfleet import clock
from batchfleet.database.sqlite import SqliteDatabase, database_file
from batchfleet.database.transaction import Database


def open_database(database_url: str, wall: clock.Wall = clock.wall) -> Database:
    """Returns the database behind a SQLAlchemy URL, without connecting.

    Args:
        database_url: `sqlite:///path` or `postgresql+psycopg://…`.
        wall: The time on SQLite. Postgres has its own.

    Raises:
        ValueError: If it is another kind of database.
    """
    url = sa.make_url(database_url)
    backend = url.get_backend_name()
    if backend == "sqlite":
        return SqliteDatabase(database_file(database_url), wall)
    if backend == "postgresql":
        # psycopg is loaded only where it is used: it costs 30 ms and 10 MB.
        from batchfleet.database.postgres import PostgresDatabase  # noqa: PLC0415

        return PostgresDatabase(url)
    raise ValueError(f"not a SQLite or Postgres URL: {url.render_as_string(hide_password=True)}")

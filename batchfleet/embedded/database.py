"""Says of a database's URL, without connecting, whether it can be used."""

import importlib.util

import sqlalchemy as sa

from batchfleet.database.sqlite import database_file


def require_usable_database(url: str) -> None:
    """Lets the URL of a SQLite file or a Postgres database pass.

    Raises:
        ValueError: If it is neither, or its driver is not installed; the message does not show a password.
    """
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError:
        raise ValueError("is not the URL of a database") from None
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        try:
            database_file(url)
        except ValueError:
            raise ValueError("must name a file: sqlite:///path (in memory, processes cannot share it)") from None
    elif backend != "postgresql":
        raise ValueError("must be sqlite:///path or postgresql+psycopg://user@host/database")
    elif parsed.get_driver_name() != "psycopg" or importlib.util.find_spec("psycopg") is None:
        raise ValueError("must name the driver psycopg: postgresql+psycopg://user@host/database")

"""Run by Alembic: how a migration reaches the database. See `migrations.run.upgrade`."""

import sqlalchemy as sa
from alembic import context

from migrations.schema import metadata


def _migrate(connection: sa.Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        # SQLite alters tables by copying them.
        render_as_batch=connection.dialect.name == "sqlite",
        transaction_per_migration=True,
    )
    with context.begin_transaction():
        context.run_migrations()
    connection.commit()


def _print_sql(dialect: str) -> None:
    """Writes out what a migration would run: for a test, and for who reads before running."""
    context.configure(dialect_name=dialect, target_metadata=metadata, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()


_given = context.config.attributes.get("connection")
if context.is_offline_mode():
    _print_sql(context.config.attributes.get("dialect", "postgresql"))
elif _given is None:
    raise RuntimeError("run migrations by 'batchfleet db upgrade' or migrations.upgrade(database_url)")
else:
    _migrate(_given)

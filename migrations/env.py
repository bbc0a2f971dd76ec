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


_given = context.config.attributes.get("connection")
if _given is None:
    raise RuntimeError("run migrations by 'batchfleet db upgrade' or migrations.upgrade(database_url)")
_migrate(_given)

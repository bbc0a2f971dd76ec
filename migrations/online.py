"""Changes to tables that a running fleet uses."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op


def build_index(name: str, table: str, columns: Sequence[str], *, where: str | None = None) -> None:
    """Builds an index beside the writers of its table; may be repeated.

    On Postgres `CREATE INDEX` would hold up every insert until it is done, hours perhaps; `CONCURRENTLY` holds up
    nobody, but works outside a transaction, and leaves an invalid index where it is interrupted: that one goes
    first. A migration that calls this must bear being run again after it was ended half way.
    """
    condition = None if where is None else sa.text(where)
    context = op.get_context()
    if context.dialect.name != "postgresql" or context.as_sql:
        op.create_index(name, table, columns, sqlite_where=condition, postgresql_where=condition)
        return
    with context.autocommit_block():
        patience = op.get_bind().scalar(sa.text("SHOW lock_timeout"))
        # It waits for the transactions that began before it, and nobody waits for it.
        op.execute(sa.text("SET lock_timeout = 0"))
        valid = op.get_bind().scalar(
            sa.text("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(:name)"), {"name": name}
        )
        if valid is False:
            op.drop_index(name, table, postgresql_concurrently=True)
        if not valid:
            op.create_index(name, table, columns, postgresql_where=condition, postgresql_concurrently=True)
        op.execute(sa.text(f"SET lock_timeout = '{patience}'"))

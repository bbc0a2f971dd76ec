"""Pages of what belongs to tenants, newest first."""

from typing import Any

import sqlalchemy as sa


def newest(query: sa.Select[Any], table: sa.Table, tenant: str | None, after: str | None) -> sa.Select[Any]:
    """Returns the query with the order of its rows, and with where its page begins.

    A tenant's rows are asked for in the order of tenant and id, and by a range instead of an equation, which would
    make the tenant drop out of the order: ids alone are also in the order of the primary key, which a planner that
    takes the table for empty walks through, all tenants' rows, until the page is full.

    Args:
        query: What is wanted of `table`.
        table: Has columns `tenant` and `id`, and an index on both.
        tenant: Whose rows; None for everybody's.
        after: Id that the page before ended with.
    """
    if tenant is None:
        older = query if after is None else query.where(table.c.id < after)
        return older.order_by(table.c.id.desc())
    before = table.c.tenant <= tenant if after is None else sa.tuple_(table.c.tenant, table.c.id) < (tenant, after)
    return query.where(table.c.tenant >= tenant, before).order_by(table.c.tenant.desc(), table.c.id.desc())

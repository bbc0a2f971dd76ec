"""Listings by tenant have indexes that serve nothing else.

An index that holds an id is one more way to rows by id, and not a good one: on a table that Postgres takes for empty
it costs as much as the right one. With a condition that only listings state, no other statement can use it. The ones
of the version before are dropped, and these get their names, when no process of that version lists any more (0006).
SQLite keeps its own: it never reaches rows by a column in the middle of an index.
"""

from alembic import op

from migrations.online import build_index

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None
step = "pre"


def upgrade() -> None:
    if op.get_context().dialect.name == "postgresql":
        for table in ("jobs", "outbox"):
            build_index(f"{table}_listed_by_tenant", table, ["tenant", "id"], where="tenant <> ''")


def downgrade() -> None:
    if op.get_context().dialect.name == "postgresql":
        for table in ("jobs", "outbox"):
            op.drop_index(f"{table}_listed_by_tenant", table)

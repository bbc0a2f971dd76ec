"""The indexes of 0004 take the place of those of the version before."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None
step = "post"


def upgrade() -> None:
    if op.get_context().dialect.name == "postgresql":
        for table in ("jobs", "outbox"):
            op.drop_index(f"{table}_by_tenant", table)
            op.execute(sa.text(f"ALTER INDEX {table}_listed_by_tenant RENAME TO {table}_by_tenant"))


def downgrade() -> None:
    if op.get_context().dialect.name == "postgresql":
        for table in ("jobs", "outbox"):
            op.execute(sa.text(f"ALTER INDEX {table}_by_tenant RENAME TO {table}_listed_by_tenant"))
            op.create_index(f"{table}_by_tenant", table, ["tenant", "id"])

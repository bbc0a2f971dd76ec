"""What the fleet has learned of its models: rates of devices, costs of passes, ceilings of memory."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None
step = "pre"


def upgrade() -> None:
    op.create_table(
        "device_rates",
        *_key(),
        *(_required(name) for name in ("items", "input_bytes", "seconds", "updated_at")),
        sa.CheckConstraint("items >= 0 AND input_bytes >= 0 AND seconds >= 0", name="device_rates_positive"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "pass_costs",
        *_key(),
        *_shape(),
        *(_required(name) for name in ("seconds", "weight", "updated_at")),
        sa.CheckConstraint("rows >= 1 AND length >= 1", name="pass_costs_shape"),
        sa.CheckConstraint(
            "seconds > 0 AND seconds <= 1e5 AND weight > 0 AND weight <= 1e9", name="pass_costs_figures"
        ),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "memory_ceilings",
        *_key(),
        *_shape(),
        _required("updated_at"),
        sa.CheckConstraint("rows >= 1 AND length >= 1", name="memory_ceilings_shape"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    for table in ("memory_ceilings", "pass_costs", "device_rates"):
        op.drop_table(table)


def _key() -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.Text, primary_key=True) for name in ("model", "version", "variant", "device")]


def _shape() -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.Integer, primary_key=True, autoincrement=False) for name in ("length", "rows")]


def _required(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Double, nullable=False)

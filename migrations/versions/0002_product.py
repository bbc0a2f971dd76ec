"""Links of jobs and the outbox, keys and tenants, webhook secrets, periodic duties.

Indexes of tables that are in use follow in 0003: they are built without holding anybody up.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None
step = "pre"

_ID = sa.Uuid(as_uuid=False)
_PENDING = sa.text("state = 'pending'")


def _required(name: str, kind: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False)


def upgrade() -> None:
    op.add_column("jobs", sa.Column("links", sa.Integer, nullable=False, server_default=sa.text("0")))
    _add_retention()
    _create_outbox()
    _create_access()


def downgrade() -> None:
    for table in ("duties", "webhook_secrets", "outbox_attempts", "outbox", "job_links", "api_keys", "tenants"):
        op.drop_table(table)
    op.drop_column("job_results", "stored_at")
    op.drop_column("jobs", "links")


def _add_retention() -> None:
    op.add_column("job_results", sa.Column("stored_at", sa.Double, nullable=False, server_default=sa.text("0")))


def _create_outbox() -> None:
    op.create_table(
        "job_links",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("input_uri", sa.Text),
        sa.Column("output_uri", sa.Text),
        sa.Column("callback_url", sa.Text),
    )
    op.create_table(
        "outbox",
        sa.Column("id", _ID, primary_key=True),
        _required("kind", sa.Text),
        _required("tenant", sa.Text),
        _required("job_id", _ID),
        _required("target", sa.Text),
        _required("event", sa.Text),
        _required("state", sa.Text),
        _required("attempts", sa.Integer),
        _required("epoch", sa.BigInteger),
        _required("created_at", sa.Double),
        _required("due_at", sa.Double),
        sa.Column("leased_until", sa.Double),
        sa.Column("finished_at", sa.Double),
        sa.Column("last_status", sa.Integer),
        sa.Column("last_error", sa.Text),
    )
    op.create_index("outbox_pending_by_due_at", "outbox", ["due_at"], sqlite_where=_PENDING, postgresql_where=_PENDING)
    op.create_index("outbox_by_tenant", "outbox", ["tenant", "id"])
    ended = sa.text("finished_at IS NOT NULL")
    op.create_index(
        "outbox_finished_by_finished_at", "outbox", ["finished_at"], sqlite_where=ended, postgresql_where=ended
    )
    op.create_index("outbox_once", "outbox", ["job_id", "kind"], unique=True)
    op.create_table(
        "outbox_attempts",
        sa.Column("delivery_id", _ID, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        _required("began_at", sa.Double),
        _required("duration_s", sa.Double),
        sa.Column("status", sa.Integer),
        sa.Column("error", sa.Text),
    )
    op.create_table(
        "webhook_secrets",
        sa.Column("id", _ID, primary_key=True),
        _required("tenant", sa.Text),
        _required("secret", sa.Text),
        _required("created_at", sa.Double),
        sa.Column("expires_at", sa.Double),
    )
    op.create_index("webhook_secrets_by_tenant", "webhook_secrets", ["tenant"])
    op.create_table("duties", sa.Column("name", sa.Text, primary_key=True), _required("taken_at", sa.Double))


def _create_access() -> None:
    op.create_table(
        "tenants",
        sa.Column("name", sa.Text, primary_key=True),
        _required("input_prefixes", sa.Text),
        _required("output_prefixes", sa.Text),
        _required("created_at", sa.Double),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Text, primary_key=True),
        _required("tenant", sa.Text),
        _required("name", sa.Text),
        _required("roles", sa.Text),
        _required("digest", sa.Text),
        _required("created_at", sa.Double),
        sa.Column("expires_at", sa.Double),
        sa.Column("revoked_at", sa.Double),
        sa.Column("last_used_at", sa.Double),
    )

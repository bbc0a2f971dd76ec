"""Jobs, their inputs and results, idempotency keys, worker leases."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None
step = "pre"

_ID = sa.Uuid(as_uuid=False)


def _required(name: str, kind: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False)


def upgrade() -> None:
    _create_jobs()
    op.create_table(
        "job_inputs",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("traceparent", sa.Text),
        _required("parameters", sa.LargeBinary),
        sa.Column("metadata", sa.LargeBinary),
        _required("inputs", sa.LargeBinary),
    )
    op.create_table(
        "job_results",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("provenance", sa.Text),
        sa.Column("format", sa.Text),
        sa.Column("blob_key", sa.Text),
        sa.Column("data", sa.LargeBinary),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        _required("job_id", _ID),
        _required("fingerprint", sa.Text),
        _required("created_at", sa.Double),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "workers",
        sa.Column("boot", sa.Text, primary_key=True),
        _required("name", sa.Text),
        _required("pid", sa.Integer),
        _required("state", sa.Text),
        _required("models", sa.Text),
        _required("registered_at", sa.Double),
        _required("seen_at", sa.Double),
    )
    _create_indexes()


def downgrade() -> None:
    for table in ("workers", "idempotency_keys", "job_results", "job_inputs", "jobs"):
        op.drop_table(table)


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", _ID, primary_key=True),
        _required("tenant", sa.Text),
        _required("model", sa.Text),
        _required("version", sa.Text),
        _required("adapter", sa.Text),
        _required("lane", sa.Text),
        _required("on_item_error", sa.Text),
        _required("item_count", sa.Integer),
        _required("input_bytes", sa.BigInteger),
        _required("max_attempts", sa.Integer),
        _required("run_timeout_s", sa.Double),
        _required("submitted_at", sa.Double),
        sa.Column("expires_at", sa.Double),
        sa.Column("retry_of", _ID),
        _required("state", sa.Text),
        _required("epoch", sa.BigInteger),
        _required("attempts", sa.Integer),
        _required("crashes", sa.Integer),
        _required("suspect", sa.Integer),
        _required("run_at", sa.Double),
        _required("announce_at", sa.Double),
        _required("announce_count", sa.Integer),
        sa.Column("owner", sa.Text),
        sa.Column("started_at", sa.Double),
        sa.Column("deadline_at", sa.Double),
        sa.Column("finished_at", sa.Double),
        sa.Column("error_code", sa.Text),
        sa.Column("error_message", sa.Text),
        sa.Column("error_item", sa.Integer),
        sqlite_with_rowid=False,
        postgresql_with={"fillfactor": 80, "autovacuum_vacuum_scale_factor": 0.02},
    )


def _create_indexes() -> None:
    _partial("jobs_queued_by_announce_at", ["announce_at"], "state = 'queued'")
    _partial("jobs_queued_by_expires_at", ["expires_at"], "state = 'queued' AND expires_at IS NOT NULL")
    _partial("jobs_queued_by_flow", ["model", "lane", "tenant", "run_at"], "state = 'queued'")
    _partial("jobs_running_by_owner", ["owner", "deadline_at"], "state = 'running'")
    _partial("jobs_cancelled_by_owner", ["owner"], "state = 'cancelled' AND owner IS NOT NULL")
    _partial("jobs_failed_by_tenant", ["tenant", "id"], "state = 'failed'")
    op.create_index("jobs_by_tenant", "jobs", ["tenant", "id"])


def _partial(name: str, columns: list[str], where: str) -> None:
    condition = sa.text(where)
    op.create_index(name, "jobs", columns, sqlite_where=condition, postgresql_where=condition)

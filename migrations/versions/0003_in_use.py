"""Indexes of tables that are in use, and how Postgres stores results.

Nothing here holds up a fleet that runs, and each part may be repeated: on Postgres an index is built outside a
transaction, so that a migration that was interrupted begins again.
"""

import sqlalchemy as sa
from alembic import op

from migrations.online import build_index

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None
step = "pre"


def upgrade() -> None:
    build_index("idempotency_keys_by_job", "idempotency_keys", ["job_id"])
    build_index("jobs_ended_by_finished_at", "jobs", ["finished_at"], where="finished_at IS NOT NULL")
    build_index("job_results_by_stored_at", "job_results", ["stored_at"], where="format IS NOT NULL")
    if op.get_context().dialect.name == "postgresql":
        # Vectors do not compress: trying costs a fifth of a settle. Up to 8 KB they stay in their row.
        op.execute(sa.text("ALTER TABLE job_results ALTER COLUMN data SET STORAGE EXTERNAL"))
        op.execute(sa.text("ALTER TABLE job_results SET (toast_tuple_target = 8160)"))


def downgrade() -> None:
    for name, table in (
        ("job_results_by_stored_at", "job_results"),
        ("jobs_ended_by_finished_at", "jobs"),
        ("idempotency_keys_by_job", "idempotency_keys"),
    ):
        op.drop_index(name, table)

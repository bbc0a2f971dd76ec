"""The delivery log, signing secrets and periodic duties as stored; the `outbox` itself is the job store's."""

import sqlalchemy as sa

from batchfleet.database.metadata import HexId, metadata, required

outbox_attempts = sa.Table(
    "outbox_attempts",
    metadata,
    sa.Column("delivery_id", HexId, primary_key=True),
    # The delivery's epoch in it: unique, rising, with gaps.
    sa.Column("number", sa.Integer, primary_key=True),
    required("began_at", sa.Double),
    # Negative while it runs, and for ever where its scheduler died in it.
    required("duration_s", sa.Double),
    sa.Column("status", sa.Integer),
    sa.Column("error", sa.Text),
)

webhook_secrets = sa.Table(
    "webhook_secrets",
    metadata,
    sa.Column("id", HexId, primary_key=True),
    required("tenant", sa.Text),
    # Sealed with BATCHFLEET_SECRET_KEY where there is one.
    required("secret", sa.Text),
    required("created_at", sa.Double),
    sa.Column("expires_at", sa.Double),
)
sa.Index("webhook_secrets_by_tenant", webhook_secrets.c.tenant)

duties = sa.Table(
    "duties",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    required("taken_at", sa.Double),
)

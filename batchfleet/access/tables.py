"""Keys and tenants as stored."""

import sqlalchemy as sa

from batchfleet.database.metadata import metadata, required

tenants = sa.Table(
    "tenants",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    # JSON arrays of `s3://bucket/prefix/`.
    required("input_prefixes", sa.Text),
    required("output_prefixes", sa.Text),
    required("created_at", sa.Double),
)

api_keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    required("tenant", sa.Text),
    required("name", sa.Text),
    # A JSON array of names.
    required("roles", sa.Text),
    # SHA-256 of the secret part, hexadecimal; the secret itself is nowhere.
    required("digest", sa.Text),
    required("created_at", sa.Double),
    sa.Column("expires_at", sa.Double),
    sa.Column("revoked_at", sa.Double),
    sa.Column("last_used_at", sa.Double),
)

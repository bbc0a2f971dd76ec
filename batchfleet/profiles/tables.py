"""What the fleet has learned, as stored. A key names a model, version, variant and device.

`device_rates` has one row for each key and is the head of its profile: whoever changes a profile changes that row
first, so that writers of one key take turns. There are no other indexes: all is found by the key, and the tables are
small (a grid of shapes for each key).
"""

import sqlalchemy as sa

from batchfleet.database.metadata import metadata, required


def _key() -> tuple[sa.Column[str], ...]:
    return tuple(sa.Column(name, sa.Text, primary_key=True) for name in ("model", "version", "variant", "device"))


device_rates = sa.Table(
    "device_rates",
    metadata,
    *_key(),
    # Sums over the last passes; older ones fade as new ones come.
    required("items", sa.Double),
    required("input_bytes", sa.Double),
    required("seconds", sa.Double),
    # When a worker last told of this key: what nobody tells of any more is removed.
    required("updated_at", sa.Double),
    sa.CheckConstraint("items >= 0 AND input_bytes >= 0 AND seconds >= 0", name="device_rates_positive"),
    sqlite_with_rowid=False,
)

pass_costs = sa.Table(
    "pass_costs",
    metadata,
    *_key(),
    sa.Column("length", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("rows", sa.Integer, primary_key=True, autoincrement=False),
    required("seconds", sa.Double),
    # How many passes stand behind it, bounded: so that what was measured long ago never outweighs what is.
    required("weight", sa.Double),
    required("updated_at", sa.Double),
    # Neither NaN nor infinity: Postgres takes NaN for the largest number.
    sa.CheckConstraint("rows >= 1 AND length >= 1", name="pass_costs_shape"),
    sa.CheckConstraint("seconds > 0 AND seconds <= 1e5 AND weight > 0 AND weight <= 1e9", name="pass_costs_figures"),
    sqlite_with_rowid=False,
)

memory_ceilings = sa.Table(
    "memory_ceilings",
    metadata,
    *_key(),
    sa.Column("length", sa.Integer, primary_key=True, autoincrement=False),
    # Two of one length stand side by side where the lower one is the older one.
    sa.Column("rows", sa.Integer, primary_key=True, autoincrement=False),
    # When it was learned or last grew.
    required("updated_at", sa.Double),
    sa.CheckConstraint("rows >= 1 AND length >= 1", name="memory_ceilings_shape"),
    sqlite_with_rowid=False,
)

"""What is stored: table definitions and, beside each index, the rule that it serves.

`jobs` is the small, often rewritten row. What is written once lies elsewhere, so that a change of state never
rewrites it: `job_inputs` at submission, `job_results` at the settle. Times are Unix seconds by the database's
clock. There are no foreign keys between the hot tables (each would cost an index probe per row); whoever deletes
a job deletes its rows in `job_inputs`, `job_results` and `idempotency_keys` in the same transaction.
"""

from typing import Any

import sqlalchemy as sa

metadata = sa.MetaData()


class HexId(sa.types.TypeDecorator[str]):
    """A job id: 32 hexadecimal digits in Python and on SQLite, a native uuid on Postgres."""

    impl = sa.Uuid(as_uuid=False)
    cache_ok = True

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> str | None:
        """Takes the dashes out that some drivers put in."""
        del dialect
        return None if value is None else value.replace("-", "")


def _required(name: str, kind: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False)


jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("id", HexId, primary_key=True),
    # What was asked; never changes.
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
    sa.Column("retry_of", HexId),
    # Where it stands.
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
    # SQLite: the id is the clustering key, one tree less to maintain. Ids grow with time, so inserts append.
    sqlite_with_rowid=False,
    # Postgres: room for the next version of a row on its own page, and vacuum before dead rows pile up.
    postgresql_with={"fillfactor": 80, "autovacuum_vacuum_scale_factor": 0.02},
)

job_inputs = sa.Table(
    "job_inputs",
    metadata,
    sa.Column("id", HexId, primary_key=True),
    sa.Column("traceparent", sa.Text),
    _required("parameters", sa.LargeBinary),
    sa.Column("metadata", sa.LargeBinary),
    # Last, so that a look-up of the metadata never walks through the pages of large inputs.
    _required("inputs", sa.LargeBinary),
)

job_results = sa.Table(
    "job_results",
    metadata,
    sa.Column("id", HexId, primary_key=True),
    sa.Column("provenance", sa.Text),
    # No format means: there is no result (the job failed, or its result was removed).
    sa.Column("format", sa.Text),
    sa.Column("blob_key", sa.Text),
    sa.Column("data", sa.LargeBinary),
)

idempotency_keys = sa.Table(
    "idempotency_keys",
    metadata,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    _required("job_id", HexId),
    _required("fingerprint", sa.Text),
    _required("created_at", sa.Double),
    sqlite_with_rowid=False,
)

workers = sa.Table(
    "workers",
    metadata,
    sa.Column("boot", sa.Text, primary_key=True),
    _required("name", sa.Text),
    _required("pid", sa.Integer),
    _required("state", sa.Text),
    # A JSON array of names; empty for all models.
    _required("models", sa.Text),
    _required("registered_at", sa.Double),
    _required("seen_at", sa.Double),
)


def _partial(name: str, *columns: str, where: str) -> sa.Index:
    condition = sa.text(where)
    return sa.Index(name, *(jobs.c[column] for column in columns), sqlite_where=condition, postgresql_where=condition)


# "Announce what is due", oldest first; also "is anything due?" in one probe.
_partial("jobs_queued_by_announce_at", "announce_at", where="state = 'queued'")

# "Expire what waited too long."
_partial("jobs_queued_by_expires_at", "expires_at", where="state = 'queued' AND expires_at IS NOT NULL")

# "Every flow gets its share": hop from flow to flow, take the oldest of each; count the queue without the rows.
_partial("jobs_queued_by_flow", "model", "lane", "tenant", "run_at", where="state = 'queued'")

# "Whose owner is dead?" and "which run is past its deadline?": the first entry of each owner tells.
_partial("jobs_running_by_owner", "owner", "deadline_at", where="state = 'running'")

# "Which of my jobs were cancelled under me?", empty nearly always.
_partial("jobs_cancelled_by_owner", "owner", where="state = 'cancelled' AND owner IS NOT NULL")

# "The dead letters of this tenant, newest first."
_partial("jobs_failed_by_tenant", "tenant", "id", where="state = 'failed'")

# "The jobs of this tenant, newest first."
sa.Index("jobs_by_tenant", jobs.c.tenant, jobs.c.id)

"""What is stored: table definitions and, beside each index, the rule that it serves.

`jobs` is the small, often rewritten row. What is written once lies elsewhere, so that a change of state never
rewrites it: `job_inputs` at submission, `job_results` at the settle. Times are Unix seconds by the database's
clock. There are no foreign keys between the hot tables (each would cost an index probe per row); whoever deletes
a job deletes its rows in `job_inputs`, `job_results` and `idempotency_keys` in the same transaction.
"""

import sqlalchemy as sa

from batchfleet.database.metadata import HexId, metadata, required

jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("id", HexId, primary_key=True),
    # What was asked; never changes.
    required("tenant", sa.Text),
    required("model", sa.Text),
    required("version", sa.Text),
    required("adapter", sa.Text),
    required("lane", sa.Text),
    required("on_item_error", sa.Text),
    required("item_count", sa.Integer),
    required("input_bytes", sa.BigInteger),
    required("max_attempts", sa.Integer),
    required("run_timeout_s", sa.Double),
    required("submitted_at", sa.Double),
    sa.Column("expires_at", sa.Double),
    sa.Column("retry_of", HexId),
    # Where it stands.
    required("state", sa.Text),
    required("epoch", sa.BigInteger),
    required("attempts", sa.Integer),
    required("crashes", sa.Integer),
    required("suspect", sa.Integer),
    required("run_at", sa.Double),
    required("announce_at", sa.Double),
    required("announce_count", sa.Integer),
    sa.Column("owner", sa.Text),
    sa.Column("started_at", sa.Double),
    sa.Column("deadline_at", sa.Double),
    sa.Column("finished_at", sa.Double),
    sa.Column("error_code", sa.Text),
    sa.Column("error_message", sa.Text),
    sa.Column("error_item", sa.Integer),
    # Which of `job_links` it has (`LinkFlag`): those that have none, nearly all, cost no look into that table. The
    # default is for processes of the version before, which do not know of it.
    sa.Column("links", sa.Integer, nullable=False, server_default=sa.text("0")),
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
    required("parameters", sa.LargeBinary),
    sa.Column("metadata", sa.LargeBinary),
    # Last, so that a look-up of the metadata never walks through the pages of large inputs.
    required("inputs", sa.LargeBinary),
)

# Where a job's inputs come from, and who is owed what at its end; only for jobs that have any.
job_links = sa.Table(
    "job_links",
    metadata,
    sa.Column("id", HexId, primary_key=True),
    sa.Column("input_uri", sa.Text),
    sa.Column("output_uri", sa.Text),
    sa.Column("callback_url", sa.Text),
)

# What the ends of jobs owe to others; written in the transaction that ends the job, paid by `batchfleet.outbox`.
outbox = sa.Table(
    "outbox",
    metadata,
    sa.Column("id", HexId, primary_key=True),
    required("kind", sa.Text),
    required("tenant", sa.Text),
    required("job_id", HexId),
    required("target", sa.Text),
    required("event", sa.Text),
    required("state", sa.Text),
    required("attempts", sa.Integer),
    required("epoch", sa.BigInteger),
    required("created_at", sa.Double),
    required("due_at", sa.Double),
    # No attempt begins before: while one runs, when it counts as lost; after a failed one, when the next is due.
    sa.Column("leased_until", sa.Double),
    sa.Column("finished_at", sa.Double),
    sa.Column("last_status", sa.Integer),
    sa.Column("last_error", sa.Text),
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
    # When its job ended. The default is for processes of the version before, which do not know of it.
    sa.Column("stored_at", sa.Double, nullable=False, server_default=sa.text("0")),
)

idempotency_keys = sa.Table(
    "idempotency_keys",
    metadata,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    required("job_id", HexId),
    required("fingerprint", sa.Text),
    required("created_at", sa.Double),
    sqlite_with_rowid=False,
)

workers = sa.Table(
    "workers",
    metadata,
    sa.Column("boot", sa.Text, primary_key=True),
    required("name", sa.Text),
    required("pid", sa.Integer),
    required("state", sa.Text),
    # A JSON array of names; empty for all models.
    required("models", sa.Text),
    required("registered_at", sa.Double),
    required("seen_at", sa.Double),
)


def _partial(name: str, *columns: str, where: str, table: sa.Table = jobs) -> sa.Index:
    condition = sa.text(where)
    return sa.Index(name, *(table.c[column] for column in columns), sqlite_where=condition, postgresql_where=condition)


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

# "The jobs of this tenant, newest first." Postgres would also reach jobs by their ids through it, all of them, while it
# takes the table for empty: the condition, which only listings state, keeps it to itself.
LISTED = "tenant <> ''"
sa.Index("jobs_by_tenant", jobs.c.tenant, jobs.c.id, postgresql_where=sa.text(LISTED))

# "Which jobs ended long ago?", oldest first. In the order of ids, jobs that were submitted long before they ran would
# stand in the way. With the next one it costs the settle 0.6 µs a row on SQLite and 2.6 µs on Postgres, measured.
_partial("jobs_ended_by_finished_at", "finished_at", where="finished_at IS NOT NULL")

# "Which results are too old?", oldest first: those that were removed are not in it.
_partial("job_results_by_stored_at", "stored_at", where="format IS NOT NULL", table=job_results)

# "Which keys go with this job?", when it is deleted.
sa.Index("idempotency_keys_by_job", idempotency_keys.c.job_id)

# "What is to be delivered now?"
sa.Index(
    "outbox_pending_by_due_at",
    outbox.c.due_at,
    sqlite_where=sa.text("state = 'pending'"),
    postgresql_where=sa.text("state = 'pending'"),
)

# "The deliveries of this tenant, newest first."
sa.Index("outbox_by_tenant", outbox.c.tenant, outbox.c.id, postgresql_where=sa.text(LISTED))

# "Which deliveries were finished long ago?", oldest first.
_partial("outbox_finished_by_finished_at", "finished_at", where="finished_at IS NOT NULL", table=outbox)

# A job owes each thing once, however often its end is written.
sa.Index("outbox_once", outbox.c.job_id, outbox.c.kind, unique=True)

"""Rescue and bury: running jobs that nobody will settle any more.

Both read the jobs, let the pure functions of `retry` decide, and write the verdicts back in one statement that
names each job's epoch, in the same transaction, so that nothing can be settled between reading and writing. The
epoch is raised: whatever the former owner still writes is stale.
"""

from collections.abc import Callable, Iterable, Sequence

import orjson

from batchfleet.database.statements import fragment, records, sql
from batchfleet.database.transaction import Transaction
from batchfleet.jobs.job import BootId, JobId, RescueOutcome
from batchfleet.jobs.sql import leases
from batchfleet.jobs.sql.debts import owe
from batchfleet.jobs.states import JobState
from batchfleet.jobs.verdict import RunningJob, Verdict, after_death, after_timeout

OWNERS = fragment(
    """
    WITH RECURSIVE hop(owner) AS (
        SELECT MIN(owner) FROM jobs WHERE state = 'running'
        UNION ALL
        SELECT (SELECT MIN(j.owner) FROM jobs j WHERE j.state = 'running' AND j.owner > hop.owner)
        FROM hop WHERE hop.owner IS NOT NULL
    ),
    owners AS (
        SELECT hop.owner, w.seen_at,
               (SELECT MIN(j.deadline_at) FROM jobs j WHERE j.state = 'running' AND j.owner = hop.owner) AS deadline_at
        FROM hop LEFT JOIN workers w ON w.boot = hop.owner WHERE hop.owner IS NOT NULL
    )
    """,
)
"""`owners`: each boot that runs jobs, its last heartbeat (NULL without a lease), the first deadline of its jobs."""
_OWNERS = sql("{owners} SELECT owner, seen_at, deadline_at FROM owners", owners=OWNERS)
_SILENT = sql("SELECT boot FROM workers WHERE seen_at < :silent_since ORDER BY boot")
_COLUMNS = "j.id, j.epoch, j.attempts, j.max_attempts, j.crashes, j.suspect, j.expires_at"
_RUNNING = sql(
    f"""
    SELECT {_COLUMNS} FROM jobs j
    WHERE j.state = 'running' AND j.owner = :boot AND j.deadline_at < :before
    ORDER BY j.deadline_at LIMIT :limit {{skip_locked}}
    """,  # noqa: S608 - columns of ours
)
_OWNED = sql("SELECT 1 FROM jobs WHERE state = 'running' AND owner = :boot LIMIT 1")
_WRITE = sql(
    """
    UPDATE jobs
    SET state = r.state, epoch = jobs.epoch + 1, owner = NULL, attempts = r.attempts, crashes = r.crashes,
        suspect = r.suspect,
        error_code = COALESCE(r.code, error_code),
        error_message = CASE WHEN r.code IS NULL THEN error_message ELSE r.message END,
        error_item = CASE WHEN r.code IS NULL THEN error_item END,
        started_at = CASE WHEN r.state = 'queued' THEN NULL ELSE started_at END,
        finished_at = CASE WHEN r.state = 'queued' THEN NULL ELSE :now END,
        run_at = CASE WHEN r.state = 'queued' AND r.delay > 0 THEN :now + r.delay ELSE run_at END,
        announce_at = :now + r.delay, announce_count = 0
    FROM {rows} WHERE {named} AND jobs.epoch = r.epoch AND {jobs_state} = 'running'
    RETURNING jobs.id, jobs.state, jobs.links
    """,
    rows=records(
        "r",
        id="uuid",
        epoch="bigint",
        state="text",
        attempts="int",
        crashes="int",
        suspect="int",
        delay="float8",
        code="text",
        message="text",
    ),
)
_FOR_EVER = 1e300
_ALL = 2**31 - 1


def rescue(tx: Transaction, lease_ttl_s: float, limit: int, jitter: Callable[[], float]) -> RescueOutcome:
    """Takes the jobs of dead boots and of wedged runs, at most `limit`; see `JobStore.rescue`."""
    silent_since = tx.now - lease_ttl_s
    verdicts: list[Verdict] = []
    for owner, seen_at, deadline in tx.rows(_OWNERS, {}):
        left = limit - len(verdicts)
        if left <= 0:
            break
        if seen_at is None or seen_at < silent_since:
            verdicts += [after_death(job, tx.now) for job in _running(tx, owner, _FOR_EVER, left)]
        elif deadline < tx.now:
            verdicts += [after_timeout(job, tx.now, jitter()) for job in _running(tx, owner, tx.now, left)]
    requeued, ended = _write(tx, verdicts)
    silent = [row[0] for row in tx.rows(_SILENT, {"silent_since": silent_since})]
    dead = [boot for boot in silent if not tx.rows(_OWNED, {"boot": boot}) and leases.retire(tx, boot)]
    return RescueOutcome(requeued, ended, tuple(dead))


def bury(tx: Transaction, boot: BootId, in_pass: Iterable[JobId]) -> RescueOutcome:
    """Declares a boot dead whose journal is at hand; see `JobStore.bury`."""
    suspects = frozenset(in_pass)
    running = _running(tx, boot, _FOR_EVER, _ALL)
    verdicts = [after_death(job, tx.now, in_pass=job.id in suspects) for job in running]
    requeued, ended = _write(tx, verdicts)
    dead = (boot,) if leases.retire(tx, boot) else ()
    return RescueOutcome(requeued, ended, dead)


def _running(tx: Transaction, boot: BootId, before: float, limit: int) -> list[RunningJob]:
    found = tx.rows(_RUNNING, {"boot": boot, "before": before, "limit": limit})
    return [
        RunningJob(job_id, epoch, attempts, max_attempts, crashes, bool(suspect), expires_at)
        for job_id, epoch, attempts, max_attempts, crashes, suspect, expires_at in found
    ]


def _write(
    tx: Transaction, verdicts: Sequence[Verdict]
) -> tuple[tuple[JobId, ...], tuple[tuple[JobId, JobState], ...]]:
    if not verdicts:
        return (), ()
    rows = [_row(verdict) for verdict in verdicts]
    written = tx.rows(_WRITE, {"rows": orjson.dumps(rows).decode(), "now": tx.now})
    requeued = tuple(job_id for job_id, state, _ in written if state == "queued")
    ended = tuple((job_id, JobState(state)) for job_id, state, _ in written if state != "queued")
    owe(tx, ((job_id, JobState(state), links) for job_id, state, links in written if links))
    return requeued, ended


def _row(verdict: Verdict) -> list[object]:
    error = verdict.error
    return [
        verdict.id,
        verdict.epoch,
        verdict.state.value,
        verdict.attempts,
        verdict.crashes,
        int(verdict.suspect),
        verdict.delay_s,
        None if error is None else error.code,
        None if error is None else error.message,
    ]

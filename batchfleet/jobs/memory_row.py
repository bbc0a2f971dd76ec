"""One job of the store in memory, and what each operation does to it. Not safe from several threads by itself."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from batchfleet.jobs.announce import ANNOUNCER_S
from batchfleet.jobs.fairness import Candidate
from batchfleet.jobs.job import (
    BootId,
    ClaimedJob,
    JobError,
    JobFilter,
    JobRecord,
    NewJob,
    Settlement,
    StoredResult,
)
from batchfleet.jobs.retry import is_dead_letter
from batchfleet.jobs.states import JobState
from batchfleet.jobs.text import storable
from batchfleet.jobs.verdict import RunningJob, Verdict


@dataclass(slots=True)
class MemoryRow:
    """A job and all that is known of it."""

    asked: NewJob
    record: JobRecord
    announce_at: float
    announce_count: int = 0
    suspect: bool = False
    owner: BootId | None = None
    deadline_at: float = 0.0

    @property
    def state(self) -> JobState:
        """Where the job stands."""
        return self.record.state

    def change(self, **changes: object) -> None:
        """Replaces fields of the record."""
        self.record = replace(self.record, **changes)  # type: ignore[arg-type]

    def startable(self, now: float) -> bool:
        """Returns whether a worker may claim it."""
        return self.state is JobState.QUEUED and self.record.run_at <= now and not self.overdue(now)

    def overdue(self, now: float) -> bool:
        """Returns whether its time to live is over."""
        return self.record.expires_at is not None and self.record.expires_at <= now


def new_row(job: NewJob, now: float) -> MemoryRow:
    """Returns the row of a job submitted now."""
    run_at = now if job.run_at is None else max(now, job.run_at)
    record = JobRecord(
        id=job.id,
        tenant=job.tenant,
        model=job.model,
        version=job.version,
        adapter=job.adapter,
        lane=job.lane,
        state=JobState.QUEUED,
        item_count=job.item_count,
        epoch=0,
        attempts=0,
        crashes=0,
        max_attempts=job.max_attempts,
        submitted_at=now,
        run_at=run_at,
        started_at=None,
        finished_at=None,
        expires_at=None if job.ttl_s is None else now + job.ttl_s,
        metadata=job.metadata,
        retry_of=job.retry_of,
        links=job.links,
        traceparent=job.traceparent,
    )
    announce_at = max(run_at, now + ANNOUNCER_S) if job.announced_by_submitter else run_at
    return MemoryRow(job, record, announce_at)


def claim(row: MemoryRow, boot: BootId, now: float) -> ClaimedJob:
    """Gives the job to a boot."""
    row.change(state=JobState.RUNNING, epoch=row.record.epoch + 1, started_at=now)
    row.owner = boot
    row.deadline_at = now + row.asked.run_timeout_s
    asked, record = row.asked, row.record
    return ClaimedJob(
        id=record.id,
        epoch=record.epoch,
        model=record.model,
        version=record.version,
        adapter=record.adapter,
        tenant=record.tenant,
        lane=record.lane,
        inputs=asked.inputs,
        item_count=asked.item_count,
        parameters=asked.parameters,
        on_item_error=asked.on_item_error,
        attempts=record.attempts,
        max_attempts=record.max_attempts,
        crashes=record.crashes,
        suspect=row.suspect,
        age_s=max(0.0, now - record.run_at),
        ttl_left_s=None if record.expires_at is None else record.expires_at - now,
        run_timeout_s=asked.run_timeout_s,
        traceparent=asked.traceparent,
        input_uri=asked.links.input_uri,
    )


def settle(row: MemoryRow, settlement: Settlement, block: bytes, now: float) -> None:
    """Ends the job as its owner says, or queues it for a retry."""
    given = settlement.error
    error = None if given is None else JobError(storable(given.code), storable(given.message), given.item)
    attempts = row.record.attempts + (settlement.state in {JobState.FAILED, JobState.QUEUED})
    row.change(attempts=attempts, error=error)
    if settlement.state is JobState.QUEUED:
        requeue(row, now, JobState.QUEUED, delay_s=settlement.retry_in_s)
        row.change(run_at=now + settlement.retry_in_s)
        return
    row.owner = None
    result = _result(settlement, block) if settlement.state is JobState.SUCCEEDED else None
    row.change(state=settlement.state, finished_at=now, provenance=settlement.provenance, result=result)


def _result(settlement: Settlement, block: bytes) -> StoredResult:
    end = settlement.offset + settlement.length
    data = None if settlement.blob_key is not None else bytes(block[settlement.offset : end])
    return StoredResult(format=settlement.format or "", data=data, blob_key=settlement.blob_key)


def requeue(row: MemoryRow, now: float, state: JobState, *, delay_s: float = 0.0) -> None:
    """Takes the job off its owner: queued again, or ended."""
    row.owner = None
    row.announce_at = now + delay_s
    row.announce_count = 0
    if state is JobState.QUEUED:
        row.change(state=state, started_at=None)
    else:
        row.change(state=state, finished_at=now)


def judge(row: MemoryRow, verdict: Verdict, now: float) -> None:
    """Takes the job from an owner that cannot settle it."""
    requeue(row, now, verdict.state, delay_s=verdict.delay_s)
    row.suspect = verdict.suspect
    row.change(epoch=row.record.epoch + 1, attempts=verdict.attempts, crashes=verdict.crashes)
    if verdict.error is not None:
        row.change(error=verdict.error)
    if verdict.delay_s > 0:
        row.change(run_at=now + verdict.delay_s)


def running_job(row: MemoryRow) -> RunningJob:
    """Returns what a verdict depends on."""
    record = row.record
    return RunningJob(
        record.id, record.epoch, record.attempts, record.max_attempts, record.crashes, row.suspect, record.expires_at
    )


def candidates(rows: Iterable[MemoryRow], now: float) -> list[Candidate]:
    """Returns the rows as candidates, oldest first."""
    ordered = sorted(rows, key=lambda row: (row.record.run_at, row.record.id))
    return [
        Candidate(
            row.record.id,
            row.record.lane,
            row.record.model,
            row.record.tenant,
            row.record.item_count,
            row.asked.input_bytes,
            max(0.0, now - row.record.run_at),
        )
        for row in ordered
    ]


def matches(record: JobRecord, wanted: JobFilter) -> bool:
    """Returns whether a listing shows the job."""
    code = None if record.error is None else record.error.code
    dead = record.state is JobState.FAILED and is_dead_letter(record.attempts, record.max_attempts, code)
    return (
        (wanted.tenant is None or record.tenant == wanted.tenant)
        and (not wanted.states or record.state in wanted.states)
        and (wanted.model is None or record.model == wanted.model)
        and (wanted.after is None or record.id < wanted.after)
        and (not wanted.dead_letters or dead)
    )

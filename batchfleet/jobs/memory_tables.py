"""What the store in memory holds, and how its rows are found. Not safe from several threads by itself."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from batchfleet.jobs.debts import OUTPUT, PENDING, WEBHOOK, Debt, event_of, kinds_owed
from batchfleet.jobs.job import BootId, JobId, WorkerLease
from batchfleet.jobs.memory_row import MemoryRow, judge
from batchfleet.jobs.states import JobState
from batchfleet.jobs.verdict import Verdict


@dataclass(slots=True)
class MemoryLease:
    """A lease, and when it was last renewed."""

    lease: WorkerLease
    seen_at: float


@dataclass(slots=True)
class MemoryTables:
    """Jobs by id, idempotency keys (job and fingerprint) by tenant and key, leases by boot, and the outbox."""

    rows: dict[JobId, MemoryRow] = field(default_factory=dict)
    keys: dict[tuple[str, str], tuple[JobId, str]] = field(default_factory=dict)
    leases: dict[BootId, MemoryLease] = field(default_factory=dict)
    debts: dict[tuple[JobId, str], Debt] = field(default_factory=dict)

    def known(self, ids: Iterable[JobId], tenant: str | None) -> list[MemoryRow]:
        """Returns the jobs that exist (for the tenant, if given), in the order of the ids, each once."""
        rows = [self.rows[job_id] for job_id in dict.fromkeys(ids) if job_id in self.rows]
        return [row for row in rows if tenant is None or row.asked.tenant == tenant]

    def owned(self, boot: BootId, job_id: JobId, epoch: int) -> MemoryRow | None:
        """Returns the job if it runs under this owner and epoch."""
        row = self.rows.get(job_id)
        owned = row is not None and row.state is JobState.RUNNING and row.owner == boot and row.record.epoch == epoch
        return row if owned else None

    def running_of(self, boot: BootId) -> list[MemoryRow]:
        """Returns the jobs that the boot owns, the first deadline first."""
        rows = [row for row in self.rows.values() if row.state is JobState.RUNNING and row.owner == boot]
        return sorted(rows, key=lambda row: (row.deadline_at, row.record.id))

    def silent(self, since: float) -> list[BootId]:
        """Returns the boots that have not renewed their lease since."""
        return sorted(boot for boot, held in self.leases.items() if held.seen_at < since)

    def take_revoked(self, boot: BootId) -> list[JobId]:
        """Takes the boot off jobs that were cancelled under it, and returns them."""
        rows = [row for row in self.rows.values() if row.owner == boot and row.state is JobState.CANCELLED]
        for row in rows:
            row.owner = None
        return [row.record.id for row in rows]

    def retire(self, boot: BootId) -> bool:
        """Removes the lease; returns whether there was one."""
        self.take_revoked(boot)
        return self.leases.pop(boot, None) is not None

    def owe(self, row: MemoryRow, now: float) -> None:
        """Writes what the job owes if it has ended; each thing once."""
        links = row.record.links
        targets = {WEBHOOK: links.callback_url, OUTPUT: links.output_uri}
        for kind in kinds_owed(links.flags, row.state):
            debt = Debt(
                job_id=row.record.id,
                kind=kind,
                tenant=row.asked.tenant,
                target=targets[kind] or "",
                event=event_of(row.state),
                created_at=now,
            )
            self.debts.setdefault((debt.job_id, kind), debt)

    def owes(self, job_id: JobId, *kinds: str) -> bool:
        """Returns whether anything of these kinds is still owed of the job."""
        debts = (self.debts.get((job_id, kind)) for kind in kinds)
        return any(debt is not None and debt.state == PENDING for debt in debts)

    def pay(self) -> None:
        """Marks all debts as paid."""
        self.debts = {name: replace(debt, state="delivered") for name, debt in self.debts.items()}

    def apply(
        self, verdicts: Iterable[Verdict], now: float
    ) -> tuple[tuple[JobId, ...], tuple[tuple[JobId, JobState], ...]]:
        """Writes verdicts; returns the jobs that are queued again, and those that ended."""
        requeued: list[JobId] = []
        ended: list[tuple[JobId, JobState]] = []
        for verdict in verdicts:
            row = self.rows[verdict.id]
            judge(row, verdict, now)
            self.owe(row, now)
            if row.state is JobState.QUEUED:
                requeued.append(verdict.id)
            else:
                ended.append((verdict.id, row.state))
        return tuple(requeued), tuple(ended)

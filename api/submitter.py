"""The one writer of a process: inserts jobs, one transaction for all that arrived while the last one committed.

A request pays for no neighbour: a group that fails for a bad member is halved until the member stands alone.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from api.coalesce import Coalescer
from batchfleet.errors import StoreUnavailableError
from batchfleet.jobs.job import Announcement, Deleted, JobId, NewJob, Submitted, format_job_id
from batchfleet.jobs.states import JobState
from batchfleet.jobs.store import JobStore
from batchfleet.logs import Action

logger = logging.getLogger(__name__)

Outcome: TypeAlias = Submitted | Exception
"""What became of one job of a request."""

Announce: TypeAlias = Callable[[Sequence[Announcement]], None]
"""Hands committed jobs to the announcer; must not block."""

Cancelled: TypeAlias = tuple[JobId, JobState, bool]

MAX_JOBS_PER_TRANSACTION = 1_000
"""Bounds how long a single online job waits behind a bulk request: some 20 ms."""

MAX_JOBS_WAITING = 50_000


class Submitter:
    """Writes jobs, cancellations and removals through one thread.

    Args:
        store: The truth.
        announce: Called on the writer's thread after the commit, with the jobs that are due now.
    """

    def __init__(self, store: JobStore, announce: Announce) -> None:
        self._store = store
        self._announce = announce
        self._writer: Coalescer[Sequence[NewJob] | _Change, Any] = Coalescer(
            "submitter",
            self._work,
            weigh=_weight,
            max_group=MAX_JOBS_PER_TRANSACTION,
            max_waiting=MAX_JOBS_WAITING,
        )

    def start(self) -> None:
        """Starts the writer; call it on the running event loop."""
        self._writer.start()

    async def close(self) -> None:
        """Writes what waits and ends the thread; idempotent."""
        await self._writer.close()

    async def submit(self, jobs: Sequence[NewJob]) -> list[Outcome]:
        """Inserts the jobs of one request; each has its own outcome.

        More jobs than fit into one transaction go in slices, between which other requests get their turn.

        Raises:
            OverloadedError: If too many jobs wait for the database.
            StoreUnavailableError: If the database cannot be reached; jobs of earlier slices stay submitted.
        """
        outcomes: list[Outcome] = []
        for start in range(0, len(jobs), MAX_JOBS_PER_TRANSACTION):
            part = jobs[start : start + MAX_JOBS_PER_TRANSACTION]
            outcomes += await self._writer.ask(part)
        return outcomes

    async def cancel(self, job_id: JobId, *, tenant: str) -> Cancelled | None:
        """Cancels a job. Returns its id, state now and whether this changed it; None if there is no such job."""
        answer: list[Cancelled] = await self._writer.ask(_Change(lambda: self._store.cancel([job_id], tenant=tenant)))
        return answer[0] if answer else None

    async def delete(self, job_id: JobId, *, tenant: str) -> Deleted | None:
        """Removes a job if it has ended. Returns its state; None if there is no such job."""
        answer: list[Deleted] = await self._writer.ask(_Change(lambda: self._store.delete([job_id], tenant=tenant)))
        return answer[0] if answer else None

    def _work(self, group: list["Sequence[NewJob] | _Change"]) -> list[Any]:
        jobs = [job for member in group if not isinstance(member, _Change) for job in member]
        inserted = iter(self._insert(jobs) if jobs else ())
        answers: list[Any] = []
        for member in group:
            if isinstance(member, _Change):
                answers.append(self._apply(member))
            else:
                answers.append(_whole_or_outage([next(inserted) for _ in member]))
        return answers

    def _insert(self, jobs: Sequence[NewJob]) -> list[Outcome]:
        try:
            submitted: list[Outcome] = list(self._store.submit(jobs))
        except StoreUnavailableError as exc:
            return [exc] * len(jobs)
        except Exception as exc:
            if len(jobs) == 1:
                extra = {"action": Action.JOB_UNWRITTEN, "job": format_job_id(jobs[0].id), "tenant": jobs[0].tenant}
                logger.exception("a job cannot be inserted", extra=extra)
                return [exc]
            middle = len(jobs) // 2
            return self._insert(jobs[:middle]) + self._insert(jobs[middle:])
        self._ring_for(jobs, submitted)
        return submitted

    def _ring_for(self, jobs: Sequence[NewJob], submitted: Sequence[Outcome]) -> None:
        due = [
            Announcement(job.id, job.model, job.lane, job.tenant, len(job.inputs), job.item_count)
            for job, outcome in zip(jobs, submitted, strict=True)
            if job.announced_by_submitter and isinstance(outcome, Submitted) and outcome.created
        ]
        if due:
            self._announce(due)

    @staticmethod
    def _apply(change: "_Change") -> Any:
        try:
            return change.work()
        except Exception as exc:  # noqa: BLE001 - raised to its own caller
            return exc


@dataclass(frozen=True, slots=True)
class _Change:
    """Another change of jobs (cancelled, removed) among the members of a group: a transaction of its own."""

    work: Callable[[], Any]


def _weight(member: Sequence[NewJob] | _Change) -> int:
    return 1 if isinstance(member, _Change) else len(member)


def _whole_or_outage(outcomes: list[Outcome]) -> list[Outcome] | Exception:
    """An outage concerns the whole request: the caller is told 503, not a list of 503s."""
    for outcome in outcomes:
        if isinstance(outcome, StoreUnavailableError):
            return outcome
    return outcomes

"""The one reader of a process: look-ups of jobs, merged into one statement, and the other reads."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from api.coalesce import Coalescer
from batchfleet.errors import BatchfleetError, JobNotFoundError
from batchfleet.jobs.job import JobId, JobRecord, format_job_id
from batchfleet.jobs.store import JobStore

logger = logging.getLogger(__name__)

R = TypeVar("R")
Records: TypeAlias = dict[JobId, JobRecord]

IDS_PER_STATEMENT = 1_000
RESULTS_PER_STATEMENT = 64
"""Results may be a megabyte each: so many are in memory at once."""

MAX_WAITING = 2_000_000
"""A ring may wake very many waiters at once, who all read their job then: none of them is turned away."""


@dataclass(frozen=True, slots=True)
class _LookUp:
    ids: Sequence[JobId]
    with_results: bool


@dataclass(frozen=True, slots=True)
class _Call:
    read: Callable[[], Any]


class Lookups:
    """Reads through one thread; look-ups that arrive while another one runs become one statement.

    Args:
        store: The truth.
    """

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._reader: Coalescer[_LookUp | _Call, Any] = Coalescer(
            "reader", self._work, weigh=_weight, max_group=IDS_PER_STATEMENT, max_waiting=MAX_WAITING
        )

    def start(self) -> None:
        """Starts the reader; call it on the running event loop."""
        self._reader.start()

    async def close(self) -> None:
        """Answers what waits and ends the thread; idempotent."""
        await self._reader.close()

    async def many(self, ids: Sequence[JobId], *, tenant: str, with_results: bool = False) -> Records:
        """Returns those of the jobs that exist and belong to the tenant, by id.

        Raises:
            StoreUnavailableError: If the database cannot be reached.
            OverloadedError: If too many look-ups wait for it.
        """
        found: Records = {}
        step = RESULTS_PER_STATEMENT if with_results else IDS_PER_STATEMENT
        for start in range(0, len(ids), step):
            records: Records = await self._reader.ask(_LookUp(ids[start : start + step], with_results))
            found.update((key, record) for key, record in records.items() if record.tenant == tenant)
        return found

    async def one(self, job_id: JobId, *, tenant: str, with_result: bool = False) -> JobRecord:
        """Returns one job.

        Raises:
            JobNotFoundError: If there is no such job for this tenant.
            StoreUnavailableError: If the database cannot be reached.
        """
        records: Records = await self._reader.ask(_LookUp((job_id,), with_result))
        record = records.get(job_id)
        if record is None or record.tenant != tenant:
            raise no_job(job_id)
        return record

    async def ended(self, ids: Sequence[JobId]) -> list[JobId]:
        """Returns those of the jobs that cannot change any more: ended, or not there at all."""
        ended: list[JobId] = []
        for start in range(0, len(ids), IDS_PER_STATEMENT):
            part = ids[start : start + IDS_PER_STATEMENT]
            records: Records = await self._reader.ask(_LookUp(part, with_results=False))
            ended += [key for key in part if key not in records or records[key].state.terminal]
        return ended

    def read_now(self, ids: Sequence[JobId]) -> Iterator[list[JobRecord]]:
        """Yields the jobs with their results, in parts, read on the calling thread; none more once a read fails."""
        for start in range(0, len(ids), RESULTS_PER_STATEMENT):
            try:
                yield self._store.look_up(ids[start : start + RESULTS_PER_STATEMENT], with_results=True)
            except BatchfleetError as error:
                logger.debug("jobs of a ring cannot be read: %s", error)
                return

    async def call(self, read: Callable[[], R]) -> R:
        """Runs any other read on the reader's thread."""
        answer: R = await self._reader.ask(_Call(read))
        return answer

    def _work(self, group: list[_LookUp | _Call]) -> list[Any]:
        plain = self._merged(group, with_results=False)
        rich = self._merged(group, with_results=True)
        return [
            self._run(member) if isinstance(member, _Call) else _part(rich if member.with_results else plain, member)
            for member in group
        ]

    def _merged(self, group: list[_LookUp | _Call], *, with_results: bool) -> Records | Exception:
        wanted = {
            job_id: None
            for member in group
            if isinstance(member, _LookUp) and member.with_results == with_results
            for job_id in member.ids
        }
        if not wanted:
            return {}
        try:
            records = self._store.look_up(list(wanted), with_results=with_results)
        except Exception as exc:  # noqa: BLE001 - raised to the callers of these look-ups alone
            return exc
        return {record.id: record for record in records}

    @staticmethod
    def _run(call: _Call) -> Any:
        try:
            return call.read()
        except Exception as exc:  # noqa: BLE001 - raised to its own caller
            return exc


def no_job(job_id: JobId) -> JobNotFoundError:
    """Returns the one answer to ids of nobody's and of other tenants' jobs."""
    return JobNotFoundError(f"no job {format_job_id(job_id)}")


def _part(records: Records | Exception, member: _LookUp) -> Records | Exception:
    if isinstance(records, Exception):
        return records
    return {job_id: records[job_id] for job_id in member.ids if job_id in records}


def _weight(member: _LookUp | _Call) -> int:
    if isinstance(member, _Call):
        return 1
    # A group of look-ups with results must not hold more of them than one statement may.
    return len(member.ids) * (IDS_PER_STATEMENT // RESULTS_PER_STATEMENT if member.with_results else 1)

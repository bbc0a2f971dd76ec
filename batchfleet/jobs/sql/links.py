"""Links: where inputs come from and who is owed what, kept apart since few jobs have any."""

from collections.abc import Iterable, Sequence

from batchfleet.database.statements import sql
from batchfleet.database.transaction import Transaction
from batchfleet.jobs.job import NO_LINKS, JobId, JobLinks, NewJob
from batchfleet.jobs.sql.tables import job_links

_LINKS = sql("SELECT id, input_uri, output_uri, callback_url FROM job_links WHERE id {in_ids}")


def flags_of(job: NewJob) -> int:
    """Returns the job's `LinkFlag`s as they are stored."""
    return 0 if job.links is NO_LINKS else int(job.links.flags)


def insert_links(tx: Transaction, new: Iterable[NewJob]) -> None:
    """Stores the links of jobs that have any."""
    rows = [
        (job.id, job.links.input_uri, job.links.output_uri, job.links.callback_url)
        for job in new
        if job.links is not NO_LINKS and job.links.flags
    ]
    if rows:
        tx.insert(job_links, rows)


def links_of(tx: Transaction, ids: Sequence[JobId]) -> dict[JobId, JobLinks]:
    """Returns the links of jobs that have any; no id, no query."""
    if not ids:
        return {}
    return {
        job_id: JobLinks(input_uri=input_uri, output_uri=output_uri, callback_url=callback_url)
        for job_id, input_uri, output_uri, callback_url in tx.rows(_LINKS, {"ids": tx.ids(ids)})
    }

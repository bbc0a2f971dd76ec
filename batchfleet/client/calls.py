"""The requests that several methods of the client are made of."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar
from urllib.parse import quote

import httpx
import msgspec

from batchfleet.client.errors import ApiError, ConnectionFailedError, NotFoundError, NotReadyError, about, seconds_of
from batchfleet.client.payload import CONTENT_TYPES, ResultForm
from batchfleet.client.transport import Transport, decoded
from batchfleet.client.values import PENDING_STATUSES, Job, JobList, JobStatus, JobStatusList
from batchfleet.client.waiting import LOOKUP_LIMIT

JSON = {"Content-Type": "application/json"}
LONGEST_WAIT_S = 60.0
"""For longer no fleet holds an answer."""

_EARLY_S = 0.25

T = TypeVar("T")


class Calls:
    """Requests about jobs.

    Args:
        transport: Sends them.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def of_job(
        self,
        method: str,
        job_id: str,
        path: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        wait_s: float = 0.0,
    ) -> httpx.Response:
        """Asks for something of one job; a refusal that there is none names it."""
        url = f"/v1/jobs/{quote(job_id, safe='')}{path}"
        held_s = min(wait_s, LONGEST_WAIT_S)
        try:
            return self._transport.send(
                method, url, params=params or wait_query(wait_s), headers=headers, wait_s=held_s
            )
        except NotFoundError as error:
            raise about(job_id, error) from None

    def get(self, job_id: str, wait_s: float) -> Job:
        """Returns a job; waits up to `wait_s` for its end."""
        return decoded(self.of_job("GET", job_id, wait_s=wait_s), Job)

    def look_up(self, ids: Iterable[str], *, results: bool) -> list[Job]:
        """Returns the jobs in the order named, a thousand a request."""
        jobs: list[Job] = []
        for part in _chunks(ids, LOOKUP_LIMIT):
            jobs += decoded(self._looked_up(part, results=results), JobList).jobs
        return jobs

    def ended(self, ids: Sequence[str]) -> dict[str, str]:
        """Returns the status of each of at most a thousand jobs that has ended; nothing else of them is decoded."""
        jobs = decoded(self._looked_up(ids, results=False), JobStatusList).jobs
        # What is no job, or was removed, will not end either: it must not be waited for.
        return {job.id: job.status for job in jobs if job.status not in PENDING_STATUSES}

    def held(self, job_id: str, wait_s: float) -> Job:
        """Lets the server hold an answer until the job ends."""
        clock = self._transport.clock
        began = clock()
        job = self.get(job_id, wait_s)
        left_s = wait_s - (clock() - began)
        if not job.ended and left_s > _EARLY_S:  # a process that stops answers at once: do not hurry it
            self._transport.sleep(_EARLY_S)
        return job

    def held_or_gone(self, job_id: str, wait_s: float) -> Job:
        """As `held`, for one of many: that it was removed meanwhile is told as a look-up does."""
        try:
            return self.held(job_id, wait_s)
        except NotFoundError:
            return Job(id=job_id, status="unknown")

    def result(self, job_id: str, form: ResultForm) -> httpx.Response:
        """Fetches a result in a form, from where the fleet's link leads if it gives one.

        Raises:
            NotReadyError: If the job has not ended yet.
        """
        headers = {"Accept": CONTENT_TYPES[form]}
        response = self.of_job("GET", job_id, "/result", headers=headers)
        if response.status_code == httpx.codes.ACCEPTED:  # not the result, but the job
            status = decoded(response, JobStatus).status
            raise NotReadyError(job_id, status, seconds_of(response.headers.get("Retry-After")))
        if response.status_code != httpx.codes.SEE_OTHER:
            return response
        try:
            return self._transport.follow(response.headers.get("Location", ""))
        except (ApiError, ConnectionFailedError):
            # Expired on the way, or the object store is out of our reach: the fleet can hand it out itself.
            return self.of_job("GET", job_id, "/result", headers=headers, params={"redirect": "false"})

    def _looked_up(self, ids: Sequence[str], *, results: bool) -> httpx.Response:
        asked = {"ids": list(ids)} | ({"include": ["result"]} if results else {})
        return self._transport.send("POST", "/v1/jobs/lookup", content=msgspec.json.encode(asked), headers=JSON)


def wait_query(wait_s: float) -> Mapping[str, str] | None:
    """Returns the query by which the server is asked to hold its answer."""
    return {"wait": f"{min(wait_s, LONGEST_WAIT_S):.3f}"} if wait_s > 0 else None


def _chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    source = iter(items)
    while part := list(islice(source, size)):
        yield part

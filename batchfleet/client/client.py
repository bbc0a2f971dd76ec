"""The client itself: one method for each thing that can be asked of a fleet."""

import io
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx
import msgspec
import numpy as np
from numpy.typing import NDArray

from batchfleet.client.errors import ConnectionFailedError, NotFoundError, NotReadyError, about, seconds_of
from batchfleet.client.transport import RetryPolicy, Transport, decoded
from batchfleet.client.values import (
    PENDING_STATUSES,
    Job,
    JobList,
    JobPage,
    JobRequest,
    JobStatus,
    JobStatusList,
    Model,
    ModelList,
    Submission,
    SubmissionList,
    check_inputs,
)
from batchfleet.client.waiting import LOOKUP_LIMIT, wait_for_all

DEFAULT_URL = "http://127.0.0.1:8080"
URL_VARIABLE = "BATCHFLEET_URL"
KEY_VARIABLE = "BATCHFLEET_API_KEY"

_JSON = {"Content-Type": "application/json"}
_NDJSON = {"Content-Type": "application/x-ndjson"}
_LONGEST_WAIT_S = 60.0

T = TypeVar("T")


class Client:
    """A synchronous client; use it as a context manager, from one thread at a time.

    Every call may raise `ApiError` (the fleet refused) or `ConnectionFailedError` (nobody answered), after
    retries where repeating is safe. Submissions carry an idempotency key of their own for that reason.

    Args:
        base_url: Where the fleet answers; default: `BATCHFLEET_URL`, or port 8080 of this machine.
        api_key: Sent as a bearer token; default: `BATCHFLEET_API_KEY`.
        timeout_s: For one answer, time that the server was asked to wait not included.
        policy: How requests are repeated.
        transport: For tests: an httpx transport in place of the network.
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        timeout_s: float = 30.0,
        policy: RetryPolicy | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._transport = Transport(
            base_url or os.environ.get(URL_VARIABLE) or DEFAULT_URL,
            api_key=api_key or os.environ.get(KEY_VARIABLE),
            timeout_s=timeout_s,
            policy=policy or RetryPolicy(),
            transport=transport,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._transport.close()

    # -- submitting ---------------------------------------------------------------------------------------

    def submit(self, model: str, inputs: Sequence[Any], *, wait_s: float = 0.0, **options: Any) -> Job:
        """Submits one job.

        Args:
            model: Name of the model.
            inputs: 1 to 1,024 items.
            wait_s: If positive, waits up to that long (60 s at most) for its end.
            options: Further fields of `JobRequest`.

        Raises:
            TypeError: If `inputs` is a single text.
        """
        check_inputs(inputs)
        request = JobRequest(model=model, inputs=list(inputs), **options)
        key = request.idempotency_key or uuid.uuid4().hex
        response = self._transport.send(
            "POST",
            "/v1/jobs",
            params=_wait(wait_s),
            content=msgspec.json.encode(msgspec.structs.replace(request, idempotency_key=None)),
            headers={**_JSON, "Idempotency-Key": key},
            wait_s=min(wait_s, _LONGEST_WAIT_S),
        )
        return decoded(response, Job)

    def submit_many(
        self,
        requests: Iterable[JobRequest],
        *,
        chunk: int = 1_000,
        keys: bool = True,
        progress: Callable[[int], None] | None = None,
    ) -> list[Submission]:
        """Submits jobs in bulk, `chunk` a request; one that is refused does not hinder the others.

        Args:
            requests: The jobs; may be a generator, which is read chunk by chunk.
            chunk: Jobs in one request.
            keys: Gives an idempotency key to each job that has none, so that a lost answer can be asked for
                again. Without keys a broken connection raises, and part of the chunk may have been taken.
            progress: Called with the number of jobs sent so far.

        Returns:
            One entry a job, in order.
        """
        submissions: list[Submission] = []
        for part in _chunks(requests, chunk):
            repeatable = keys or all(request.idempotency_key for request in part)
            content = msgspec.json.Encoder().encode_lines(_with_keys(part) if keys else part)
            response = self._transport.send(
                "POST", "/v1/jobs/bulk", content=content, headers=_NDJSON, repeatable=repeatable
            )
            first = len(submissions)
            answers = decoded(response, SubmissionList).jobs
            submissions += [msgspec.structs.replace(answer, index=first + answer.index) for answer in answers]
            if progress:
                progress(len(submissions))
        return submissions

    # -- asking -------------------------------------------------------------------------------------------

    def get(self, job_id: str, *, wait_s: float = 0.0) -> Job:
        """Returns a job, its result included where it is small; waits up to `wait_s` for its end."""
        return decoded(self._of_job("GET", job_id, wait_s=wait_s), Job)

    def look_up(self, ids: Sequence[str], *, results: bool = False) -> list[Job]:
        """Returns the jobs in the order named, a thousand a request; the status of what is no job is `unknown`.

        Args:
            ids: The jobs.
            results: Whether to include their results (small ones; large ones have their own address).
        """
        jobs: list[Job] = []
        for part in _chunks(ids, LOOKUP_LIMIT):
            jobs += decoded(self._look_up(part, results=results), JobList).jobs
        return jobs

    def wait_many(
        self,
        ids: Iterable[str],
        *,
        timeout_s: float | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> dict[str, str]:
        """Waits until all the jobs have ended.

        Args:
            ids: The jobs.
            timeout_s: How long at most; None for ever.
            progress: Called with the number of jobs that have ended, whenever it grew.

        Returns:
            The final status of each, in the order given.

        Raises:
            WaitTimeoutError: If some have not ended in time.
        """
        return wait_for_all(
            ids,
            look_up=self._ended,
            wait_for=self._hold,
            timeout_s=timeout_s,
            progress=progress or (lambda _count: None),
        )

    def result(self, job_id: str) -> NDArray[Any]:
        """Returns a job's result as an array with one row an input.

        Raises:
            NotReadyError: If the job has not ended yet.
            ConflictError: If it ended without a result.
            GoneError: If the result was removed.
        """
        response = self._result(job_id, "application/x-npy")
        try:
            array: NDArray[Any] = np.load(io.BytesIO(response.content), allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise ConnectionFailedError(f"what answers at {response.url} is no fleet: {error}") from error
        return array

    def result_json(self, job_id: str) -> Any:
        """Returns a job's result as JSON values. Raises as `result` does."""
        return decoded(self._result(job_id, "application/json"), object)

    def cancel(self, job_id: str) -> Job:
        """Cancels a job; one that has ended is left as it is."""
        return decoded(self._of_job("POST", job_id, "/cancel"), Job)

    def list_jobs(
        self,
        *,
        status: str | Iterable[str] | None = None,
        model: str | None = None,
        dead_letter: bool = False,
        after: str | None = None,
        limit: int = 100,
    ) -> JobPage:
        """Returns one page of jobs, newest first.

        Args:
            status: One state, or several.
            model: Only jobs of this model.
            dead_letter: Only failed jobs that used up their attempts or crashes.
            after: The last id of the page before.
            limit: Jobs of the page at most, 1 to 1,000.
        """
        states = status if isinstance(status, str) or status is None else ",".join(status)
        asked = {"status": states, "model": model, "after": after, "dead_letter": "true" if dead_letter else None}
        params = {name: value for name, value in asked.items() if value} | {"limit": str(limit)}
        return decoded(self._transport.send("GET", "/v1/jobs", params=params), JobPage)

    def models(self) -> list[Model]:
        """Returns the models that the fleet serves."""
        return decoded(self._transport.send("GET", "/v1/models"), ModelList).data

    def metrics(self) -> str:
        """Returns the fleet's metrics in Prometheus' text format."""
        return self._transport.send("GET", "/metrics").text

    # -- inside -------------------------------------------------------------------------------------------

    def _look_up(self, ids: Sequence[str], *, results: bool = False) -> httpx.Response:
        asked = {"ids": list(ids)} | ({"include": ["result"]} if results else {})
        content = msgspec.json.encode(asked)
        return self._transport.send("POST", "/v1/jobs/lookup", content=content, headers=_JSON)

    def _ended(self, ids: Sequence[str]) -> dict[str, str]:
        jobs = decoded(self._look_up(ids), JobStatusList).jobs
        # What is no job, or was removed, will not end either: it must not be waited for.
        return {job.id: job.status for job in jobs if job.status not in PENDING_STATUSES}

    def _hold(self, job_id: str, wait_s: float) -> None:
        """Lets the server hold an answer until the job ends; the answer itself is not needed."""
        self._of_job("GET", job_id, wait_s=wait_s)

    def _result(self, job_id: str, accept: str) -> httpx.Response:
        response = self._of_job("GET", job_id, "/result", headers={"Accept": accept})
        if response.status_code == httpx.codes.ACCEPTED:  # not the result, but the job
            status = decoded(response, JobStatus).status
            raise NotReadyError(job_id, status, seconds_of(response.headers.get("Retry-After")))
        return response

    def _of_job(
        self,
        method: str,
        job_id: str,
        path: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        wait_s: float = 0.0,
    ) -> httpx.Response:
        url = f"/v1/jobs/{quote(job_id, safe='')}{path}"
        try:
            return self._transport.send(
                method, url, params=_wait(wait_s), headers=headers, wait_s=min(wait_s, _LONGEST_WAIT_S)
            )
        except NotFoundError as error:
            raise about(job_id, error) from None


def _wait(wait_s: float) -> Mapping[str, str] | None:
    return {"wait": f"{min(wait_s, _LONGEST_WAIT_S):.3f}"} if wait_s > 0 else None


def _chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    source = iter(items)
    while part := list(islice(source, size)):
        yield part


def _with_keys(requests: Sequence[JobRequest]) -> Iterator[JobRequest]:
    prefix = uuid.uuid4().hex
    for index, request in enumerate(requests):
        if request.idempotency_key:
            yield request
        else:
            yield msgspec.structs.replace(request, idempotency_key=f"{prefix}-{index}")

"""The client itself: one method for each thing that can be asked of a fleet."""

import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

import httpx
import msgspec
from numpy.typing import NDArray

from batchfleet.client.bulk import BulkSubmission, encoder
from batchfleet.client.calls import JSON, LONGEST_WAIT_S, Calls, wait_query
from batchfleet.client.errors import (
    ApiError,
    ConnectionFailedError,
    InvalidError,
    NotFoundError,
    PartialResultError,
    WaitTimeoutError,
)
from batchfleet.client.payload import ResultForm, to_array, to_items
from batchfleet.client.transport import RetryPolicy, Transport, decoded
from batchfleet.client.values import (
    ItemResults,
    Job,
    JobOptions,
    JobPage,
    JobRequest,
    Model,
    ModelList,
    Submission,
    check_inputs,
)
from batchfleet.client.waiting import LONGEST_POLL_S, ended_in_turn, wait_for_all
from batchfleet.client.webhooks import Webhooks

DEFAULT_URL = "http://127.0.0.1:8080"
URL_VARIABLE = "BATCHFLEET_URL"
KEY_VARIABLE = "BATCHFLEET_API_KEY"


class Client:
    """A synchronous client. Safe to use from several threads at once; a context manager.

    Every call may raise `ApiError` (the fleet refused) or `ConnectionFailedError` (nobody answered), after
    retries where repeating is safe. Submissions carry an idempotency key of their own for that reason.

    Args:
        base_url: Where the fleet answers; default: `BATCHFLEET_URL`, or port 8080 of this machine.
        api_key: Sent to the fleet, and to nobody else; default: `BATCHFLEET_API_KEY`.
        timeout_s: For one answer, time that the server was asked to wait not included.
        policy: How requests are repeated, and for how long.
        transport: For tests: an httpx transport in place of the network.
        on_retry: Called before each repeat with the reason, and the seconds since the first try by then.

    Raises:
        ClientConfigError: If the URL or the key cannot be used.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        timeout_s: float = 30.0,
        policy: RetryPolicy | None = None,
        transport: httpx.BaseTransport | None = None,
        on_retry: Callable[[Exception, float], None] | None = None,
    ) -> None:
        self._transport = Transport(
            base_url or os.environ.get(URL_VARIABLE) or DEFAULT_URL,
            api_key=api_key or os.environ.get(KEY_VARIABLE),
            timeout_s=timeout_s,
            policy=policy or RetryPolicy(),
            transport=transport,
            on_retry=on_retry,
        )
        self._calls = Calls(self._transport)
        self._webhooks = Webhooks(self._transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self._transport.shown_url!r})"

    def close(self) -> None:
        """Closes the connections."""
        self._transport.close()

    @property
    def webhooks(self) -> Webhooks:
        """Deliveries of callbacks and outputs, and what callbacks are signed with."""
        return self._webhooks

    # -- submitting ---------------------------------------------------------------------------------------

    def submit(
        self, model: str, inputs: Sequence[Any] | None = None, *, wait_s: float = 0.0, **options: Unpack[JobOptions]
    ) -> Job:
        """Submits one job.

        Args:
            model: Name of the model.
            inputs: 1 to 1,024 items; None with an `input_uri`.
            wait_s: If positive, waits up to that long (60 s at most) for its end.
            options: Further fields of `JobRequest`.

        Raises:
            TypeError: If `inputs` is a single text.
            ValueError: If not exactly one of `inputs` and `input_uri` is stated.
        """
        check_inputs(inputs)
        request = JobRequest(model=model, inputs=None if inputs is None else list(inputs), **options)
        key = request.idempotency_key or uuid.uuid4().hex
        response = self._transport.send(
            "POST",
            "/v1/jobs",
            params=wait_query(wait_s),
            content=encoder.encode(msgspec.structs.replace(request, idempotency_key=None)),
            headers={**JSON, "Idempotency-Key": key},
            wait_s=min(wait_s, LONGEST_WAIT_S),
        )
        return decoded(response, Job)

    def submit_each(
        self,
        requests: Iterable[JobRequest],
        *,
        chunk: int = 1_000,
        chunk_bytes: int = 8 * 1024 * 1024,
        keys: bool = True,
        patience_s: float | None = None,
    ) -> Iterator[Submission]:
        """Submits jobs in bulk and yields what became of each, in order; one that is refused does not hinder others.

        `requests` is read no further than the chunk that is sent next, which is when the first of it is asked for.

        Args:
            requests: The jobs; may be a generator without end.
            chunk: Jobs in one request at most.
            chunk_bytes: Bytes in one request at most; a larger job goes alone.
            keys: Gives an idempotency key to each job that has none, so that a lost answer can be asked for
                again. Without keys a broken connection raises, and part of the chunk may have been taken.
            patience_s: For how long a chunk is offered to a fleet that is overloaded; default: as the policy says.
        """
        sending = BulkSubmission(
            self._transport, chunk=chunk, chunk_bytes=chunk_bytes, keys=keys, patience_s=patience_s
        )
        for part in sending.run(requests):
            yield from part

    def submit_many(
        self,
        requests: Iterable[JobRequest],
        *,
        chunk: int = 1_000,
        chunk_bytes: int = 8 * 1024 * 1024,
        keys: bool = True,
        patience_s: float | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> list[Submission]:
        """Submits jobs in bulk as `submit_each` does, all of them before it returns.

        Args:
            requests: The jobs; may be a generator.
            chunk: As in `submit_each`, and so the next three.
            chunk_bytes: Bytes in one request at most.
            keys: Whether to give keys.
            patience_s: For how long to bear an overload.
            progress: Called with the number of jobs sent so far, after each chunk.

        Returns:
            One entry a job, in order. An error that ends it early has a note that says how many were sent.
        """
        submissions: list[Submission] = []
        sending = BulkSubmission(
            self._transport, chunk=chunk, chunk_bytes=chunk_bytes, keys=keys, patience_s=patience_s
        )
        try:
            for part in sending.run(requests):
                submissions += part
                if progress:
                    progress(len(submissions))
        except (ApiError, ConnectionFailedError) as error:
            error.add_note(f"{len(submissions)} jobs of this call had been answered before")
            raise
        return submissions

    # -- asking -------------------------------------------------------------------------------------------

    def get(self, job_id: str, *, wait_s: float = 0.0) -> Job:
        """Returns a job, its result included where it is small; waits up to `wait_s` for its end."""
        return self._calls.get(job_id, wait_s)

    def look_up(self, ids: Iterable[str], *, results: bool = False) -> list[Job]:
        """Returns the jobs in the order named, a thousand a request; the status of what is no job is `unknown`.

        Args:
            ids: The jobs.
            results: Whether to include their results (small ones; large ones have their own address).
        """
        return self._calls.look_up(ids, results=results)

    def wait(self, job_id: str, *, timeout_s: float | None = None) -> Job:
        """Waits until a job has ended and returns it, its result included where it is small.

        Raises:
            WaitTimeoutError: If it has not ended after `timeout_s` seconds; None waits for ever.
        """
        began = self._transport.clock()
        while True:
            left_s = LONGEST_POLL_S if timeout_s is None else timeout_s - (self._transport.clock() - began)
            job = self._calls.held(job_id, min(LONGEST_POLL_S, max(left_s, 0.0)))
            if job.ended:
                return job
            if timeout_s is not None and self._transport.clock() - began >= timeout_s:
                raise WaitTimeoutError([job_id])

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
            look_up=self._calls.ended,
            wait_for=lambda job_id, wait_s: _status_if_ended(self._calls.held_or_gone(job_id, wait_s)),
            timeout_s=timeout_s,
            progress=progress or (lambda _count: None),
        )

    def as_completed(
        self, ids: Iterable[str], *, timeout_s: float | None = None, results: bool = False
    ) -> Iterator[Job]:
        """Yields each job when it has ended, the first to end first; what is no job comes as `unknown`.

        Args:
            ids: The jobs; repeated ids count once.
            timeout_s: How long at most, over all of them; None for ever.
            results: Whether to include their results (small ones; large ones have their own address).

        Raises:
            WaitTimeoutError: If some have not ended in time; those that had were yielded before.
        """

        def ended(part: Sequence[str]) -> dict[str, Job]:
            return {job.id: job for job in self._calls.look_up(part, results=results) if job.ended}

        def held(job_id: str, wait_s: float) -> Job | None:
            job = self._calls.held_or_gone(job_id, wait_s)
            if not job.ended:
                return None
            return job if results else msgspec.structs.replace(job, result=None)

        for some in ended_in_turn(ids, look_up=ended, wait_for=held, timeout_s=timeout_s):
            yield from some.values()

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

    def jobs(
        self,
        *,
        status: str | Iterable[str] | None = None,
        model: str | None = None,
        dead_letter: bool = False,
        page: int = 500,
    ) -> Iterator[Job]:
        """Yields all jobs, newest first, a page a request; arguments as of `list_jobs`, `page` is its limit."""
        states = list(status) if status is not None and not isinstance(status, str) else status
        after = None
        while True:
            found = self.list_jobs(status=states, model=model, dead_letter=dead_letter, after=after, limit=page)
            yield from found.jobs
            after = found.next
            if after is None:
                return

    def models(self) -> list[Model]:
        """Returns the models that the fleet serves."""
        return decoded(self._transport.send("GET", "/v1/models"), ModelList).data

    def metrics(self) -> str:
        """Returns the fleet's metrics in Prometheus' text format."""
        return self._transport.send("GET", "/metrics").text

    # -- results ------------------------------------------------------------------------------------------

    def result(self, job_id: str) -> NDArray[Any]:
        """Returns a job's result as an array with one row an input.

        Raises:
            NotReadyError: If the job has not ended yet.
            ConflictError: If it ended without a result; `job_error` says why.
            GoneError: If the result was removed.
            PartialResultError: If it is no single array: some inputs have no value, or the values differ in shape.
        """
        try:
            return to_array(self._calls.result(job_id, "npy"))
        except InvalidError as error:
            if error.code != "not_representable":
                raise
        raise PartialResultError(job_id, self.item_results(job_id))

    def item_results(self, job_id: str) -> ItemResults:
        """Returns a job's result input by input: values, and the errors of those that have none.

        Raises as `result` does, but for `PartialResultError`.
        """
        return to_items(self._calls.result(job_id, "msgpack"))

    def result_json(self, job_id: str) -> Any:
        """Returns a job's result as JSON values. Raises as `result` does, but for `PartialResultError`."""
        return decoded(self._calls.result(job_id, "json"), object)

    def download(self, job_id: str, form: ResultForm = "npy") -> bytes:
        """Returns a job's result as a file: `json`, `npy` or `msgpack`.

        Raises:
            InvalidError: If the result has no such form (`not_representable`); else as `result`.
        """
        return self._calls.result(job_id, form).content

    # -- changing -----------------------------------------------------------------------------------------

    def cancel(self, job_id: str) -> Job:
        """Cancels a job; one that has ended is left as it is."""
        return decoded(self._calls.of_job("POST", job_id, "/cancel"), Job)

    def delete(self, job_id: str) -> None:
        """Removes a job that has ended, with its result.

        Raises:
            NotFoundError: If there is no such job (any more).
            ConflictError: If it has not ended (cancel it first), or its `output_uri` is still to be written.
        """
        try:
            self._calls.of_job("DELETE", job_id)
        except NotFoundError as error:
            if not error.repeats:  # a lost answer is no reason to tell the caller that there was nothing
                raise


def _status_if_ended(job: Job) -> str | None:
    return job.status if job.ended else None

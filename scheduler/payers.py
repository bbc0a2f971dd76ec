"""How the two kinds of deliveries are paid: one attempt each, without a word on when the next is due."""

import logging
import time
from collections.abc import Callable
from typing import Final, Protocol
from urllib.parse import urlsplit

import msgspec

from batchfleet.clock import Wall, wall
from batchfleet.errors import BatchfleetError, InvalidRequestError, StoreUnavailableError
from batchfleet.jobs.job import JobRecord, StoredResult, format_job_id
from batchfleet.jobs.states import JobState
from batchfleet.jobs.store import JobStore
from batchfleet.objects.port import ObjectStore
from batchfleet.objects.uri import ObjectUri, parse_uri
from batchfleet.outbox.delivery import Delivery
from batchfleet.outbox.payload import error_data, event_body
from batchfleet.outbox.port import OutboxStore
from batchfleet.outbox.sealing import SealedError
from batchfleet.outbox.sender import Answer, WebhookSender
from batchfleet.outbox.signature import signature_headers, webhook_id
from batchfleet.results import codec
from batchfleet.results.blobs import BlobNotFoundError, BlobStore
from batchfleet.tracing import SpanKind, Tracer

logger = logging.getLogger(__name__)

JSON: Final = "application/json"
PROBLEM: Final = "application/problem+json"
FORMS: Final[dict[str, tuple[str, Callable[[str, bytes], bytes]]]] = {
    ".json": (JSON, codec.to_json),
    ".npy": ("application/x-npy", codec.to_npy),
    ".msgpack": ("application/msgpack", codec.to_msgpack),
}
"""Content type and conversion by the suffix of the object's key; any other gets JSON."""

_ERROR_SUFFIX: Final = ".error.json"
_TITLES: Final = {
    JobState.FAILED: "The job failed: it has no result",
    JobState.CANCELLED: "The job was cancelled: it has no result",
    JobState.EXPIRED: "The job expired before it started: it has no result",
}


class Payer(Protocol):
    """Pays deliveries of one kind."""

    def attempt(self, delivery: Delivery) -> Answer:
        """Tries once.

        Raises:
            StoreUnavailableError: If our own database is away: the attempt does not count.
        """
        ...


class WebhookPayer:
    """Posts the job to its `callback_url`, signed with all secrets in use; a traced job's trace goes along."""

    def __init__(
        self,
        jobs: JobStore,
        outbox: OutboxStore,
        sender: WebhookSender,
        clock: Wall = wall,
        tracer: Tracer | None = None,
    ) -> None:
        self._jobs = jobs
        self._outbox = outbox
        self._sender = sender
        self._clock = clock
        self._tracer = tracer

    def attempt(self, delivery: Delivery) -> Answer:
        """Tries once."""
        job = _job_of(self._jobs, delivery)
        try:
            secrets = [each.secret for each in self._outbox.signing_secrets(delivery.tenant)]
        except SealedError as exc:
            logger.error("webhook cannot be signed: %s", exc)  # noqa: TRY400 - its message says all
            return Answer(error="it could not be signed: the operator's log says why")
        body = event_body(delivery, job)
        headers = signature_headers(secrets, webhook_id(delivery.id), int(self._clock()), body)
        if job is None or job.traceparent is None:
            return self._sender.post(delivery.target, headers, body)
        return self._post_traced(delivery, headers, body, job.traceparent)

    def _post_traced(self, delivery: Delivery, headers: dict[str, str], body: bytes, traceparent: str) -> Answer:
        """Posts with the trace of the job's submission; a scheduler without traces of its own passes it on as it is."""
        parent = None if self._tracer is None else self._tracer.follow(traceparent)
        if self._tracer is None or parent is None:
            return self._sender.post(delivery.target, {**headers, "traceparent": traceparent}, body)
        span, began_ns = self._tracer.child(parent), time.time_ns()
        answer = self._sender.post(delivery.target, {**headers, "traceparent": span.traceparent}, body)
        self._tracer.put(
            "webhook",
            span,
            parent,
            began_ns,
            time.time_ns(),
            kind=SpanKind.CLIENT,
            # The host alone: paths and queries of callbacks hold secrets.
            attributes={
                "server.address": urlsplit(delivery.target).hostname or "",
                "http.response.status_code": answer.status or 0,
                "batchfleet.job.id": format_job_id(delivery.job_id),
                "batchfleet.delivery.id": webhook_id(delivery.id),
                "batchfleet.delivery.attempt": delivery.attempts,
            },
            error=answer.error,
        )
        return answer


class OutputPayer:
    """Writes the result of a job to its `output_uri`, or why there is none beside it.

    That happens after the settle, from what the settle made the result: a stale worker cannot overwrite it.
    """

    def __init__(self, jobs: JobStore, blobs: BlobStore, objects: ObjectStore) -> None:
        self._jobs = jobs
        self._blobs = blobs
        self._objects = objects

    def attempt(self, delivery: Delivery) -> Answer:
        """Tries once."""
        job = _job_of(self._jobs, delivery)
        if job is None:
            return Answer(error="the job was deleted before its output was written", final=True)
        try:
            uri = parse_uri(delivery.target, field="output_uri")
            if job.state is not JobState.SUCCEEDED:
                self._write_error(uri, job)
            elif job.result is None:
                return Answer(error="the result was removed before its output was written", final=True)
            else:
                self._write_result(uri, job.result)
        except StoreUnavailableError:
            raise
        except BlobNotFoundError:
            return Answer(error="the result was removed before its output was written", final=True)
        except codec.NotRepresentableError as exc:
            return Answer(error=f"the result cannot be written in this form: {exc}", final=True)
        except BatchfleetError as exc:
            return Answer(error=f"{exc.code}: {exc}", final=isinstance(exc, InvalidRequestError))
        return Answer()

    def _write_result(self, uri: ObjectUri, result: StoredResult) -> None:
        data = result.data
        if data is None:
            data = self._blobs.get(result.blob_key or "")
        forms = (form for suffix, form in FORMS.items() if uri.key.endswith(suffix))
        content_type, convert = next(forms, FORMS[".json"])
        self._objects.write(uri, convert(result.format, data), content_type=content_type)

    def _write_error(self, uri: ObjectUri, job: JobRecord) -> None:
        self._objects.write(ObjectUri(uri.bucket, uri.key + _ERROR_SUFFIX), problem_of(job), content_type=PROBLEM)


def problem_of(job: JobRecord) -> bytes:
    """Returns why a job has no result, in the shape of the API's problems."""
    code = f"job_{job.state.value}"
    problem: dict[str, object] = {
        "type": f"urn:batchfleet:error:{code}",
        "title": _TITLES[job.state],
        "status": 409,
        "detail": job.error.message if job.error else f"the job is {job.state.value}",
        "code": code,
        "job_id": format_job_id(job.id),
    }
    if job.error is not None:
        problem["job_error"] = error_data(job.error)
    return msgspec.json.encode(problem)


def _job_of(jobs: JobStore, delivery: Delivery) -> JobRecord | None:
    return next(iter(jobs.look_up([delivery.job_id], with_results=True)), None)

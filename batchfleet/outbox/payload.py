"""The body of a webhook: the job, as `GET /v1/jobs/{id}` shows it. A test holds the two together. Pure."""

from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from batchfleet.jobs.job import JobError, JobRecord, format_job_id
from batchfleet.jobs.states import JobState
from batchfleet.outbox.delivery import Delivery
from batchfleet.results import codec

INLINE_BYTES: Final = 16 * 1024
"""Results up to this size, as stored, travel with the webhook: receivers refuse large bodies."""


def event_body(delivery: Delivery, job: JobRecord | None) -> bytes:
    """Returns the body of a webhook, the same at each attempt while the job is the same.

    Args:
        delivery: The webhook.
        job: Its job, with the result; None where it was deleted meanwhile: what is left is id and status.
    """
    return msgspec.json.encode(
        {
            "type": delivery.event,
            "timestamp": _moment(delivery.created_at),
            "data": _deleted(delivery) if job is None else job_data(job, inline_bytes=INLINE_BYTES),
        }
    )


def job_data(job: JobRecord, *, inline_bytes: int) -> dict[str, Any]:
    """Returns a job that has ended, as clients see it.

    Args:
        job: With its result, if that is to be shown.
        inline_bytes: Results up to this size are.
    """
    public_id = format_job_id(job.id)
    has_result = job.state is JobState.SUCCEEDED and not job.result_gone
    members = {
        "id": public_id,
        "status": job.state.value,
        "model": job.model,
        "version": job.version,
        "adapter": job.adapter or None,
        "lane": job.lane.value,
        # Of inputs that lay in an object, the caller knows the number.
        "item_count": None if job.links.input_uri is not None else job.item_count,
        "attempts": job.attempts,
        "crashes": job.crashes,
        "max_attempts": job.max_attempts,
        "submitted_at": _moment(job.submitted_at),
        "run_at": _moment(job.run_at),
        "started_at": _moment(job.started_at),
        "finished_at": _moment(job.finished_at),
        "expires_at": _moment(job.expires_at),
        "input_uri": job.links.input_uri,
        "output_uri": job.links.output_uri,
        "callback_url": job.links.callback_url,
        "metadata": _raw(job.metadata),
        "error": error_data(job.error) if job.error else None,
        "retry_of": format_job_id(job.retry_of) if job.retry_of else None,
        "provenance": _raw(job.provenance),
        "result_url": f"/v1/jobs/{public_id}/result" if has_result else None,
        "result_gone": job.result_gone or None,
        "result": _inline(job, inline_bytes),
    }
    return {name: value for name, value in members.items() if value is not None}


def error_data(error: JobError) -> dict[str, Any]:
    """Returns a job's error as clients see it."""
    members = {
        "code": error.code,
        "message": error.message,
        "item": error.item,
        "field": None if error.item is None else f"inputs[{error.item}]",
    }
    return {name: value for name, value in members.items() if value is not None}


def _deleted(delivery: Delivery) -> dict[str, Any]:
    return {"id": format_job_id(delivery.job_id), "status": delivery.event.partition(".")[2]}


def _inline(job: JobRecord, inline_bytes: int) -> msgspec.Raw | None:
    result = job.result
    if result is None or result.data is None or len(result.data) > inline_bytes:
        return None
    return msgspec.Raw(codec.to_json(result.format, result.data))


def _raw(data: bytes | str | None) -> msgspec.Raw | None:
    return None if data is None else msgspec.Raw(data)


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)

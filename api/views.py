"""Jobs and models → what clients see."""

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from api.catalog import ListedModel
from api.problems import failure_of
from api.schemas import JobView, ModelLimits, ModelView
from batchfleet.jobs.job import MAX_ITEMS_PER_JOB, JobRecord, NewJob, Submitted, WorkerLease, WorkerState, format_job_id
from batchfleet.jobs.states import JobState
from batchfleet.results import codec

encode = msgspec.json.Encoder().encode


def job_url(public_id: str) -> str:
    """Returns the path of a job."""
    return f"/v1/jobs/{public_id}"


def view_of_submitted(job: NewJob, submitted: Submitted) -> JobView:
    """Returns a job just inserted, without reading it back."""
    public_id = format_job_id(submitted.id)
    return JobView(
        id=public_id,
        status=submitted.state.value,
        model=job.model,
        version=job.version,
        lane=job.lane.value,
        item_count=None if job.links.input_uri is not None else job.item_count,
        result_url=f"/v1/jobs/{public_id}/result",
    )


def view_of(job: JobRecord, *, inline_bytes: int = 0, notice: str | None = None) -> JobView:
    """Returns a job as looked up.

    Args:
        job: The job; with its result if that is to be shown.
        inline_bytes: Results up to this size are shown; 0 shows none.
        notice: What its owner should know.
    """
    public_id = format_job_id(job.id)
    return JobView(
        id=public_id,
        status=job.state.value,
        model=job.model,
        version=job.version,
        adapter=job.adapter or None,
        lane=job.lane.value,
        # Of inputs that lie in an object nobody counts before a worker has read them.
        item_count=None if job.links.input_uri is not None else job.item_count,
        attempts=job.attempts,
        crashes=job.crashes,
        max_attempts=job.max_attempts,
        submitted_at=_moment(job.submitted_at),
        run_at=_moment(job.run_at),
        started_at=_moment(job.started_at),
        finished_at=_moment(job.finished_at),
        expires_at=_moment(job.expires_at),
        metadata=_raw(job.metadata),
        error=failure_of(job.error) if job.error else None,
        retry_of=format_job_id(job.retry_of) if job.retry_of else None,
        notice=notice,
        provenance=_raw(job.provenance),
        result_url=f"/v1/jobs/{public_id}/result" if _may_have_result(job) else None,
        result_gone=job.result_gone,
        result=_inline(job, inline_bytes),
        input_uri=job.links.input_uri,
        output_uri=job.links.output_uri,
        callback_url=job.links.callback_url,
    )


def unknown_job(public_id: str) -> JobView:
    """Returns what a look-up says of an id that is no job (of this tenant)."""
    return JobView(id=public_id, status="unknown")


def etag_of(job: JobRecord, notice: str | None) -> str:
    """Returns the entity tag of a job's view: what changes it changes state, epoch, notice or the result's presence."""
    marks = ("-n" if notice else "") + ("-g" if job.result_gone else "")
    return f'W/"{job.state.value}-{job.epoch}-{job.attempts}{marks}"'


def view_of_model(model: ListedModel, live_workers: int | None) -> ModelView:
    """Returns a model; `live_workers` is None where the database cannot tell."""
    config = model.pinned.config
    return ModelView(
        id=config.name,
        created=model.pinned.created,
        version=config.version,
        versions=model.versions,
        task=config.task,
        limits=ModelLimits(
            max_items_per_job=MAX_ITEMS_PER_JOB,
            max_item_tokens=config.limits.max_item_tokens,
            overlong=config.limits.overlong,
        ),
        live_workers=live_workers,
    )


def serving(workers: Iterable[WorkerLease], model: str, lease_ttl_s: float) -> int:
    """Returns how many live workers take jobs of the model."""
    return sum(
        1
        for worker in workers
        if worker.heartbeat_age_s <= lease_ttl_s
        and worker.state is not WorkerState.DRAINING
        and (not worker.models or model in worker.models)
    )


def _may_have_result(job: JobRecord) -> bool:
    return not job.state.terminal or (job.state is JobState.SUCCEEDED and not job.result_gone)


def _inline(job: JobRecord, inline_bytes: int) -> msgspec.Raw | None:
    result = job.result
    if result is None or result.data is None or len(result.data) > inline_bytes:
        return None
    return msgspec.Raw(codec.to_json(result.format, result.data))


def _raw(data: bytes | str | None) -> msgspec.Raw | None:
    return msgspec.Raw(data) if data is not None else None


def _moment(seconds: float | None) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if seconds is not None else None

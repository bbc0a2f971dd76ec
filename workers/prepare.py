"""Prepare: turns claimed jobs into items, many jobs in one call of the task (tokenising runs outside the GIL).

A call is bounded in bytes, so that long texts cannot fill the memory, and the journal names its jobs, so that an
input that kills the process is found. Suspects are prepared alone.
"""

import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from batchfleet.batching.item import Item
from batchfleet.errors import InvalidRequestError, ModelNotFoundError
from batchfleet.foreign import describe, ends_the_process
from batchfleet.inference.registry import LoadedModel
from batchfleet.inference.task import ItemFault, PreparedItem
from batchfleet.jobs.job import JobError, JobErrorCode
from batchfleet.logs import Action, name_jobs
from batchfleet.models.repository import ModelRef
from batchfleet.telemetry import Metrics, Stopwatch
from workers.active import ActiveJob
from workers.fetch import item_of
from workers.journal import Journal
from workers.messages import ItemsFailed, JobFailed, SettleMessage
from workers.serving import PassKey, Serving
from workers.spans import WorkerSpans

logger = logging.getLogger(__name__)

_MAX_JOBS_WAITING = 512
_MAX_JOBS_A_CALL = 64
"""Jobs of one call of the task: so many are accused at most if it kills the process."""
_MAX_BYTES_A_CALL = 1024 * 1024
"""Input bytes of one call: a tokeniser needs some hundred times that for a moment."""


@dataclass(frozen=True, slots=True)
class _Decoded:
    """A job whose bytes have been read."""

    job: ActiveJob
    inputs: list[Any]
    parameters: Any


class Preparer:
    """Owns nothing: claimed jobs in, items and faults out.

    Args:
        serving: Where models are found.
        add_items: Takes the items (the assembler).
        settle: Takes the faults (the settler).
        journal: Told which jobs are being prepared.
        unpack: Parses the object that was fetched for a job, if one was.
        spans: Told how long it took, where anything is traced.
    """

    def __init__(
        self,
        serving: Serving,
        add_items: Callable[[Sequence[Item]], None],
        settle: Callable[[SettleMessage], None],
        journal: Journal,
        metrics: Metrics,
        unpack: Callable[[ActiveJob], None],
        spans: WorkerSpans | None = None,
    ) -> None:
        self._serving = serving
        self._add_items = add_items
        self._settle = settle
        self._journal = journal
        self._metrics = metrics
        self._unpack = unpack
        self._spans = spans
        self._queue: queue.SimpleQueue[list[ActiveJob] | None] = queue.SimpleQueue()
        self._keys = itertools.count()

    def put(self, jobs: list[ActiveJob]) -> None:
        """Queues claimed jobs."""
        self._queue.put(jobs)

    def wake(self) -> None:
        """Ends a wait of `run`, so that it sees that it was asked to stop."""
        self._queue.put(None)

    def run(self, stopping: threading.Event) -> None:
        """Prepares until stopped: the body of the thread. Jobs still queued then are the drain's."""
        while not stopping.is_set():
            jobs = self._next()
            by_model: dict[ModelRef, list[ActiveJob]] = {}
            for job in jobs:
                by_model.setdefault(ModelRef(job.claimed.model, job.claimed.version), []).append(job)
            with Stopwatch(self._metrics.prepare_seconds):
                for ref, group in by_model.items():
                    self._prepare_model(ref, group)

    def _next(self) -> list[ActiveJob]:
        """Waits for jobs, then takes what else has come meanwhile."""
        jobs = list(self._queue.get() or ())
        while len(jobs) < _MAX_JOBS_WAITING:
            try:
                jobs.extend(self._queue.get_nowait() or ())
            except queue.Empty:
                break
        return jobs

    def _prepare_model(self, ref: ModelRef, jobs: list[ActiveJob]) -> None:
        try:
            model = self._serving.get(ref)
        except ModelNotFoundError as error:
            self._fail_all(jobs, JobErrorCode.MODEL_NOT_FOUND, str(error))
        except BaseException as error:
            if ends_the_process(error):
                raise
            logger.exception("a model cannot be loaded", extra={"action": Action.MODEL_UNUSABLE, "model": str(ref)})
            self._fail_all(jobs, JobErrorCode.MODEL_LOAD_FAILED, f"{ref} cannot be loaded: {describe(error)}")
        else:
            self._prepare_jobs(model, jobs)

    def _prepare_jobs(self, model: LoadedModel, jobs: list[ActiveJob]) -> None:
        for call in _calls([done for job in jobs if (done := self._decode(model, job)) is not None]):
            self._journal.begin_prepare([one.job.id for one in call])
            began_ns = time.time_ns()
            try:
                prepared = self._prepare_call(model, call)
                if self._spans is not None:
                    self._spans.prepared([one.job for one in call], began_ns)
                self._hand_on(model, call, prepared)
            except BaseException as error:  # task code is anybody's: what it raises must not end the worker
                if ends_the_process(error):
                    raise
                named = name_jobs(one.job.id for one in call)
                extra = {"action": Action.PREPARE_FAILED, "model": str(model.ref), "jobs": named}
                logger.exception("prepare failed", extra=extra)
                if len(call) == 1:
                    self._fail_all([call[0].job], JobErrorCode.INTERNAL, f"preparing failed: {describe(error)}")
                else:
                    # One job's input broke the call: alone, each pays for itself.
                    for one in call:
                        self._prepare_jobs(model, [one.job])
            finally:
                self._journal.end_prepare()

    @staticmethod
    def _prepare_call(model: LoadedModel, call: list[_Decoded]) -> list[PreparedItem | ItemFault]:
        """Prepares the items of a call, in slices where one job alone is over the bytes of a call."""
        inputs = [value for one in call for value in one.inputs]
        parameters = [one.parameters for one in call for _ in one.inputs]
        size = sum(len(one.job.claimed.inputs) for one in call)
        step = max(1, len(inputs) * _MAX_BYTES_A_CALL // max(size, _MAX_BYTES_A_CALL))
        prepared: list[PreparedItem | ItemFault] = []
        for start in range(0, len(inputs), step):
            prepared += model.task.prepare(inputs[start : start + step], parameters[start : start + step])
        return prepared

    def _hand_on(
        self, model: LoadedModel, decoded: list[_Decoded], prepared: Sequence[PreparedItem | ItemFault]
    ) -> None:
        items: list[Item] = []
        place = 0
        for one in decoded:
            results = prepared[place : place + len(one.inputs)]
            place += len(one.inputs)
            faults: dict[int, JobError] = {}
            key = self._pass_key(model, one)
            for index, result in enumerate(results):
                if isinstance(result, ItemFault):
                    faults[index] = JobError(result.code, result.message, item=index)
                else:
                    items.append(self._item(one, index, result, key))
            if faults:
                self._settle(ItemsFailed(one.job, faults))
            if one.job.claimed.input_uri is not None:
                one.job.claimed = replace(one.job.claimed, inputs=b"")  # it may have been a whole object
        self._add_items(items)

    def _item(self, one: _Decoded, index: int, prepared: PreparedItem, key: PassKey) -> Item:
        job = one.job
        return Item(
            next(self._keys),
            job.id,
            index,
            prepared.length,
            job.claimed.lane,
            job.arrived,
            job.deadline,
            key,
            prepared,
            one.parameters,
        )

    def _decode(self, model: LoadedModel, job: ActiveJob) -> _Decoded | None:
        try:
            if job.fetched is not None:
                self._unpack_journaled(job)
            claimed = job.claimed
            inputs = msgspec.json.decode(claimed.inputs, type=list[Any])
            raw = msgspec.json.decode(claimed.parameters, type=dict[str, Any])
            parameters = model.task.parse_parameters(raw)
            model.task.check_inputs(inputs)
        except msgspec.MsgspecError as error:
            self._fail_all([job], JobErrorCode.INPUT_INVALID, f"the stored input cannot be read: {error}")
            return None
        except InvalidRequestError as error:
            # The edge checks as well; a task that changed since the submission ends up here.
            wrong = (error.field or "").startswith("parameters")
            code = JobErrorCode.INVALID_PARAMETERS if wrong else JobErrorCode.INPUT_INVALID
            whence = "" if wrong or job.claimed.input_uri is None else f"{job.claimed.input_uri}: "
            self._settle(JobFailed(job, JobError(code, f"{whence}{error.field}: {error}", item_of(error))))
            return None
        except BaseException as error:  # of the task's checks
            if ends_the_process(error):
                raise
            extra = {"action": Action.PREPARE_FAILED, "model": str(model.ref), "jobs": name_jobs([job.id])}
            logger.exception("prepare failed", extra=extra)
            self._fail_all([job], JobErrorCode.INTERNAL, f"preparing failed: {describe(error)}")
            return None
        if len(inputs) != claimed.item_count:
            self._fail_all([job], JobErrorCode.INTERNAL, f"{len(inputs)} inputs stored, {claimed.item_count} expected")
            return None
        return _Decoded(job, inputs, parameters)

    def _unpack_journaled(self, job: ActiveJob) -> None:
        """Parses what was fetched; nobody has read it before, so it may be what kills the process."""
        self._journal.begin_prepare([job.id])
        try:
            self._unpack(job)
        finally:
            self._journal.end_prepare()

    @staticmethod
    def _pass_key(model: LoadedModel, one: _Decoded) -> PassKey:
        suspect = one.job.id if one.job.claimed.suspect else None
        return PassKey(model.ref, model.task.pass_key(one.parameters), suspect)

    def _fail_all(self, jobs: Sequence[ActiveJob], code: JobErrorCode, message: str) -> None:
        for job in jobs:
            self._settle(JobFailed(job, JobError(code, message)))


def _calls(decoded: Sequence[_Decoded]) -> Iterator[list[_Decoded]]:
    """Cuts jobs into calls: bounded in jobs and bytes, suspects alone."""
    call: list[_Decoded] = []
    size = 0
    for one in decoded:
        claimed = one.job.claimed
        if claimed.suspect:
            yield [one]
            continue
        if call and (len(call) >= _MAX_JOBS_A_CALL or size + len(claimed.inputs) > _MAX_BYTES_A_CALL):
            yield call
            call, size = [], 0
        call.append(one)
        size += len(claimed.inputs)
    if call:
        yield call

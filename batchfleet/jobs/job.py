"""The values that a job consists of as it travels: asked, claimed, settled, looked up.

All are frozen. Times are seconds: Unix time where the database stores them, ages and remainders where a worker
anchors them to its own monotonic clock. `inputs`, `parameters` and `metadata` travel as JSON bytes, so that
the queue never interprets what only a task understands.
"""

from dataclasses import dataclass, field
from enum import IntFlag, StrEnum
from typing import TypeAlias

import uuid_utils

from batchfleet.errors import InvalidRequestError
from batchfleet.jobs.states import JobState

JobId: TypeAlias = str
"""32 lower-case hexadecimal digits of a UUIDv7; outside the system written with the prefix `job_`."""

BootId: TypeAlias = str
"""Names one start of one worker process; fresh at each start, never reused."""

MAX_ITEMS_PER_JOB = 1_024
"""More items than that are a scoring run."""

_PREFIX = "job_"
_HEX = frozenset("0123456789abcdef")


class Lane(StrEnum):
    """Service class of a job, most urgent first."""

    ONLINE = "online"
    """A caller waits."""
    STANDARD = "standard"
    """Submit and poll."""
    BULK = "bulk"
    """Throughput; no one waits."""


LANES = tuple(Lane)


class OnItemError(StrEnum):
    """What one bad item means for its job."""

    FAIL = "fail"
    """The job fails and names the item."""
    PARTIAL = "partial"
    """The job succeeds with values and errors by index."""


class LinkFlag(IntFlag):
    """Which links a job has: stored in its row, so that jobs without any are read without looking for them."""

    INPUT = 1
    OUTPUT = 2
    CALLBACK = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLinks:
    """Where a job's inputs come from, and who is owed what at its end.

    Attributes:
        input_uri: Object that holds the inputs; the job's own `inputs` are then an empty array, its `item_count` 1.
        output_uri: Where the result is written once the job has ended; what went wrong instead, beside it.
        callback_url: Who is told when it has ended.
    """

    input_uri: str | None = None
    output_uri: str | None = None
    callback_url: str | None = None

    @property
    def flags(self) -> LinkFlag:
        """Which of them are there."""
        flags = LinkFlag(0)
        if self.input_uri is not None:
            flags |= LinkFlag.INPUT
        if self.output_uri is not None:
            flags |= LinkFlag.OUTPUT
        if self.callback_url is not None:
            flags |= LinkFlag.CALLBACK
        return flags


NO_LINKS = JobLinks()


class JobErrorCode(StrEnum):
    """Why a job ended without a result. `docs/reference/errors.md` explains each."""

    INPUT_INVALID = "input_invalid"
    INPUT_TOO_LONG = "input_too_long"
    INPUT_NOT_FOUND = "input_not_found"
    INPUT_UNAVAILABLE = "input_unavailable"
    INVALID_PARAMETERS = "invalid_parameters"
    MODEL_NOT_FOUND = "model_not_found"
    MODEL_LOAD_FAILED = "model_load_failed"
    NON_FINITE_OUTPUT = "non_finite_output"
    PASS_FAILED = "pass_failed"  # noqa: S105 - a forward pass, not a secret
    OUT_OF_MEMORY = "out_of_memory"
    WORKER_CRASHED = "worker_crashed"
    RUN_TIMEOUT = "run_timeout"
    RESULT_UNWRITABLE = "result_unwritable"
    INTERNAL = "internal_error"


def new_job_id() -> JobId:
    """Returns a fresh id; ids made later sort later (RFC 9562, version 7)."""
    return uuid_utils.uuid7().hex


def format_job_id(job_id: JobId) -> str:
    """Returns the id as clients see it."""
    return _PREFIX + job_id


def parse_job_id(text: str, *, field: str = "id") -> JobId:
    """Reads an id as clients write it.

    Raises:
        InvalidRequestError: If it is not `job_` and 32 lower-case hexadecimal digits.
    """
    digits = text.removeprefix(_PREFIX)
    if len(digits) != 32 or len(text) != 36 or not _HEX.issuperset(digits):
        raise InvalidRequestError("a job id is 'job_' and 32 hexadecimal digits", field=field)
    return digits


@dataclass(frozen=True, slots=True)
class JobError:
    """Why a job, or one of its items, has no result.

    Attributes:
        code: A `JobErrorCode`, or a code of the model's own task.
        message: For a person; says what to change if the caller can change anything.
        item: Index of the item at fault in the job's inputs, if one is.
    """

    code: str
    message: str
    item: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job about to be inserted; the edge has validated it and pinned version and adapter.

    Attributes:
        inputs: JSON array of `item_count` items.
        parameters: JSON object.
        run_at: Unix time before which no worker may start it; None for at once.
        ttl_s: Seconds from submission within which its first pass must start; None for no bound.
        run_timeout_s: Seconds from a claim after which the run counts as wedged.
        idempotency_key: The caller's key, unique per tenant; `fingerprint` is then the digest of the body.
        announced_by_submitter: Whether an announcer rings for it now (the relay then waits a moment).
    """

    id: JobId
    model: str
    version: str
    inputs: bytes
    item_count: int
    tenant: str = "default"
    adapter: str = ""
    lane: Lane = Lane.STANDARD
    parameters: bytes = b"{}"
    metadata: bytes | None = None
    on_item_error: OnItemError = OnItemError.FAIL
    run_at: float | None = None
    ttl_s: float | None = None
    run_timeout_s: float = 300.0
    max_attempts: int = 3
    idempotency_key: str | None = None
    fingerprint: str = ""
    retry_of: JobId | None = None
    traceparent: str | None = None
    links: JobLinks = NO_LINKS
    announced_by_submitter: bool = True

    @property
    def input_bytes(self) -> int:
        """Size of the inputs, by which hints are grouped into length buckets."""
        return len(self.inputs)


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of one `NewJob`: in the order of the call.

    Attributes:
        id: The job's id; the first job's where the idempotency key was known already.
        state: Its state now.
        created: False where the first answer is repeated.
        conflict: True where the key was used with another body: nothing was inserted, `id` is the first job's.
    """

    id: JobId
    state: JobState
    created: bool = True
    conflict: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedJob:
    """A job that this boot now owns.

    Attributes:
        epoch: Fencing number; every later write names it.
        age_s: Seconds since it was submitted (or since its `run_at`), by the database's clock.
        ttl_left_s: Seconds left in which its pass must start; None for no bound.
        suspect: Whether a worker died in its pass before: it then runs alone.
    """

    id: JobId
    epoch: int
    model: str
    version: str
    adapter: str
    tenant: str
    lane: Lane
    inputs: bytes
    item_count: int
    parameters: bytes
    on_item_error: OnItemError
    attempts: int
    max_attempts: int
    crashes: int
    suspect: bool
    age_s: float
    ttl_left_s: float | None
    run_timeout_s: float
    traceparent: str | None = None
    input_uri: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """How one claimed job ends, or goes back for a retry.

    Attributes:
        state: `succeeded`, `failed`, `expired`, `cancelled`; or `queued`, a retry after `retry_in_s`.
        offset: Where its result lies in the block of the batch, in bytes.
        length: Size of its result in the block; 0 where it has none or `blob_key` holds it.
        format: JSON description of the result's bytes (`batchfleet.results.codec`).
        blob_key: Where a large result was written, under `<job>/<epoch>`.
        error: Why it has no result (also kept on a retry, as the latest reason).
        provenance: JSON object: model digest, precision, runtime, batch, worker.
    """

    id: JobId
    epoch: int
    state: JobState
    offset: int = 0
    length: int = 0
    format: str | None = None
    blob_key: str | None = None
    error: JobError | None = None
    provenance: str | None = None
    retry_in_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SettleOutcome:
    """What the database took of a settle.

    Attributes:
        applied: Ids whose new state is now stored, and that state.
        stale: Ids that had moved on (other epoch, cancelled, expired): nothing of theirs was written.
    """

    applied: tuple[tuple[JobId, JobState], ...] = ()
    stale: tuple[JobId, ...] = ()


@dataclass(frozen=True, slots=True)
class HandBack:
    """A claimed job that its owner returns untouched: free, no attempt and no crash is counted.

    Attributes:
        delay_s: Seconds in which nobody may claim it, since what it needs is away; 0: it is announced at once.
    """

    id: JobId
    epoch: int
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResult:
    """A result as stored: its bytes, or where they lie.

    Attributes:
        format: JSON description of the bytes (`batchfleet.results.codec`).
        data: The bytes, or None where `blob_key` names them.
    """

    format: str
    data: bytes | None
    blob_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A job as looked up. Times are Unix seconds of the database's clock."""

    id: JobId
    tenant: str
    model: str
    version: str
    adapter: str
    lane: Lane
    state: JobState
    item_count: int
    epoch: int
    attempts: int
    crashes: int
    max_attempts: int
    submitted_at: float
    run_at: float
    started_at: float | None
    finished_at: float | None
    expires_at: float | None
    metadata: bytes | None = None
    error: JobError | None = None
    provenance: str | None = None
    retry_of: JobId | None = None
    links: JobLinks = NO_LINKS
    traceparent: str | None = None
    result_gone: bool = False
    """Whether it succeeded and its result was removed since."""
    result: StoredResult | None = None
    """Only where it was asked for and the job succeeded; None there means that it is gone."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """A queued job that somebody must announce now."""

    id: JobId
    model: str
    lane: Lane
    tenant: str
    input_bytes: int
    item_count: int = 1


@dataclass(frozen=True, slots=True)
class DueWork:
    """Which of the scheduler's steps have anything to do right now: one cheap read."""

    announce: bool = False
    expire: bool = False
    rescue: bool = False


@dataclass(frozen=True, slots=True)
class RescueOutcome:
    """What a rescue changed.

    Attributes:
        requeued: Jobs that are queued again.
        ended: Jobs that ended (`failed`, `cancelled` or `expired`), and how.
        dead_boots: Boots whose lease was found dead and is now gone.
    """

    requeued: tuple[JobId, ...] = ()
    ended: tuple[tuple[JobId, JobState], ...] = ()
    dead_boots: tuple[BootId, ...] = ()


class WorkerState(StrEnum):
    """What a worker says of itself in its lease."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLease:
    """One worker boot's heartbeat row.

    Attributes:
        name: The worker's name (host and slot); names repeat, boots do not.
        models: Names of the models it serves; empty for all.
        heartbeat_age_s: Seconds since its last heartbeat, by the database's clock (0 when registering).
    """

    boot: BootId
    name: str
    pid: int
    state: WorkerState
    models: tuple[str, ...] = ()
    heartbeat_age_s: float = 0.0


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """How much of a (model, lane) is in a state.

    Attributes:
        oldest_age_s: Age of the oldest job in seconds.
        items: Items of the jobs; one for each whose inputs lie in an object.
        input_bytes: Bytes of the inputs that their rows hold.
    """

    model: str
    lane: Lane
    state: JobState
    jobs: int
    oldest_age_s: float
    items: int = 0
    input_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs a listing shows, newest first.

    Attributes:
        after: Id of the last job of the page before.
        limit: At most this many.
        dead_letters: Only `failed` jobs that used up their attempts or crashes.
    """

    tenant: str | None = None
    states: frozenset[JobState] = field(default_factory=frozenset)
    model: str | None = None
    dead_letters: bool = False
    after: JobId | None = None
    limit: int = 100


@dataclass(frozen=True, slots=True)
class Deleted:
    """What became of a job that was to be deleted.

    Attributes:
        state: Its state: one that has not ended is not deleted.
        owed: Whether its output is still to be written, for which it stays.
        blob_key: The blob that held its result, which the caller removes next (the sweep would find it, later).
    """

    id: JobId
    state: JobState
    blob_key: str | None = None
    owed: bool = False

"""The values of the outbox. All are frozen; times are Unix seconds of the database's clock."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from batchfleet.errors import InvalidRequestError, NotFoundError
from batchfleet.jobs.job import JobId
from batchfleet.outbox.signature import webhook_id

DeliveryId: TypeAlias = str
"""32 hexadecimal digits of a UUIDv7; outside the system written `msg_<id>`: a webhook's `webhook-id`, the same over
all its attempts and replays."""


_HEX: Final = frozenset("0123456789abcdef")


class DeliveryKind(StrEnum):
    """What is owed."""

    WEBHOOK = "webhook"
    """The job, posted to its `callback_url`."""
    OUTPUT = "output"
    """The result, written to its `output_uri`."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A tenant's deliveries of one kind: they wait for each other, and for no others."""

    kind: DeliveryKind
    tenant: str


class DeliveryState(StrEnum):
    """Where a delivery stands."""

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"
    """Given up: the schedule is over, or the receiver said that it never wants it (410)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One debt.

    Attributes:
        target: URL or URI that it goes to.
        event: `job.succeeded`, `job.failed`, `job.cancelled` or `job.expired`.
        attempts: How often it was tried since it was made, or replayed.
        epoch: Fencing number: an attempt that was overtaken by another (or a replay) changes nothing.
        due_at: When it is tried next, while pending.
    """

    id: DeliveryId
    kind: DeliveryKind
    tenant: str
    job_id: JobId
    target: str
    event: str
    state: DeliveryState
    attempts: int
    epoch: int
    created_at: float
    due_at: float
    finished_at: float | None = None
    last_status: int | None = None
    last_error: str | None = None


@dataclass(frozen=True, slots=True)
class DueDelivery:
    """A delivery that is to be begun now.

    Attributes:
        epoch: Its epoch: where it has not changed when the delivery comes up again, nobody has begun it.
    """

    id: DeliveryId
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an attempt ended.

    Attributes:
        status: The HTTP status that came back; None where none did, and for outputs.
        error: Why it failed; None where it did not.
    """

    duration_s: float
    status: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try, as the delivery log keeps it: from its beginning on, so that one that died with its scheduler is seen.

    Attributes:
        number: From 1; those of before a replay are counted.
        outcome: None while it runs, and for ever where its scheduler died in it.
    """

    number: int
    began_at: float
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class OutboxDepth:
    """How many deliveries of a kind are pending, and the age in seconds of the oldest one."""

    kind: DeliveryKind
    pending: int
    oldest_age_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFilter:
    """Which deliveries a listing shows, newest first."""

    tenant: str | None = None
    job_id: JobId | None = None
    states: frozenset[DeliveryState] = frozenset()
    kind: DeliveryKind | None = None
    after: DeliveryId | None = None
    limit: int = 100


class DeliveryNotFoundError(NotFoundError):
    """There is no such delivery (of this tenant)."""


def parse_delivery_id(text: str, *, field: str = "id") -> DeliveryId:
    """Reads an id as clients write it.

    Raises:
        InvalidRequestError: If it is not `msg_` and 32 lower-case hexadecimal digits.
    """
    digits = text.removeprefix("msg_")
    if webhook_id(digits) != text or len(digits) != 32 or not _HEX.issuperset(digits):
        raise InvalidRequestError("a delivery's id is 'msg_' and 32 hexadecimal digits", field=field)
    return digits


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningSecret:
    """A tenant's secret for webhooks: `whsec_` and base64. Signed with while it has not expired."""

    id: str
    tenant: str
    secret: str
    created_at: float
    expires_at: float | None = None

    def __repr__(self) -> str:
        return f"SigningSecret(id={self.id!r}, tenant={self.tenant!r}, secret=***)"

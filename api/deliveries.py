"""Deliveries and signing secrets as clients see them."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from batchfleet.jobs.job import format_job_id
from batchfleet.outbox.delivery import Attempt, Delivery, DeliveryState, SigningSecret
from batchfleet.outbox.signature import webhook_id

DELIVERY_ID_PATTERN = "^msg_[0-9a-f]{32}$"
KEPT_S = 24 * 3600.0
"""For how long old secrets go on signing after a rotation that does not say."""
MOST_KEPT_S = 30 * 24 * 3600.0


class RotateBody(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Body of `POST /v1/webhooks/secrets/rotate`."""

    keep_old_s: Annotated[
        float,
        Meta(ge=0, le=MOST_KEPT_S, description="Seconds for which the old secrets go on signing; default: a day."),
    ] = KEPT_S


class AttemptView(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One attempt. Without `duration_s` it runs still, or its scheduler died in it.

    `status` is the HTTP status that came back, `error` why it failed.
    """

    number: int
    began_at: datetime
    duration_s: float | None = None
    status: int | None = None
    error: str | None = None


class DeliveryView(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A delivery; absent members do not apply. `log` is there where one delivery is asked for.

    `target` is not there for who may not read.
    """

    id: str
    kind: str
    job_id: str
    event: str
    target: str = ""
    state: str
    attempts: int
    created_at: datetime
    due_at: datetime | None = None
    finished_at: datetime | None = None
    last_status: int | None = None
    last_error: str | None = None
    log: list[AttemptView] = []


class DeliveryPage(msgspec.Struct, frozen=True):
    """Answer of `GET /v1/webhooks/deliveries`: newest first; `next` is the `after` of the next page."""

    deliveries: list[DeliveryView]
    next: str | None


class SecretView(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A signing secret; without `expires_at` it signs until it is rotated."""

    id: str
    secret: str
    created_at: datetime
    expires_at: datetime | None = None


class SecretList(msgspec.Struct, frozen=True):
    """Answer of `GET /v1/webhooks/secrets`, newest first."""

    secrets: list[SecretView]


def view_of_delivery(delivery: Delivery, log: Sequence[Attempt] = ()) -> DeliveryView:
    """Returns a delivery, with its log if that is given."""
    return DeliveryView(
        id=webhook_id(delivery.id),
        kind=delivery.kind.value,
        job_id=format_job_id(delivery.job_id),
        event=delivery.event,
        target=delivery.target,
        state=delivery.state.value,
        attempts=delivery.attempts,
        created_at=_moment(delivery.created_at),
        due_at=_moment(delivery.due_at) if delivery.state is DeliveryState.PENDING else None,
        finished_at=None if delivery.finished_at is None else _moment(delivery.finished_at),
        last_status=delivery.last_status,
        last_error=delivery.last_error,
        log=[_view_of_attempt(attempt) for attempt in log],
    )


def without_details(view: DeliveryView) -> DeliveryView:
    """Returns what is shown to who may submit but not read: URLs of callbacks hold secrets."""
    return msgspec.structs.replace(view, target="", last_status=None, last_error=None)


def view_of_secret(secret: SigningSecret) -> SecretView:
    """Returns a secret, readable."""
    return SecretView(
        id=secret.id,
        secret=secret.secret,
        created_at=_moment(secret.created_at),
        expires_at=None if secret.expires_at is None else _moment(secret.expires_at),
    )


def _view_of_attempt(attempt: Attempt) -> AttemptView:
    outcome = attempt.outcome
    if outcome is None:
        return AttemptView(number=attempt.number, began_at=_moment(attempt.began_at))
    return AttemptView(
        number=attempt.number,
        began_at=_moment(attempt.began_at),
        duration_s=round(outcome.duration_s, 6),
        status=outcome.status,
        error=outcome.error,
    )


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)

"""What the outbox owes and owed: deliveries, their log, replays, and the secrets that webhooks are signed with."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any
from urllib.parse import quote

import msgspec

from batchfleet.client.transport import Transport, decoded


class DeliveryAttempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One try of a delivery.

    Attributes:
        duration_s: How long it took; None while it runs, and where the scheduler died in it.
        status: The HTTP status that came back; None where none did, and for outputs.
        error: Why it failed; None where it did not.
    """

    number: int
    began_at: datetime
    duration_s: float | None = None
    status: int | None = None
    error: str | None = None


class Delivery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that a job's end owes: a webhook posted, or an output written.

    Attributes:
        id: `msg_` and 32 digits: what a webhook's receiver sees as `webhook-id`.
        kind: `webhook` or `output`.
        event: `job.succeeded`, `job.failed`, `job.cancelled` or `job.expired`.
        target: Where it goes; empty for a key that may not read.
        state: `pending`, `delivered` or `failed`.
        due_at: When it is tried next, while pending.
        log: Its attempts, first to last; only where one delivery is asked for.
    """

    id: str
    kind: str
    job_id: str
    event: str
    target: str = ""
    state: str
    attempts: int = 0
    created_at: datetime | None = None
    due_at: datetime | None = None
    finished_at: datetime | None = None
    last_status: int | None = None
    last_error: str | None = None
    log: list[DeliveryAttempt] = []


class DeliveryPage(msgspec.Struct, frozen=True):
    """A page of deliveries; `next` is the `after` of the next page, None on the last one."""

    deliveries: list[Delivery]
    next: str | None = None


class SigningSecret(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A secret that webhooks are signed with, `whsec_…`, until it expires. Its text shows no secret."""

    id: str
    secret: str
    created_at: datetime | None = None
    expires_at: datetime | None = None

    def __repr__(self) -> str:
        return f"SigningSecret(id={self.id!r}, secret='***', expires_at={self.expires_at!r})"


class SigningSecretList(msgspec.Struct, frozen=True):
    """The answer of `/v1/webhooks/secrets`."""

    secrets: list[SigningSecret]


class Webhooks:
    """Deliveries and signing secrets of the key's tenant; `Client.webhooks` is one. Secrets need the role `admin`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list_deliveries(
        self,
        *,
        job_id: str | None = None,
        state: str | Iterable[str] | None = None,
        kind: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> DeliveryPage:
        """Returns one page of deliveries, newest first.

        Args:
            job_id: Only those of this job.
            state: `pending`, `delivered`, `failed`, or several.
            kind: `webhook` or `output`.
            after: The last id of the page before.
            limit: Deliveries of the page at most, 1 to 1,000.
        """
        states = state if isinstance(state, str) or state is None else ",".join(state)
        asked = {"job_id": job_id, "state": states, "kind": kind, "after": after}
        params = {name: value for name, value in asked.items() if value} | {"limit": str(limit)}
        return decoded(self._transport.send("GET", "/v1/webhooks/deliveries", params=params), DeliveryPage)

    def deliveries(
        self,
        *,
        job_id: str | None = None,
        state: str | Iterable[str] | None = None,
        kind: str | None = None,
        page: int = 500,
    ) -> Iterator[Delivery]:
        """Yields all deliveries, newest first, a page a request; arguments as of `list_deliveries`."""
        states = list(state) if state is not None and not isinstance(state, str) else state
        after = None
        while True:
            found = self.list_deliveries(job_id=job_id, state=states, kind=kind, after=after, limit=page)
            yield from found.deliveries
            after = found.next
            if after is None:
                return

    def delivery(self, delivery_id: str) -> Delivery:
        """Returns a delivery with its log.

        Raises:
            NotFoundError: If there is none of that id.
        """
        return decoded(self._transport.send("GET", _path(delivery_id)), Delivery)

    def replay(self, delivery_id: str) -> Delivery:
        """Sends a delivery once more, with the same id and a fresh schedule.

        Raises:
            NotFoundError: If there is none of that id.
        """
        return decoded(self._transport.send("POST", f"{_path(delivery_id)}/replay"), Delivery)

    def secrets(self) -> list[SigningSecret]:
        """Returns the secrets that webhooks are signed with now, newest first."""
        return decoded(self._transport.send("GET", "/v1/webhooks/secrets"), SigningSecretList).secrets

    def rotate_secret(self, *, keep_old_s: float | None = None) -> SigningSecret:
        """Makes a new secret and returns it.

        Args:
            keep_old_s: For how long the old ones go on signing beside it; default: a day.
        """
        body: dict[str, Any] = {} if keep_old_s is None else {"keep_old_s": keep_old_s}
        # Not repeated when an answer is lost: the first rotation would be lost with it.
        response = self._transport.send(
            "POST",
            "/v1/webhooks/secrets/rotate",
            content=msgspec.json.encode(body),
            headers={"Content-Type": "application/json"},
            repeatable=False,
        )
        return decoded(response, SigningSecret)


def _path(delivery_id: str) -> str:
    return f"/v1/webhooks/deliveries/{quote(delivery_id, safe='')}"

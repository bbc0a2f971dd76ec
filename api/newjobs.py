"""A body → a `NewJob`: everything is checked here, so that the store takes what it is given.

Whatever a client can write must end as a named refusal or as a job that any store can hold: text that is stored
as text is restricted to plain characters, and inputs travel as JSON bytes without a NUL character in them (some
databases and tokenisers end a text there).
"""

import hashlib
import time
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from api.catalog import PinnedModel
from api.newlinks import make_links
from api.observed import current_traceparent
from api.schemas import JobBody
from batchfleet.access.tenants import Tenant
from batchfleet.clock import Wall
from batchfleet.errors import InvalidRequestError, TooLargeError, UnsupportedFieldError
from batchfleet.jobs.admission import check_item_count
from batchfleet.jobs.inputs import NUL, Inputs, check_inputs, refuse_nul
from batchfleet.jobs.job import Lane, NewJob, new_job_id
from batchfleet.outbox.guard import parse_networks
from batchfleet.settings import Settings

MAX_METADATA_BYTES = 16 * 1024
MAX_PARAMETERS_BYTES = 64 * 1024
MAX_RUN_AT_S = 366 * 24 * 3600.0
"""How far ahead a job may be scheduled."""

_NO_PARAMETERS = b"{}"
_ELSEWHERE = b"[]"
"""The inputs of a job whose own lie in an object: its items are counted when a worker has read them."""

_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="deterministic").encode


class JobMaker:
    """Makes jobs of bodies.

    Args:
        settings: The limits.
        announced: Whether this process announces what it submits.
        wall: The time, for `run_at` (the store decides by the database's).
    """

    def __init__(self, settings: Settings, *, announced: bool, wall: Wall = time.time) -> None:
        self._settings = settings
        self._networks = parse_networks(settings.webhook_networks)
        self._announced = announced
        self._wall = wall

    def make(self, body: JobBody, pinned: PinnedModel, *, lane: Lane, key: str | None, tenant: Tenant) -> NewJob:
        """Returns the job that a body asks for.

        Args:
            body: Well formed already.
            pinned: The model and version that it gets.
            lane: Its lane if it states none.
            key: The idempotency key.
            tenant: Whom it belongs to, and where its objects may lie.

        Raises:
            InvalidRequestError: If anything is wrong with it; `field` names what.
            TooLargeError: If anything is over a limit.
            UnsupportedFieldError: If it states what this version or deployment cannot honour.
            UriForbiddenError: If an object lies where the tenant may not.
        """
        if body.adapter:
            raise UnsupportedFieldError("adapters are not supported by this version", field="adapter")
        links = make_links(body, tenant, callbacks=self._settings.callbacks, networks=self._networks)
        count, inputs = self._inputs(body, pinned)
        run_at = self._run_at(body)
        return NewJob(
            id=new_job_id(),
            model=pinned.ref.name,
            version=pinned.ref.version,
            inputs=inputs,
            item_count=count,
            tenant=tenant.name,
            lane=body.lane or lane,
            parameters=_parameters(body.parameters, pinned),
            metadata=_metadata(body.metadata),
            on_item_error=body.on_item_error,
            run_at=run_at,
            ttl_s=body.ttl_s,
            run_timeout_s=body.run_timeout_s or self._settings.default_run_timeout_s,
            max_attempts=int(body.max_attempts or self._settings.default_max_attempts),
            idempotency_key=key,
            fingerprint=_fingerprint(body) if key is not None else "",
            links=links,
            traceparent=current_traceparent(),
            announced_by_submitter=self._announced and run_at is None,
        )

    def _inputs(self, body: JobBody, pinned: PinnedModel) -> tuple[int, bytes]:
        inputs = body.inputs
        if body.input_uri is not None:
            if inputs is not UNSET:
                raise InvalidRequestError("state `inputs` or `input_uri`, not both", field="inputs")
            return 1, _ELSEWHERE
        if inputs is UNSET:
            raise InvalidRequestError("`inputs` is required (or `input_uri`)", field="inputs")
        check_item_count(len(inputs))
        pinned.intake.check_inputs(inputs)
        data = _encode(inputs)
        check_inputs(Inputs(inputs, data), max_item_bytes=self._settings.max_item_bytes)
        return len(inputs), data

    def _run_at(self, body: JobBody) -> float | None:
        """Returns the time to start at, None for at once (the past is at once: clocks differ)."""
        if body.run_at is None:
            return None
        run_at = body.run_at.timestamp()
        now = self._wall()
        if run_at > now + MAX_RUN_AT_S:
            raise InvalidRequestError("must lie within the next 366 days", field="run_at")
        if body.ttl_s is not None and now < run_at and now + body.ttl_s <= run_at:
            told = "counts from now and ends before `run_at`: the job could never start"
            raise InvalidRequestError(told, field="ttl_s")
        return run_at if run_at > now else None


def check_key(*stated: str) -> str | None:
    """Returns the value of the `Idempotency-Key` header, None if there is none.

    Raises:
        InvalidRequestError: If it is stated twice, or is not 1 to 255 printable ASCII characters.
    """
    if not stated:
        return None
    if len(stated) > 1:
        raise InvalidRequestError("must be stated once", field="Idempotency-Key")
    text = stated[0]
    if not 1 <= len(text) <= 255 or not text.isascii() or not text.isprintable():
        raise InvalidRequestError("must be 1 to 255 printable ASCII characters", field="Idempotency-Key")
    return text


def _parameters(stated: Mapping[str, Any] | None, pinned: PinnedModel) -> bytes:
    if not stated:
        return _NO_PARAMETERS
    pinned.intake.parse_parameters(stated)
    data = _encode(stated)
    if len(data) > MAX_PARAMETERS_BYTES:
        raise TooLargeError(f"may have {MAX_PARAMETERS_BYTES} bytes as JSON", field="parameters")
    if NUL in data:
        refuse_nul(stated, "parameters")
    return data


def _metadata(stated: Mapping[str, Any] | None) -> bytes | None:
    if stated is None:
        return None
    data = _encode(stated)
    if len(data) > MAX_METADATA_BYTES:
        raise TooLargeError(f"may have {MAX_METADATA_BYTES} bytes as JSON", field="metadata")
    if NUL in data:
        refuse_nul(stated, "metadata")
    return data


def _fingerprint(body: JobBody) -> str:
    """Digest of what was asked for: spacing and the order of members do not matter, nor does the key itself."""
    asked = msgspec.structs.asdict(body)
    asked.pop("idempotency_key", None)
    asked = {name: value for name, value in asked.items() if value is not UNSET}
    return hashlib.blake2b(_encode_sorted(asked), digest_size=16).hexdigest()

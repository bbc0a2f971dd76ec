"""A body → a `NewJob`: everything is checked here, so that the store takes what it is given.

Whatever a client can write must end as a named refusal or as a job that any store can hold: text that is stored
as text is restricted to plain characters, and inputs travel as JSON bytes without a NUL character in them (some
databases and tokenisers end a text there).
"""

import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from api.catalog import PinnedModel
from api.schemas import JobBody
from batchfleet.clock import Wall
from batchfleet.errors import InvalidRequestError, TooLargeError, UnsupportedFieldError
from batchfleet.jobs.admission import check_item_count
from batchfleet.jobs.job import MAX_ITEMS_PER_JOB, Lane, NewJob, new_job_id
from batchfleet.settings import Settings

DEFAULT_TENANT = "default"
"""Whom jobs belong to while there are no keys."""

MAX_METADATA_BYTES = 16 * 1024
MAX_PARAMETERS_BYTES = 64 * 1024
MAX_RUN_AT_S = 366 * 24 * 3600.0
"""How far ahead a job may be scheduled."""

_NUL = b"\\u0000"
_NO_PARAMETERS = b"{}"
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
        self._announced = announced
        self._wall = wall

    def make(
        self, body: JobBody, pinned: PinnedModel, *, lane: Lane, key: str | None, tenant: str = DEFAULT_TENANT
    ) -> NewJob:
        """Returns the job that a body asks for.

        Args:
            body: Well formed already.
            pinned: The model and version that it gets.
            lane: Its lane if it states none.
            key: The idempotency key.
            tenant: Whom it belongs to.

        Raises:
            InvalidRequestError: If anything is wrong with it; `field` names what.
            TooLargeError: If anything is over a limit.
            UnsupportedFieldError: If it states what is not built yet.
        """
        _refuse_unsupported(body)
        inputs = self._inputs(body, pinned)
        run_at = self._run_at(body)
        return NewJob(
            id=new_job_id(),
            model=pinned.ref.name,
            version=pinned.ref.version,
            inputs=inputs,
            item_count=len(body.inputs),  # type: ignore[arg-type]  # `_inputs` has seen that it is a list
            tenant=tenant,
            lane=body.lane or lane,
            parameters=_parameters(body.parameters, pinned),
            metadata=_metadata(body.metadata),
            on_item_error=body.on_item_error,
            run_at=run_at,
            ttl_s=body.ttl_s,
            run_timeout_s=body.run_timeout_s or self._settings.default_run_timeout_s,
            max_attempts=body.max_attempts or self._settings.default_max_attempts,
            idempotency_key=key,
            fingerprint=_fingerprint(body) if key is not None else "",
            announced_by_submitter=self._announced and run_at is None,
        )

    def _inputs(self, body: JobBody, pinned: PinnedModel) -> bytes:
        inputs = body.inputs
        if inputs is UNSET:
            raise InvalidRequestError("`inputs` is required", field="inputs")
        _check_count(len(inputs))
        pinned.intake.check_inputs(inputs)
        data = _encode(inputs)
        if len(data) > self._settings.max_item_bytes:
            self._check_item_sizes(inputs)
        if _NUL in data:
            _refuse_nul(inputs, "inputs")
        return data

    def _check_item_sizes(self, inputs: Sequence[Any]) -> None:
        limit = self._settings.max_item_bytes
        for index, item in enumerate(inputs):
            if len(_encode(item)) > limit:
                raise TooLargeError(f"an input may have {limit} bytes", field=f"inputs[{index}]")

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


def _check_count(count: int) -> None:
    if count > MAX_ITEMS_PER_JOB:
        told = f"a job takes at most {MAX_ITEMS_PER_JOB:,} inputs, not {count:,}: submit several jobs"
        raise TooLargeError(told, field="inputs")
    check_item_count(count)


def _refuse_unsupported(body: JobBody) -> None:
    if body.adapter:
        raise UnsupportedFieldError("adapters are not supported by this version", field="adapter")
    if body.input_uri is None and body.output_uri is None and body.callback_url is None:
        return
    field = next(name for name in ("input_uri", "output_uri", "callback_url") if getattr(body, name) is not None)
    raise UnsupportedFieldError("not supported by this version", field=field)


def _parameters(stated: Mapping[str, Any] | None, pinned: PinnedModel) -> bytes:
    if not stated:
        return _NO_PARAMETERS
    pinned.intake.parse_parameters(stated)
    data = _encode(stated)
    if len(data) > MAX_PARAMETERS_BYTES:
        raise TooLargeError(f"may have {MAX_PARAMETERS_BYTES} bytes as JSON", field="parameters")
    if _NUL in data:
        _refuse_nul(stated, "parameters")
    return data


def _metadata(stated: Mapping[str, Any] | None) -> bytes | None:
    if stated is None:
        return None
    data = _encode(stated)
    if len(data) > MAX_METADATA_BYTES:
        raise TooLargeError(f"may have {MAX_METADATA_BYTES} bytes as JSON", field="metadata")
    if _NUL in data:
        _refuse_nul(stated, "metadata")
    return data


def _refuse_nul(value: object, path: str) -> None:
    """Raises for the first NUL in a text; what only looks like its escape (a backslash, then u0000) passes."""
    if isinstance(value, str):
        if "\0" in value:
            raise InvalidRequestError("holds a NUL character (\\u0000)", field=path)
    elif isinstance(value, Mapping):
        for key, member in value.items():
            _refuse_nul(key, path)
            _refuse_nul(member, f"{path}.{key}")
    elif isinstance(value, list):
        for index, member in enumerate(value):
            _refuse_nul(member, f"{path}[{index}]")


def _fingerprint(body: JobBody) -> str:
    """Digest of what was asked for: spacing and the order of members do not matter, nor does the key itself."""
    asked = msgspec.structs.asdict(body)
    asked.pop("idempotency_key", None)
    return hashlib.blake2b(_encode_sorted(asked), digest_size=16).hexdigest()

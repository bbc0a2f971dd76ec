"""Bytes of a request body → structures of `schemas`, or an error that names the field."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import msgspec
from litestar import Request

from api.auth import Caller
from api.problems import BodyTimeoutError, CrossOriginError, MalformedBodyError, UnsupportedMediaTypeError
from api.schemas import BulkJobBody, JobBody, LookupBody
from api.wording import Wording, holds_several, malformed
from batchfleet.errors import InvalidRequestError, TooLargeError

T = TypeVar("T")

NDJSON_TYPES = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"})
JSON_TYPES = frozenset({"", "application/json", "text/json", "text/plain", "application/x-www-form-urlencoded"})
"""Besides the JSON types (all `+json` ones, too), what clients state of themselves when their user stated nothing:
`curl -d` the last one, a browser's `fetch` of a string `text/plain`. `check_origin` guards what these open."""

SILENCE_S = 60.0
"""A client that sends nothing of its body for so long is answered 408, and its connection closed."""

BODY_S = 900.0
"""So is one whose body takes longer than this in all: a byte now and then must not hold a connection for ever."""

_BOM = b"\xef\xbb\xbf"

job_decoder = msgspec.json.Decoder(JobBody)
lookup_decoder = msgspec.json.Decoder(LookupBody)
_bulk_job = msgspec.json.Decoder(BulkJobBody)
_bulk_jobs = msgspec.json.Decoder(list[BulkJobBody])
_raw_job = msgspec.json.Decoder(msgspec.Raw)
_raw_jobs = msgspec.json.Decoder(list[msgspec.Raw])
_wording = Wording(JobBody, BulkJobBody, LookupBody)


class ClientGoneError(MalformedBodyError):
    """The client hung up while it sent its body; nobody reads the answer."""


async def read_body(request: Request[Any, Any, Any], limit: int) -> bytes:
    """Returns the whole body; refuses a larger one before it is in memory.

    Raises:
        TooLargeError: If it is longer than `limit` bytes, stated or sent.
        BodyTimeoutError: If it stops arriving, or takes too long in all.
        ClientGoneError: If the client hangs up before its end.
    """
    stated = request.headers.get("content-length", "")
    if stated.isdecimal() and int(stated) > limit:
        raise TooLargeError(f"the body may have {limit} bytes")
    chunks: list[bytes] = []
    try:
        async with asyncio.timeout(SILENCE_S) as patience:
            last = asyncio.get_running_loop().time() + BODY_S
            async for chunk in _chunks(request, limit):
                chunks.append(chunk)
                patience.reschedule(min(asyncio.get_running_loop().time() + SILENCE_S, last))
    except TimeoutError:
        raise BodyTimeoutError("the rest of the body did not come") from None
    return (chunks[0] if len(chunks) == 1 else b"".join(chunks)).removeprefix(_BOM)


async def _chunks(request: Request[Any, Any, Any], limit: int) -> AsyncIterator[bytes]:
    size = 0
    more = True
    while more:
        message: Any = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError("the client hung up")
        size += len(message["body"])
        if size > limit:
            raise TooLargeError(f"the body may have {limit} bytes")
        yield message["body"]
        more = message["more_body"]


def content_type(request: Request[Any, Any, Any]) -> str:
    """Returns the media type that the request states, without parameters; empty if none."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def check_origin(request: Request[Any, Any, Any], caller: Caller) -> None:
    """Refuses what a page of another site makes a browser send to an API that asks for no key.

    Any page which somebody on this machine looks at could submit jobs otherwise. Programs state no origin; and a
    page that knows a key may use it: a browser adds none on its own.

    Raises:
        CrossOriginError: If the request states an origin that is not ours.
    """
    origin = request.headers.get("origin") if caller.key_id is None else None
    if origin is not None and origin.partition("://")[2] != request.headers.get("host", ""):
        raise CrossOriginError("pages of other sites may not change anything here", field="Origin")


def check_json_type(request: Request[Any, Any, Any], caller: Caller, *, also: frozenset[str] = frozenset()) -> None:
    """Lets JSON pass, and what clients send that state no type; none of it from a page of another site.

    Raises:
        CrossOriginError: If the request states an origin that is not ours.
        UnsupportedMediaTypeError: If the body is said to be something else.
    """
    check_origin(request, caller)
    stated = content_type(request)
    if stated not in JSON_TYPES and stated not in also and not stated.endswith("+json"):
        raise UnsupportedMediaTypeError(_wrong_type(stated), field="Content-Type")


def decode(decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw, *, line: bool = False) -> T:
    """Decodes a body, or one line of it.

    Raises:
        MalformedBodyError: If it is not JSON.
        InvalidRequestError: If it has another form than asked for; `field` says where.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as exc:
        raise _wording.invalid(exc) from exc
    except msgspec.DecodeError as exc:
        raise malformed(exc, bytes(body), line=line) from exc
    except RecursionError as exc:
        raise MalformedBodyError("nested too deeply") from exc


def decode_bulk(body: bytes, *, ndjson: bool, limit: int) -> list[BulkJobBody | InvalidRequestError]:
    """Decodes a JSON array or NDJSON; a bad member costs only itself.

    Raises:
        MalformedBodyError: If the array as a whole is not JSON, or all lines were sent as one.
        InvalidRequestError: If it is something other than an array, or empty.
        TooLargeError: If there are more than `limit` jobs.
    """
    members = _lines(body) if ndjson or _looks_like_lines(body) else _array(body)
    if not members:
        raise InvalidRequestError("the request holds no job")
    if len(members) > limit:
        raise TooLargeError(f"a bulk request may hold {limit} jobs, not {len(members)}")
    return [member if isinstance(member, BulkJobBody) else _member(member) for member in members]


def _array(body: bytes) -> list[Any]:
    """Returns structures, or the raw members if any of them is bad."""
    try:
        return _bulk_jobs.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return decode(_raw_jobs, body)


def _lines(body: bytes) -> list[Any]:
    """Returns structures, or the raw lines if any of them is bad; blank lines are not counted."""
    lines = [line for line in body.split(b"\n") if line.strip()]
    try:
        members = _bulk_job.decode_lines(body)
        if len(members) <= len(lines):  # msgspec also takes several values on one line
            return members
    except (msgspec.DecodeError, RecursionError):
        pass
    if len(lines) == 1:
        _refuse_joined(lines[0])
    return list(lines)


def _refuse_joined(line: bytes) -> None:
    """`curl -d @file` takes the line ends out: then it is the request that is wrong, and not one of its jobs."""
    try:
        _raw_job.decode(line)
    except msgspec.DecodeError as exc:
        if holds_several(exc, line):
            raise malformed(exc, line, line=True) from exc
    except RecursionError:
        pass  # told of the job


def _member(raw: bytes | msgspec.Raw) -> BulkJobBody | InvalidRequestError:
    try:
        return decode(_bulk_job, raw, line=True)
    except InvalidRequestError as exc:
        return exc


def _looks_like_lines(body: bytes) -> bool:
    """A body that begins with an object can only be NDJSON: the other form is an array."""
    return body[:64].lstrip()[:1] == b"{"


def _wrong_type(stated: str) -> str:
    if stated in NDJSON_TYPES:
        return f"send application/json, not {stated!r} (which POST /v1/jobs/bulk takes)"
    return f"send application/json, not {stated!r}"

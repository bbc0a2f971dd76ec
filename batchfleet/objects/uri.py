"""`s3://bucket/key`, taken apart and compared with allowed prefixes. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from batchfleet.errors import InvalidRequestError

MAX_KEY_BYTES: Final = 1024
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", re.ASCII)


@dataclass(frozen=True, slots=True)
class ObjectUri:
    """Where an object lies. The key is as S3 has it: not percent-encoded, and never normalised."""

    bucket: str
    key: str

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


def parse_uri(text: str, *, field: str) -> ObjectUri:
    """Reads the URI of one object.

    Raises:
        InvalidRequestError: If it is none; `field` names where it stood.
    """
    scheme, found, rest = text.partition("://")
    if not found or scheme != "s3":
        raise InvalidRequestError("must be s3://bucket/key", field=field)
    bucket, slash, key = rest.partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise InvalidRequestError("has no valid bucket name: s3://bucket/key", field=field)
    if not slash or not key or key.endswith("/"):
        raise InvalidRequestError("must name an object: s3://bucket/key", field=field)
    if len(key.encode()) > MAX_KEY_BYTES or not key.isprintable():
        raise InvalidRequestError(f"its key must be printable and have at most {MAX_KEY_BYTES} bytes", field=field)
    if any(part in {".", ".."} for part in key.split("/")):
        raise InvalidRequestError("its key must not have '.' or '..' as a segment", field=field)
    return ObjectUri(bucket, key)


def parse_prefix(text: str, *, field: str = "prefix") -> str:
    """Returns an allowed prefix in its one form, which ends with `/`: `s3://bucket/` or `s3://bucket/some/prefix/`.

    Raises:
        InvalidRequestError: If it is none.
    """
    whole = text if text.endswith("/") else f"{text}/"
    if whole == f"s3://{whole[5:].strip('/')}/" and "/" not in whole[5:-1]:
        parse_uri(f"{whole}x", field=field)
        return whole
    parse_uri(whole[:-1], field=field)
    return whole


def is_under(uri: ObjectUri, prefixes: Iterable[str]) -> bool:
    """Returns whether an object lies under any of the prefixes, segment by segment."""
    text = str(uri)
    return any(text.startswith(prefix) for prefix in prefixes)

"""Callers' objects in S3."""

import threading
from typing import NoReturn

from batchfleet.objects.port import (
    ObjectForbiddenError,
    ObjectNotFoundError,
    ObjectsUnavailableError,
    ObjectTooLargeError,
)
from batchfleet.objects.s3_client import (
    CorruptObjectError,
    Fault,
    ObjectOverLimitError,
    S3Client,
    S3Settings,
    S3Terms,
    fault_of,
    make_s3_client,
    read_object,
    s3_errors,
    write_object,
)
from batchfleet.objects.uri import ObjectUri


class S3Objects:
    """The adapter. Its client is made when the first object is asked for: most fleets never ask.

    Args:
        settings: Where the server is.
        terms: How long it is waited for.
    """

    def __init__(self, settings: S3Settings, terms: S3Terms | None = None) -> None:
        self._settings = settings
        self._terms = terms
        self._made: S3Client | None = None
        self._lock = threading.Lock()

    def read(self, uri: ObjectUri, *, limit: int) -> bytes:
        """Returns an object, of `limit` bytes at most."""
        client = self._client()
        try:
            return read_object(client, uri.bucket, uri.key, limit=limit)
        except ObjectOverLimitError as error:
            raise ObjectTooLargeError(f"{uri} has {error.size} bytes; {limit} are allowed") from None
        except CorruptObjectError as error:
            raise ObjectsUnavailableError(f"cannot read {uri}: {error}") from error
        except s3_errors() as error:
            _tell(error, uri, "read")

    def write(self, uri: ObjectUri, data: bytes, *, content_type: str) -> None:
        """Writes an object whole, with a checksum."""
        client = self._client()
        try:
            write_object(client, uri.bucket, uri.key, data, content_type)
        except s3_errors() as error:
            _tell(error, uri, "written")

    def close(self) -> None:
        """Gives up connections; idempotent."""
        with self._lock:
            made, self._made = self._made, None
        if made is not None:
            made.close()

    def _client(self) -> S3Client:
        with self._lock:
            if self._made is None:
                self._made = make_s3_client(self._settings, self._terms)
            return self._made


def _tell(error: Exception, uri: ObjectUri, what: str) -> NoReturn:
    """Raises the port's error for one of boto3's. The text names no credentials: boto3's messages hold none."""
    match fault_of(error):
        case Fault.NO_OBJECT:
            raise ObjectNotFoundError(f"there is no object {uri}") from error
        case Fault.NO_BUCKET:
            raise ObjectNotFoundError(f"there is no bucket {uri.bucket!r} ({uri})") from error
        case Fault.FORBIDDEN:
            raise ObjectForbiddenError(f"{uri} may not be {what}: {error}") from error
        case Fault.REFUSED | Fault.INVALID:
            raise ObjectForbiddenError(f"{uri} cannot be {what}: the object store refuses it: {error}") from error
        case Fault.AWAY:
            raise ObjectsUnavailableError(f"{uri} cannot be {what} now: {error}") from error

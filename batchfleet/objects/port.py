"""The port to callers' objects. Synchronous, safe to call from any thread."""

from typing import ClassVar, Protocol

from batchfleet.errors import NotFoundError, TooLargeError, UnavailableError
from batchfleet.objects.uri import ObjectUri


class ObjectNotFoundError(NotFoundError):
    """There is no such object or bucket."""

    code: ClassVar[str] = "object_not_found"


class ObjectForbiddenError(NotFoundError):
    """The object store does not let us: told to the caller, who owns the bucket's policy."""

    code: ClassVar[str] = "object_forbidden"


class ObjectTooLargeError(TooLargeError):
    """The object is larger than what was allowed to be read."""


class ObjectsUnavailableError(UnavailableError):
    """The object store cannot be reached, or goes on failing after retries."""

    code: ClassVar[str] = "objects_unavailable"


class ObjectStore(Protocol):
    """Reads and writes whole, small objects."""

    def read(self, uri: ObjectUri, *, limit: int) -> bytes:
        """Returns an object.

        Raises:
            ObjectNotFoundError: If there is none.
            ObjectForbiddenError: If it may not be read.
            ObjectTooLargeError: If it has more than `limit` bytes; it is then not read.
            ObjectsUnavailableError: If the store fails.
        """
        ...

    def write(self, uri: ObjectUri, data: bytes, *, content_type: str) -> None:
        """Writes an object whole, with a checksum; one that is there is replaced.

        Raises:
            ObjectNotFoundError: If there is no such bucket.
            ObjectForbiddenError: If it may not be written.
            ObjectsUnavailableError: If the store fails.
        """
        ...

    def close(self) -> None:
        """Gives up connections."""
        ...

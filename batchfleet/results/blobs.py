"""The port to the blob store, where results go that are too large for a row.

A result is written under `<job>/<epoch>` before the guarded settle makes it *the* result, so that a stale worker
never overwrites a good one; blobs that no row names are swept. One contract suite
(`tests/contract/test_blobs_contract.py`) holds every adapter to what is written here.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol, TypeAlias

from batchfleet.errors import NotFoundError, UnavailableError
from batchfleet.jobs.job import JobId

BlobData: TypeAlias = bytes | bytearray | memoryview

MAX_KEY_LENGTH: Final = 512
MAX_SEGMENT_LENGTH: Final = 200

_SEGMENT: Final = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9_=.-]*", re.ASCII)


class InvalidBlobKeyError(ValueError):
    """The key could leave the store, or not every store could hold it: a programming error."""


class BlobNotFoundError(NotFoundError):
    """There is no blob of that key."""

    code: ClassVar[str] = "blob_not_found"


class BlobsUnavailableError(UnavailableError):
    """The blob store cannot be reached, or refuses (disk full, no permission). Nothing was changed."""

    code: ClassVar[str] = "blobs_unavailable"


class BlobRefusedError(BlobsUnavailableError):
    """The blob store works, but does not take this blob (it is too large for it), and would not later."""


@dataclass(frozen=True, slots=True)
class BlobEntry:
    """A blob as a listing shows it.

    Attributes:
        modified_at: When it was written, in Unix seconds of the blob store's clock.
    """

    key: str
    size: int
    modified_at: float


class BlobStore(Protocol):
    """Named, immutable pieces of bytes. Safe to call from any thread.

    Every method raises `InvalidBlobKeyError` for a bad key, and `BlobsUnavailableError` if the store fails.
    """

    def put(self, key: str, data: BlobData) -> None:
        """Stores a blob whole or not at all, durably; one of the same key is replaced.

        Raises:
            BlobRefusedError: If the store would never take it.
        """
        ...

    def get(self, key: str) -> bytes:
        """Returns a blob.

        Raises:
            BlobNotFoundError: If there is none.
        """
        ...

    def exists(self, key: str) -> bool:
        """Returns whether there is a blob of that key."""
        ...

    def delete(self, key: str) -> None:
        """Removes a blob; one that is gone already is no error."""
        ...

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[BlobEntry]:
        """Yields the blobs whose keys are `prefix`, or lie under it as under a folder; all if it is empty.

        In the order of the keys' bytes (`a-b` before `a/b`). What is put or deleted meanwhile may or may not be seen.

        Args:
            prefix: A key, or the beginning of keys up to, and without, a `/`.
            after: Only keys that come later in order than this one.
        """
        ...

    def link(self, key: str, *, content_type: str, file_name: str) -> str | None:
        """Returns a URL under which anybody can read the blob for some time; None where the store has no such thing.

        Args:
            key: The blob's key; it is not checked whether there is one.
            content_type: What the answer will say that it is.
            file_name: What it will propose to be saved as.
        """
        ...

    def close(self) -> None:
        """Gives up connections; idempotent."""
        ...


def result_key(job_id: JobId, epoch: int) -> str:
    """Returns the key under which one run of a job writes its result."""
    return f"{job_id}/{epoch}"


def check_key(key: str) -> str:
    """Returns the key if every store can hold it: segments of letters, digits and `_=.-`, joined by `/`.

    Raises:
        InvalidBlobKeyError: If not. No segment may begin with a dot, so none is `..` and none is hidden.
    """
    segments = key.split("/")
    whole = all(_SEGMENT.fullmatch(part) and len(part) <= MAX_SEGMENT_LENGTH for part in segments)
    if not whole or len(key) > MAX_KEY_LENGTH:
        raise InvalidBlobKeyError(f"not a blob key: {key!r}")
    return key

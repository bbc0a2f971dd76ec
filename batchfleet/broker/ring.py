"""What a ring carries: a version byte and packed job ids, 16 bytes each. Pure."""

from collections.abc import Sequence
from typing import Final

from batchfleet.jobs.job import JobId

RING_CHANNEL: Final = "batchfleet.ring"
"""Name of the one channel on which all rings travel."""

_VERSION: Final = b"\x01"
_ID_BYTES: Final = 16


class InvalidRingError(ValueError):
    """A message that is no ring of a known version; it is dropped, since waiters look up by themselves."""


def pack_ids(ids: Sequence[JobId]) -> bytes:
    """Returns ids as one message.

    Raises:
        ValueError: If one is not an id.
    """
    packed = bytes.fromhex("".join(ids))
    if len(packed) != _ID_BYTES * len(ids):
        raise ValueError("not job ids")
    return _VERSION + packed


def unpack_ids(message: bytes) -> list[JobId]:
    """Returns the ids of a message.

    Raises:
        InvalidRingError: If it is not a ring.
    """
    if message[:1] != _VERSION or len(message) % _ID_BYTES != 1:
        raise InvalidRingError(f"not a ring: {len(message)} bytes")
    digits = message[1:].hex()
    return [digits[start : start + 2 * _ID_BYTES] for start in range(0, len(digits), 2 * _ID_BYTES)]

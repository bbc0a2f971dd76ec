"""The hint: "these job ids of this model and lane are ready".

A hint can be lost, doubled or late without harm: the claim in the database decides. One hint names many jobs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from batchfleet.jobs.job import Announcement, JobId, Lane

HINT_VERSION = 1
MAX_IDS_PER_HINT = 32
"""Bounds how far one hint can overfill a window: about one batch of short texts."""
MAX_ITEMS_PER_HINT = 256
"""Likewise, for jobs of many items (one job over it still makes a hint of its own)."""


@dataclass(frozen=True, slots=True)
class Flow:
    """What hints are kept apart by: a worker pulls only flows that it serves."""

    model: str
    lane: Lane

    @property
    def queue(self) -> str:
        """Name of the flow's queue in the broker."""
        return f"batchfleet.hints.{self.lane}.{self.model}"


@dataclass(frozen=True, slots=True)
class Hint:
    """One message: the flow, the length bucket that its jobs share, and their ids."""

    model: str
    lane: Lane
    ids: tuple[JobId, ...]
    bucket: int = 0

    @property
    def flow(self) -> Flow:
        """Returns the flow it belongs to."""
        return Flow(self.model, self.lane)


class InvalidHintError(ValueError):
    """A message that is no hint of a known version; it is dropped and counted, since the relay repeats."""


class _Wire(msgspec.Struct, frozen=True):
    """The message body: JSON with one-letter names, since it is written for every few jobs."""

    v: int
    m: str
    l: Lane  # noqa: E741 - a wire name
    i: tuple[str, ...]
    b: int = 0


_decoder = msgspec.json.Decoder(_Wire)


def encode_hint(hint: Hint) -> bytes:
    """Returns the hint as a message body."""
    return msgspec.json.encode(_Wire(HINT_VERSION, hint.model, hint.lane, hint.ids, hint.bucket))


def decode_hint(body: bytes | str) -> Hint:
    """Reads a message body.

    Raises:
        InvalidHintError: If it is not a hint, or one of another version.
    """
    try:
        wire = _decoder.decode(body)
    except msgspec.MsgspecError as exc:
        raise InvalidHintError(str(exc)) from exc
    if wire.v != HINT_VERSION:
        raise InvalidHintError(f"hint version {wire.v}")
    return Hint(wire.m, wire.l, wire.i, wire.b)


def length_bucket(input_bytes: int, item_count: int = 1) -> int:
    """Returns the bucket of a job by its mean item size: powers of two, so that like lengths travel together."""
    return max(5, (input_bytes // max(1, item_count)).bit_length())


def group_hints(
    jobs: Iterable[Announcement], *, max_ids: int = MAX_IDS_PER_HINT, max_items: int = MAX_ITEMS_PER_HINT
) -> list[Hint]:
    """Groups jobs by (model, lane, length bucket) into as few hints as their order allows.

    The order of first appearance is kept, so that a fair order of jobs stays fair.
    """
    groups: dict[tuple[str, Lane, int], list[JobId]] = {}
    items: dict[tuple[str, Lane, int], int] = {}
    hints: list[Hint] = []
    for job in jobs:
        key = (job.model, job.lane, length_bucket(job.input_bytes, job.item_count))
        ids = groups.setdefault(key, [])
        ids.append(job.id)
        items[key] = items.get(key, 0) + job.item_count
        if len(ids) == max_ids or items[key] >= max_items:
            hints.append(_hint(key, groups.pop(key)))
            del items[key]
    hints.extend(_hint(key, ids) for key, ids in groups.items())
    return hints


def _hint(key: tuple[str, Lane, int], ids: Sequence[JobId]) -> Hint:
    model, lane, bucket = key
    return Hint(model, lane, tuple(ids), bucket)

"""The hint: "these job ids of this model and lane are ready".

A hint can be lost, doubled or late without harm: the claim in the database decides. One hint names many jobs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from batchfleet.jobs.job import Announcement, JobId, Lane

HINT_VERSION = 1
MAX_IDS_PER_HINT = 32
"""Bounds how far one hint can overfill a window: about one batch of short texts."""
MAX_ITEMS_PER_HINT = 256
"""Likewise, for jobs of many items (one job over it still makes a hint of its own)."""
SORTED_TOGETHER = 4_096
"""Jobs announced at once that may change places for the sake of like lengths."""


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
    """One message: the flow, and the ids of jobs of like length."""

    model: str
    lane: Lane
    ids: tuple[JobId, ...]

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


_decoder = msgspec.json.Decoder(_Wire)


def encode_hint(hint: Hint) -> bytes:
    """Returns the hint as a message body."""
    return msgspec.json.encode(_Wire(HINT_VERSION, hint.model, hint.lane, hint.ids))


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
    return Hint(wire.m, wire.l, wire.i)


def group_hints(
    jobs: Sequence[Announcement], *, max_ids: int = MAX_IDS_PER_HINT, max_items: int = MAX_ITEMS_PER_HINT
) -> list[Hint]:
    """Groups jobs by flow into few hints, jobs of like length together and the longest first.

    A worker pulls hints in a row, so that its window then holds items of like length and little is padded, even
    where it is too small to sort much itself. The longest first, because short passes at the end let the workers
    of a fleet finish together. Order among jobs that are announced at once is free; so that a fair order of many
    jobs stays fair, only stretches of `SORTED_TOGETHER` are sorted.
    """
    hints: list[Hint] = []
    for start in range(0, len(jobs), SORTED_TOGETHER):
        flows: dict[tuple[str, Lane], list[Announcement]] = {}
        for job in jobs[start : start + SORTED_TOGETHER]:
            flows.setdefault((job.model, job.lane), []).append(job)
        for (model, lane), members in flows.items():
            members.sort(key=_mean_item_bytes, reverse=True)
            hints += (Hint(model, lane, ids) for ids in _cut(members, max_ids, max_items))
    return hints


def _mean_item_bytes(job: Announcement) -> float:
    return job.input_bytes / max(1, job.item_count)


def _cut(jobs: Sequence[Announcement], max_ids: int, max_items: int) -> Iterator[tuple[JobId, ...]]:
    ids: list[JobId] = []
    items = 0
    for job in jobs:
        ids.append(job.id)
        items += job.item_count
        if len(ids) >= max_ids or items >= max_items:
            yield tuple(ids)
            ids, items = [], 0
    if ids:
        yield tuple(ids)

"""Orphans: result blobs that no job names, left by workers and purges that died between database and blob store.

Pure but for the ports: the caller brings the time, and says who is needed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from batchfleet.results.blobs import BlobEntry, BlobStore

PAGE: Final = 500
"""Keys that are asked about, and removed, together."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep did.

    Attributes:
        removed: Blobs that are gone now.
        seen: Blobs that were looked at.
        next_after: Where the next sweep goes on; empty where this one came to the end.
    """

    removed: int
    seen: int
    next_after: str


def sweep_orphans(
    blobs: BlobStore,
    named: Callable[[Sequence[str]], set[str]],
    *,
    now: float,
    grace_s: float,
    limit: int,
    after: str = "",
) -> Swept:
    """Removes blobs that nobody needs and that are older than a grace.

    Interrupted anywhere, it may be repeated: removing is idempotent, and what was kept is kept again.

    Args:
        blobs: Where they lie.
        named: Returns those of some keys that are needed: `JobStore.named_blobs`.
        now: Unix time, as the blob store has it.
        grace_s: A younger blob may be settled still: more than the longest run timeout and a lease together.
        limit: Look at so many blobs at most.
        after: `next_after` of the sweep before.

    Raises:
        BlobsUnavailableError: If the blob store fails.
        StoreUnavailableError: If the database cannot be reached; nothing that it was not asked about was removed.
    """
    removed = seen = 0
    while seen < limit:
        wanted = min(PAGE, limit - seen)
        # Listed to its end before anything of it is removed: no listing is open while its keys vanish.
        page = list(islice(blobs.list(after=after), wanted))
        removed += _remove_unneeded(blobs, named, [entry for entry in page if entry.modified_at < now - grace_s])
        seen += len(page)
        if len(page) < wanted:
            return Swept(removed, seen, "")
        after = page[-1].key
    return Swept(removed, seen, after)


def _remove_unneeded(blobs: BlobStore, named: Callable[[Sequence[str]], set[str]], old: Sequence[BlobEntry]) -> int:
    if not old:
        return 0
    needed = named([entry.key for entry in old])
    orphans = [entry.key for entry in old if entry.key not in needed]
    for key in orphans:
        blobs.delete(key)
    return len(orphans)

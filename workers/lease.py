"""The worker's view of its lease: a few bytes shared with the keeper process that renews it.

Fencing counts from when the last good heartbeat was *sent*: past half a TTL without one, the worker neither
claims nor starts a pass, since it may already have been declared dead. Finished results still settle; their
epochs guard them.
"""

import mmap
import struct
import time
from collections.abc import Callable
from typing import Final

from batchfleet.clock import Monotonic
from batchfleet.jobs.job import WorkerState

_SENT, _TRIED, _STATE, _LOST, _RETIRED = 0, 8, 16, 17, 18  # offsets in the shared page
_STATES: Final = tuple(WorkerState)


class SharedLease:
    """Shared memory between worker and keeper; made before the keeper is forked.

    One side writes each field, and each is smaller than a cache line: no lock is needed.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)

    # -- the keeper's side --------------------------------------------------------------------------------

    def beat(self, sent_at: float) -> None:
        """Notes the monotonic time at which a heartbeat that succeeded was sent."""
        struct.pack_into("<d", self._memory, _SENT, sent_at)

    def try_beat(self, at: float) -> None:
        """Notes that the keeper is about to send a heartbeat: it lives, whatever the database says."""
        struct.pack_into("<d", self._memory, _TRIED, at)

    def lose(self) -> None:
        """Notes that the database has no such lease any more."""
        self._memory[_LOST] = 1

    @property
    def retired(self) -> bool:
        """Whether the worker has handed back everything: nothing is left to bury."""
        return bool(self._memory[_RETIRED])

    # -- the worker's side --------------------------------------------------------------------------------

    @property
    def state(self) -> WorkerState:
        """What the worker wants its lease to say."""
        return _STATES[self._memory[_STATE]]

    @state.setter
    def state(self, state: WorkerState) -> None:
        self._memory[_STATE] = _STATES.index(state)

    def retire(self) -> None:
        """Notes that nothing is left to bury."""
        self._memory[_RETIRED] = 1

    @property
    def last_sent(self) -> float:
        """Monotonic time at which the last good heartbeat was sent; 0 before the first."""
        return float(struct.unpack_from("<d", self._memory, _SENT)[0])

    @property
    def last_tried(self) -> float:
        """Monotonic time at which the keeper last set out to send a heartbeat; 0 before the first."""
        return float(struct.unpack_from("<d", self._memory, _TRIED)[0])

    @property
    def lost(self) -> bool:
        """Whether the boot was declared dead: it must stop, and starts afresh."""
        return bool(self._memory[_LOST])


class Fence:
    """Says whether this boot may claim and start passes.

    Args:
        shared: What the keeper reports.
        ttl_s: The lease's time to live.
    """

    def __init__(self, shared: SharedLease, ttl_s: float, clock: Monotonic = time.monotonic) -> None:
        self._shared = shared
        self._ttl_s = ttl_s
        self._clock = clock

    def __call__(self) -> bool:
        """Returns whether the last good heartbeat was sent less than half a TTL ago."""
        return not self._shared.lost and self._clock() - self._shared.last_sent < self._ttl_s / 2


MayWork = Callable[[], bool]
"""What the stages ask before they claim or start; `Fence` in production."""

"""The item: one input of a job, prepared; what batches are made of."""

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, TypeAlias

from batchfleet.jobs.job import JobId, Lane

ItemKey: TypeAlias = int
"""Names an item within one worker process."""

Urgency: TypeAlias = tuple[float, int, int]
"""Orders items: the smaller goes first."""

LANE_PATIENCE_S: dict[Lane, float] = {Lane.ONLINE: 0.0, Lane.STANDARD: 2.0, Lane.BULK: 30.0}
"""How much longer than an online item one of the lane may wait before it goes first.

Ageing comes for free: an item's urgency is the moment it arrived plus its lane's patience, so that a bulk item
waits at most 30 s behind any stream of online ones.
"""

LANE_GRAIN_S: dict[Lane, float] = {Lane.ONLINE: 0.0, Lane.STANDARD: 0.1, Lane.BULK: 1.5}
"""Arrivals so close together count as simultaneous in their lane: then the longest goes first.

A backlog that was submitted at once is so run from its longest item to its shortest, which leaves no gaps between
lengths, and so little padding.
"""


@dataclass(frozen=True, slots=True)
class Item:
    """One prepared input.

    Attributes:
        key: Unique in this worker; later items have larger keys.
        job: The job it belongs to.
        index: Its place in the job's inputs.
        length: Its length in the unit that padding is counted in (tokens for texts).
        lane: The job's lane.
        arrived: Monotonic time at which the job was submitted (anchored by the age that the claim returned).
        deadline: Monotonic time until which its pass must have started, or None.
        pass_key: Items with different keys must not share a pass (model, adapter, task's own needs).
        payload: What the task prepared.
        parameters: The job's parameters, parsed by the task.
    """

    key: ItemKey
    job: JobId
    index: int
    length: int
    lane: Lane
    arrived: float
    deadline: float | None
    pass_key: Hashable
    payload: Any
    parameters: Any = None

    @property
    def urgency(self) -> Urgency:
        """Returns its place in the order: by age and lane patience (or its deadline), then the longest first."""
        due = self.arrived + LANE_PATIENCE_S[self.lane]
        if self.deadline is not None and self.deadline < due:
            return self.deadline, -self.length, self.key
        grain = LANE_GRAIN_S[self.lane]
        return (math.floor(due / grain) * grain if grain else due), -self.length, self.key

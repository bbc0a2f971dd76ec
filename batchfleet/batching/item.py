"""The item: one input of a job, prepared; what batches are made of."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, TypeAlias

from batchfleet.jobs.job import JobId, Lane

ItemKey: TypeAlias = int
"""Names an item within one worker process."""

Urgency: TypeAlias = tuple[float, ItemKey]
"""Orders items, the smaller first: when it is due, then in the order of preparation."""

LANE_PATIENCE_S: dict[Lane, float] = {Lane.ONLINE: 0.0, Lane.STANDARD: 2.0, Lane.BULK: 30.0}
"""How much longer than an online item one of the lane may wait before it goes first.

Ageing comes for free: an item's urgency is the moment it arrived plus its lane's patience, so that a bulk item
waits at most 30 s behind any stream of online ones.
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
        """Returns its place in the order: by age and lane patience, or by its deadline where that is nearer.

        Length has no part in it. Longest first would leave fewer gaps in a backlog that is all there, but a window
        that is refilled from a longer backlog would be led by rare long items for ever, each in a pass of its own.
        """
        due = self.arrived + LANE_PATIENCE_S[self.lane]
        deadline = self.deadline
        return (due if deadline is None or deadline > due else deadline), self.key

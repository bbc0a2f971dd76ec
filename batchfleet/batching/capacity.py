"""Device-seconds of a backlog: the number that autoscaling uses.

Inputs are counted by their bytes, since long texts cost more than short ones, and by their number where they have no
bytes. Inputs that lie in an object are not known before they are read: such a job counts as what its row holds.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class WorkRate:
    """What work has cost: so many items of so many input bytes took so many device-seconds."""

    items: float
    input_bytes: float
    seconds: float

    def seconds_for(self, items: int, input_bytes: int) -> float:
        """Returns the device-seconds that work of the same kind takes."""
        if self.input_bytes > 0 and input_bytes > 0:
            return input_bytes * self.seconds / self.input_bytes
        return items * self.seconds / self.items


class Waiting(Protocol):
    """Part of a queue; `batchfleet.jobs.job.QueueDepth` is one."""

    @property
    def model(self) -> str:
        """Name of the model."""
        ...

    @property
    def lane(self) -> str:
        """Service class."""
        ...

    @property
    def items(self) -> int:
        """How many items its jobs have."""
        ...

    @property
    def input_bytes(self) -> int:
        """How many bytes their inputs have."""
        ...


def backlog_seconds(
    waiting: Iterable[Waiting], rates: Mapping[str, WorkRate], lanes: Sequence[str]
) -> dict[tuple[str, str], float]:
    """Returns the device-seconds that wait, by (model, lane).

    A model of which a rate is known has an entry for each of `lanes`, 0.0 where nothing waits; one of which none is
    known has none.
    """
    seconds = {(model, lane): 0.0 for model in rates for lane in lanes}
    for queue in waiting:
        rate = rates.get(queue.model)
        if rate is not None:
            place = (queue.model, str(queue.lane))
            seconds[place] = seconds.get(place, 0.0) + rate.seconds_for(queue.items, queue.input_bytes)
    return seconds

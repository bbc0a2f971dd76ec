"""Who comes next when there is more work than room: one pure function for announcing and for claiming.

Flows (lane, model, tenant) share by weight, in items. It is deficit round robin with the rounds worked out
beforehand: a flow's next job is due when the flow has been given `items / weight` of its share, and the earliest
due comes first, so that the deficit carries over within a choice exactly as rounds would carry it. A flow that
had to wait counts as more urgent the longer it waits, up to the most urgent lane's weight and no further: old
bulk work gets a fair share beside callers who wait, but never shuts them out.

Choices are many and remember nothing of each other, and some take a single job. So that shares hold over them as
well, each flow starts at a random point of its first round (`phase`).
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import MappingProxyType

from batchfleet.jobs.job import JobId, Lane

WEIGHTS = MappingProxyType({Lane.ONLINE: 16.0, Lane.STANDARD: 4.0, Lane.BULK: 1.0})
"""Items of a lane for each item of a weight-1 lane, while both have work."""

AGEING_S = 30.0
"""A flow whose oldest job has waited this long weighs twice as much, twice this long three times, …"""

MAX_WEIGHT = max(WEIGHTS.values())


@dataclass(frozen=True, slots=True)
class Candidate:
    """A job that could be taken now.

    Attributes:
        age_s: How long it has waited.
    """

    id: JobId
    lane: Lane
    model: str
    tenant: str
    item_count: int
    input_bytes: int
    age_s: float


def end_of_round() -> float:
    """The phase without chance: every flow starts at the end of its first round."""
    return 1.0


def weight_of(lane: Lane, age_s: float) -> float:
    """Returns the weight of a flow whose oldest job has waited `age_s` seconds."""
    return min(MAX_WEIGHT, WEIGHTS[lane] * (1.0 + max(0.0, age_s) / AGEING_S))


def fair_order(
    candidates: Iterable[Candidate],
    *,
    limit: int | None = None,
    max_items: int | None = None,
    phase: Callable[[], float] = end_of_round,
) -> list[Candidate]:
    """Returns the candidates in the order in which they should be taken.

    Args:
        candidates: In the order in which each flow should be served (oldest first).
        limit: Return at most this many.
        max_items: Stop before the first job with which the items would exceed this, but return at least one job.
            A job too big is not skipped: small ones would then overtake it for ever.
        phase: Gives a number in (0, 1] for each flow, in the order of their first candidates.
    """
    flows: dict[tuple[Lane, str, str], deque[Candidate]] = {}
    for candidate in candidates:
        flows.setdefault((candidate.lane, candidate.model, candidate.tenant), deque()).append(candidate)
    # The second field breaks ties by first appearance, and makes entries comparable.
    due: list[tuple[float, int, float, deque[Candidate]]] = []
    for order, flow in enumerate(flows.values()):
        weight = weight_of(flow[0].lane, flow[0].age_s)
        due.append((phase() * flow[0].item_count / weight, order, weight, flow))
    heapq.heapify(due)
    return _take(due, limit, max_items)


def _take(
    due: list[tuple[float, int, float, deque[Candidate]]], limit: int | None, max_items: int | None
) -> list[Candidate]:
    taken: list[Candidate] = []
    items = 0
    while due and (limit is None or len(taken) < limit):
        at, order, weight, flow = due[0]
        items += flow[0].item_count
        if taken and max_items is not None and items > max_items:
            break
        taken.append(flow.popleft())
        if flow:
            heapq.heapreplace(due, (at + flow[0].item_count / weight, order, weight, flow))
        else:
            heapq.heappop(due)
    return taken

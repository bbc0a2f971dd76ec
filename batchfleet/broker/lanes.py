"""In which order a worker empties the queues of its flows. Pure.

Two rules together: *room* keeps places free for more urgent lanes, so that bulk cannot fill the window; *order*
is fair by weight (stride scheduling: each lane has a clock that runs slower the more it weighs, and the lane
whose clock is furthest behind goes first), so that the urgent lanes cannot starve bulk either.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from batchfleet.broker.hint import MAX_IDS_PER_HINT, Flow
from batchfleet.jobs.job import LANES, Lane

LANE_WEIGHTS: Final[Mapping[Lane, int]] = {Lane.ONLINE: 16, Lane.STANDARD: 4, Lane.BULK: 1}
"""Shares of the pulls when every lane has work waiting."""

KEPT_ROOM: Final[Mapping[Lane, float]] = {Lane.ONLINE: 0.125, Lane.STANDARD: 0.125}
"""Part of the window that less urgent lanes leave free for a lane."""

MOST_LAG: Final = 256.0
"""How far a lane's clock may fall behind: old debts of a lane that had no room are not paid in one go."""
MOST_FLOW_LAG: Final = 1024.0
"""The same for the flows of one lane, in jobs."""

_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class PullStep:
    """One pull: these queues in this order, at most so many hints in all."""

    flows: tuple[Flow, ...]
    max_hints: int


@dataclass(frozen=True, slots=True)
class PullPlan:
    """What a worker with room pulls next: the steps in turn, without waiting.

    Attributes:
        steps: One per lane that has room, the one furthest behind its share first.
    """

    steps: tuple[PullStep, ...] = ()

    @property
    def waiting(self) -> PullStep:
        """All flows in one step, for a worker that has nothing and waits for a first hint; bounded as the tightest."""
        flows = tuple(flow for step in self.steps for flow in step.flows)
        return PullStep(flows, min((step.max_hints for step in self.steps), default=0))


@dataclass(frozen=True, slots=True)
class PullLedger:
    """Who got how much so far: the clocks by which lanes, and the flows inside a lane, take turns."""

    lanes: Mapping[Lane, float] = field(default_factory=dict)
    flows: Mapping[Flow, float] = field(default_factory=dict)

    def plan(self, flows: Sequence[Flow], room: Mapping[Lane, int]) -> PullPlan:
        """Returns the next pulls.

        Args:
            flows: The queues that the worker serves.
            room: Items that may be taken of each lane (`free_room`).
        """
        order = sorted((lane for lane in LANES if hints_for(room.get(lane, 0))), key=self._lane_key)
        steps = []
        for lane in order:
            of_lane = [flow for flow in flows if flow.lane is lane]
            if of_lane:
                steps.append(PullStep(tuple(self._in_turn(of_lane)), hints_for(room[lane])))
        return PullPlan(tuple(steps))

    def record(self, step: PullStep, pulled: Mapping[Flow, int]) -> "PullLedger":
        """Returns the ledger after a step brought these jobs (ids, by flow).

        A flow or lane that had nothing saves up no claim: its clock is moved on to that of the one furthest behind
        among the others. One that the step may not have reached, since it was full before, keeps its place.
        """
        lanes, flows = dict(self.lanes), dict(self.flows)
        for flow in step.flows:
            jobs = pulled.get(flow, 0)
            flows[flow] = flows.get(flow, 0.0) + jobs
            lanes[flow.lane] = lanes.get(flow.lane, 0.0) + jobs / LANE_WEIGHTS[flow.lane]
        empty = _found_empty(step, pulled)
        served = {flow.lane for flow, jobs in pulled.items() if jobs}
        _catch_up(lanes, {flow.lane for flow in empty} - served, MOST_LAG)
        for lane in {flow.lane for flow in step.flows}:
            same = {flow: clock for flow, clock in flows.items() if flow.lane is lane}
            _catch_up(same, empty & same.keys(), MOST_FLOW_LAG)
            flows.update(same)
        return PullLedger(lanes, flows)

    def _in_turn(self, flows: Sequence[Flow]) -> list[Flow]:
        newcomer = min((self.flows[flow] for flow in flows if flow in self.flows), default=0.0)
        return sorted(flows, key=lambda flow: self.flows.get(flow, newcomer))

    def _lane_key(self, lane: Lane) -> tuple[float, int]:
        return self.lanes.get(lane, 0.0), LANES.index(lane)


def _found_empty(step: PullStep, pulled: Mapping[Flow, int]) -> set[Flow]:
    """Returns the flows that are known to hold nothing: those before the last one that gave something."""
    served = [index for index, flow in enumerate(step.flows) if pulled.get(flow)]
    reached = step.flows[: served[-1]] if served else step.flows
    return {flow for flow in reached if not pulled.get(flow)}


def _catch_up(clocks: dict[_Key, float], idle: set[_Key], most_lag: float) -> None:
    busy = [clock for key, clock in clocks.items() if key not in idle]
    slowest = min(busy, default=0.0)
    floor = max(clocks.values(), default=0.0) - most_lag
    for key, clock in clocks.items():
        clocks[key] = max(clock, floor, slowest if key in idle else 0.0)


def free_room(window: int, held: Mapping[Lane, int], *, kept: Mapping[Lane, float] = KEPT_ROOM) -> dict[Lane, int]:
    """Returns how many more items of each lane fit into a window.

    A lane may fill the window but for the room kept for more urgent lanes; what those hold themselves counts as
    their kept room first. Small windows keep at least one place, and never the last one: a slow device, whose window
    holds an item or two, must not shut out the least urgent lane for ever.

    Args:
        window: Items that fit in all.
        held: Items in it now, by lane.
        kept: Part of the window kept for a lane.
    """
    total = max(0, window - sum(held.values()))
    room: dict[Lane, int] = {}
    reserved, left = 0, window - 1
    for lane in LANES:
        room[lane] = max(0, total - reserved)
        places = min(math.ceil(window * kept[lane]), left) if lane in kept else 0
        left -= places
        reserved += max(0, places - held.get(lane, 0))
    return room


def hints_for(items: int) -> int:
    """Returns how many hints may be pulled for so much room: at least one if there is any.

    A hint names up to `MAX_IDS_PER_HINT` jobs, so that the last one may overfill the window by less than that.
    """
    return -(-items // MAX_IDS_PER_HINT) if items > 0 else 0

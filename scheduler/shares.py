"""Whose turn it is: no tenant, receiver or kind may keep the others waiting. Pure; times are monotonic seconds.

An attempt cannot be taken back once it has begun, so that room is kept before: a tenant has half of the places for
webhooks at most, outputs have places of their own, and a receiver that was slow is tried by one at a time until it has
answered quickly again. What may not begin now waits in its lane (a tenant's webhooks, or its outputs), and lanes take
turns. All that is remembered is bounded; what is forgotten comes up again, since it stays due in the database.
"""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from batchfleet.outbox.delivery import Delivery, DeliveryId, DeliveryKind, Lane
from batchfleet.outbox.guard import DEFAULT_PORTS

SLOW_S: Final = 2.0
"""An attempt that takes longer is slow."""
REMEMBERED_S: Final = 60.0
"""How long a receiver counts as slow after one of its attempts was."""
PER_LOOK: Final = 64
"""Deliveries of one lane that are rung for at once."""
WAITING: Final = 2 * PER_LOOK
"""Deliveries of one lane that wait here; more stay in the database."""
WAITING_FOR_SLOW: Final = 8
"""Of these, to a receiver that is slow: those to others must not wait behind it."""
RECEIVERS: Final = 4_096
"""Slow receivers that are remembered."""
LANES: Final = 1_024

Receiver: TypeAlias = str


@dataclass(frozen=True, slots=True)
class Turn:
    """A delivery that is to be attempted."""

    id: DeliveryId
    lane: Lane
    receiver: Receiver


@dataclass(slots=True)
class _Lane:
    running: int = 0
    waiting: "OrderedDict[DeliveryId, Turn]" = field(default_factory=OrderedDict)


class Shares:
    """Says what may begin. Not thread-safe.

    Args:
        places: Attempts at once, by kind.
    """

    def __init__(self, places: dict[DeliveryKind, int]) -> None:
        self._places = places
        self._lanes: OrderedDict[Lane, _Lane] = OrderedDict()
        self._taken = dict.fromkeys(places, 0)
        self._running: dict[Receiver, list[float]] = {}
        self._slow_until: OrderedDict[Receiver, float] = OrderedDict()

    def begin(self, turn: Turn, now: float) -> bool:
        """Returns whether an attempt may begin, and counts it if so; else it waits, where there is room for that."""
        lane = self._lanes.get(turn.lane)
        if lane is None:
            if len(self._lanes) >= LANES:
                return False
            lane = self._lanes[turn.lane] = _Lane()
        if self._may_begin(turn, now):
            lane.waiting.pop(turn.id, None)
            self._count(turn, now)
            return True
        if turn.id not in lane.waiting:
            self._wait(lane, turn, now)
        self._forget(turn.lane)
        return False

    def end(self, turn: Turn, began: float, now: float) -> None:
        """Notes the end of an attempt that began then."""
        running = self._running[turn.receiver]
        running.remove(began)
        if not running:
            del self._running[turn.receiver]
        self._lanes[turn.lane].running -= 1
        self._taken[turn.lane.kind] -= 1
        self._slow_until.pop(turn.receiver, None)
        if now - began > SLOW_S:
            self._slow_until[turn.receiver] = now + REMEMBERED_S
        while self._slow_until and (len(self._slow_until) > RECEIVERS or next(iter(self._slow_until.values())) <= now):
            self._slow_until.popitem(last=False)
        self._forget(turn.lane)

    def next(self, now: float) -> Turn | None:
        """Returns, and counts, one that waited and may begin now. Lanes take turns."""
        for key in list(self._lanes):
            turn = next((turn for turn in self._ready(key) if self._may_begin(turn, now)), None)
            if turn is not None:
                del self._lanes[key].waiting[turn.id]
                self._lanes.move_to_end(key)
                self._count(turn, now)
                return turn
        return None

    def full(self) -> list[Lane]:
        """Returns the lanes that take no more now: an attempt of theirs is under way, whose end makes room."""
        return [key for key, lane in self._lanes.items() if lane.running and len(lane.waiting) > WAITING - PER_LOOK]

    def _wait(self, lane: _Lane, turn: Turn, now: float) -> None:
        same = sum(each.receiver == turn.receiver for each in lane.waiting.values())
        most = WAITING_FOR_SLOW if self._slow(turn.receiver, now) else WAITING
        if len(lane.waiting) < WAITING and same < most:
            lane.waiting[turn.id] = turn

    def _ready(self, key: Lane) -> Iterator[Turn]:
        return iter(self._lanes[key].waiting.values() if self._has_place(key) else ())

    def _may_begin(self, turn: Turn, now: float) -> bool:
        return self._has_place(turn.lane) and not (self._running.get(turn.receiver) and self._slow(turn.receiver, now))

    def _has_place(self, key: Lane) -> bool:
        places = self._places[key.kind]
        return self._taken[key.kind] < places and self._lanes[key].running < max(1, places // 2)

    def _slow(self, receiver: Receiver, now: float) -> bool:
        hanging = any(now - began > SLOW_S for began in self._running.get(receiver, ()))
        return hanging or now < self._slow_until.get(receiver, now)

    def _count(self, turn: Turn, now: float) -> None:
        self._lanes[turn.lane].running += 1
        self._taken[turn.lane.kind] += 1
        self._running.setdefault(turn.receiver, []).append(now)

    def _forget(self, key: Lane) -> None:
        lane = self._lanes[key]
        if not lane.running and not lane.waiting:
            del self._lanes[key]


def turn_of(delivery: Delivery) -> Turn:
    """Returns the turn of a delivery. However its receiver is written, it is the same one."""
    return Turn(delivery.id, Lane(delivery.kind, delivery.tenant), receiver_of(delivery.target))


def receiver_of(target: str) -> Receiver:
    """Returns the host and port that a URL leads to, or the bucket of an object, in one form."""
    try:
        parts = urlsplit(target)
        host, port = (parts.hostname or "").casefold().rstrip("."), parts.port
    except ValueError:
        return target
    with suppress(ValueError):
        host = str(ip_address(host))
    return f"{host}:{port or DEFAULT_PORTS.get(parts.scheme, 0)}"

"""How a peer can be set, and which settings are worth trying. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One way to run a peer.

    Attributes:
        batch: Texts that it may hand to the handler at once.
        sort: Whether the handler sorts them by length and cuts them into passes of a padded-token budget; else a
            batch is one pass in order of arrival, padded to its longest text.
        wait_ms: How long it may wait for a batch to fill (BentoML: the longest latency it aims at).
        compact: Whether a vector travels as base64 of its bytes, instead of a JSON list of numbers.
        pool: Celery: `prefork`, `threads` or `solo` (a worker of one process a core). LitServe: `one-front` for one
            HTTP process (else one a worker), `fast-queue` for ZeroMQ between the processes.
        prefetch: Celery: messages that a worker takes ahead, times its processes.
    """

    batch: int = 1
    sort: bool = False
    wait_ms: int = 0
    compact: bool = False
    pool: str = ""
    prefetch: int = 0

    def __str__(self) -> str:
        parts = [f"batch {self.batch}"]
        if self.batch > 1:
            parts += ["sorted" if self.sort else "arrival order", f"{self.wait_ms} ms"]
        parts += [self.pool] if self.pool else []
        parts += [f"prefetch {self.prefetch}"] if self.prefetch else []
        return ", ".join([*parts, "base64" if self.compact else "JSON numbers"])


NAIVE, BEST, PLAIN = "naive", "best", "best, JSON"
"""Labels of what is measured in full; the last where the best answers otherwise."""

Change = Mapping[str, Any]
"""Fields of a setting to change."""

AS_IT_IS: tuple[Change, ...] = ({},)
BATCHES: tuple[Change, ...] = (
    {"batch": 1, "sort": False},
    {"batch": 8, "sort": False},
    {"batch": 8, "sort": True},
    {"batch": 32, "sort": False},
    {"batch": 32, "sort": True},
)
ANSWERS: tuple[Change, ...] = ({"compact": True},)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Peer:
    """One system to compare with.

    Attributes:
        name: Also of its file of requirements and of its environment.
        module: What serves, in `benchmarks.peers.servers`.
        route: Where it takes a text by HTTP; empty for one that takes them through a broker.
        listed: Whether a request carries a list of one text, and its answer a list of one vector.
        naive: How its users set it who batch: 32 in order of arrival. Celery: its defaults.
        stages: The sweep. Each stage tries its changes on the best setting so far and keeps what is better.
    """

    name: str
    module: str
    route: str = ""
    listed: bool = False
    naive: Setting
    stages: Sequence[Sequence[Change]]


PEERS = (
    Peer(
        name="mosec",
        module="mosec_server",
        route="/inference",
        naive=Setting(batch=32, wait_ms=10),
        stages=(BATCHES, ({"wait_ms": 2}, {"wait_ms": 40}), ANSWERS),
    ),
    Peer(
        name="litserve",
        module="litserve_server",
        route="/predict",
        naive=Setting(batch=32, wait_ms=10),
        stages=(BATCHES, ({"wait_ms": 2}, {"wait_ms": 40}), ({"pool": "one-front"}, {"pool": "fast-queue"}), ANSWERS),
    ),
    Peer(
        name="bentoml",
        module="bentoml_service",
        route="/predict",
        listed=True,
        naive=Setting(batch=32, wait_ms=60_000),
        stages=(BATCHES, ({"wait_ms": 2_000},), ANSWERS),
    ),
    Peer(
        name="celery",
        module="celery_tasks",
        naive=Setting(pool="prefork", prefetch=4),
        stages=(({"prefetch": 1}, {"prefetch": 16}), ({"pool": "solo"}, {"pool": "threads"}), ANSWERS),
    ),
    Peer(
        name="celery-batches",
        module="celery_batches_tasks",
        naive=Setting(batch=32, wait_ms=100, pool="prefork", prefetch=32),
        stages=(BATCHES, ({"wait_ms": 10}, {"wait_ms": 1_000}), ({"pool": "solo"}, {"pool": "threads"}), ANSWERS),
    ),
)


def candidates(best: Setting, changes: Iterable[Change], tried: Iterable[Setting]) -> list[Setting]:
    """Returns the settings that a stage adds to those tried; a wait means nothing to one that does not batch."""
    known = set(tried)
    found: dict[Setting, None] = {}
    for change in changes:
        if best.batch == 1 and set(change) == {"wait_ms"}:
            continue
        setting = replace(best, **change)
        if setting not in known:
            found[setting] = None
    return list(found)


def best_of(rates: Mapping[Setting, float]) -> Setting:
    """Returns the fastest setting; of equals the one tried first.

    Raises:
        ValueError: If there is none that worked.
    """
    if not rates:
        raise ValueError("no setting worked")
    return max(rates, key=lambda setting: rates[setting])


def finals(peer: Peer, rates: Mapping[Setting, float]) -> dict[str, Setting]:
    """Returns what is measured in full, by label."""
    best = best_of(rates)
    chosen = {NAIVE: peer.naive, BEST: best}
    plain = {setting: rate for setting, rate in rates.items() if not setting.compact}
    if best.compact and plain:
        chosen[PLAIN] = best_of(plain)
    return chosen

"""Wiring: from the broker's URL to its adapters. Only processes that are being put together import this."""

from typing import Final
from urllib.parse import urlsplit

from batchfleet.broker.none import NoBroker, NullRing
from batchfleet.broker.port import HintBroker, Ring
from batchfleet.telemetry import Metrics, mask_url

NO_BROKER: Final = "none"
REDIS_SCHEMES: Final = frozenset({"redis", "rediss", "redis+socket"})


def has_broker(url: str) -> bool:
    """Returns whether the URL names a broker; without one, waiters must look up by themselves."""
    return url != NO_BROKER


def connect_broker(url: str, *, metrics: Metrics) -> HintBroker:
    """Returns the adapter for a broker URL. It connects at its first call, so a broker may come up later.

    Raises:
        ValueError: If no adapter knows the URL.
    """
    if not has_broker(url):
        return NoBroker()
    _check_scheme(url)
    # Imported here, so that a process without a broker does not load kombu.
    from batchfleet.broker.kombu_broker import KombuBroker  # noqa: PLC0415

    return KombuBroker(url, metrics=metrics)


def connect_ring(url: str, *, metrics: Metrics, rest_s: float = 0.0) -> Ring:
    """Returns the ring for a broker URL. It connects at its first call.

    Args:
        url: The broker's.
        metrics: Where rings are counted.
        rest_s: Pause after each ring that was heard, for a listener to whom many are as good as one.

    Raises:
        ValueError: If no adapter knows the URL.
    """
    if not has_broker(url):
        return NullRing()
    _check_scheme(url)
    from batchfleet.broker.redis_ring import RedisRing  # noqa: PLC0415

    return RedisRing(url, metrics=metrics, rest_s=rest_s)


def _check_scheme(url: str) -> None:
    if urlsplit(url).scheme not in REDIS_SCHEMES:
        raise ValueError(f"unknown broker {mask_url(url)!r}: expected 'none', redis://… or redis+socket:///path")

"""The device-seconds that wait, by what the fleet has learned (`batchfleet.batching.capacity`)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from batchfleet.batching.capacity import Waiting, WorkRate, backlog_seconds
from batchfleet.profiles.port import KnownRate

IN_USE_S: Final = 3_600.0
"""Devices and versions told of within so long of the last one count: those before it serve no more."""


class Backlog:
    """Estimates the device-seconds that wait from what the fleet has learned, whichever process asks.

    Args:
        rates: Reads what work has cost.
        lanes: The lanes that there are.
    """

    def __init__(self, rates: Callable[[], Sequence[KnownRate]], lanes: Sequence[str]) -> None:
        self._rates = rates
        self._lanes = tuple(str(lane) for lane in lanes)

    def __call__(self, waiting: Iterable[Waiting]) -> Mapping[tuple[str, str], float]:
        """Returns the device-seconds that wait, by (model, lane); see `batchfleet.batching.capacity`.

        Raises:
            StoreUnavailableError: If the database cannot tell what work has cost.
        """
        return backlog_seconds(waiting, _by_model(self._rates()), self._lanes)


def _by_model(known: Iterable[KnownRate]) -> Mapping[str, WorkRate]:
    """Returns what work costs on the average of the devices and versions in use, by model."""
    of_model: dict[str, list[KnownRate]] = {}
    for one in known:
        if one.rate.items > 0 and one.rate.seconds > 0:
            of_model.setdefault(one.key.model, []).append(one)
    return {model: _mean(rates) for model, rates in of_model.items()}


def _mean(rates: Sequence[KnownRate]) -> WorkRate:
    since = min(one.told_s for one in rates) + IN_USE_S
    used = [one.rate for one in rates if one.told_s <= since]
    return WorkRate(
        sum(rate.items for rate in used), sum(rate.input_bytes for rate in used), sum(rate.seconds for rate in used)
    )

"""Measures passes of a variant on the building machine, as a first guess for cost models."""

from batchfleet.inference.registry import LoadedModel
from batchfleet.models.manifest import LatencySample


def measure_latency(model: LoadedModel) -> tuple[LatencySample, ...]:
    """Returns the seconds of one pass of each shape that the warm-up covers.

    Raises:
        PassFailedError: If a pass fails.
    """
    return tuple(
        LatencySample(variant=model.variant.name, rows=warm.shape.rows, length=warm.shape.length, seconds=warm.seconds)
        for warm in model.executor.warm_up().passes
    )

"""What can go wrong in a benchmark."""

from batchfleet.errors import BatchfleetError


class BenchFailedError(BatchfleetError):
    """The fleet did not do what was measured."""

    code = "bench_failed"


class UnknownVariantError(BenchFailedError):
    """The model has no such build."""

    code = "usage"

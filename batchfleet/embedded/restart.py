"""When a child that died is started again. Pure."""

from dataclasses import dataclass

EXIT_CONFIG = 78
"""A child's exit code for settings that cannot work (EX_CONFIG)."""
HOPELESS = 1_000
"""Failures in a row that a child with `EXIT_CONFIG` counts as."""


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How long a dead child stays down.

    Attributes:
        first_s: Delay of the first restart.
        max_s: Bound of the delay, which doubles with each failure in a row.
        healthy_s: A child that ran this long is no failure: its next restart is a first one.
    """

    first_s: float = 0.5
    max_s: float = 30.0
    healthy_s: float = 30.0

    def failures_after(self, failures: int, ran_s: float, code: int) -> int:
        """Returns the number of failures in a row, a run of `ran_s` seconds that just ended included.

        An exit code that says "a restart does not mend this" counts as very many.
        """
        if code == EXIT_CONFIG:
            return HOPELESS
        return 1 if ran_s >= self.healthy_s else failures + 1

    def delay_s(self, failures: int) -> float:
        """Returns how long to wait before the restart that follows the `failures`-th failure in a row."""
        return float(min(self.max_s, self.first_s * 2.0 ** min(failures - 1, 32)))

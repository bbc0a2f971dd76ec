"""When a queued job is announced: pure numbers, shared by the stores."""

ANNOUNCER_S = 2.0
"""How long the relay leaves a fresh job to the announcer of the process that took it."""

ANNOUNCE_BASE_S = 2.0
ANNOUNCE_CAP_S = 60.0

MAX_ANNOUNCE_DOUBLINGS = 5
"""Doublings after which the cap is passed; bounds the exponent in SQL."""


def announce_backoff_s(announced: int) -> float:
    """Returns how long a job that was announced `announced` times before waits for its next announcement."""
    if announced >= MAX_ANNOUNCE_DOUBLINGS:
        return ANNOUNCE_CAP_S
    return float(ANNOUNCE_BASE_S * (1 << announced))

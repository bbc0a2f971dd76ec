"""When a delivery is tried again, and when it is given up. Pure; durations are seconds."""

from collections.abc import Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

DELAYS_S: Final = (0.0, 5.0, 300.0, 1_800.0, 7_200.0, 18_000.0, 36_000.0, 36_000.0)
"""What passes before each attempt, the first included: a receiver may be away for a day and a night."""

JITTER: Final = 0.1
"""Share of a delay by which it is longer or shorter, so that the debts of an outage do not all come at once."""

LONGEST_ASKED_S: Final = 12 * 3_600.0
"""A receiver that asks for more patience gets this much: deliveries do not wait for ever."""

_GONE: Final = 410
_ASKS_TO_WAIT: Final = frozenset({429, 503})


def retry_in_s(
    attempts: int,
    *,
    chance: float,
    status: int | None = None,
    retry_after_s: float | None = None,
    delays_s: Sequence[float] = DELAYS_S,
) -> float | None:
    """Returns how long to wait after a failed attempt, None to give up.

    Args:
        attempts: How many there were, this one included.
        chance: A number in [0, 1).
        status: The HTTP status that came back; 410 says that the receiver never wants it.
        retry_after_s: What `Retry-After` asked for: respected with 429 and 503, and never shortens the wait.
        delays_s: The schedule.
    """
    if status == _GONE or attempts >= len(delays_s):
        return None
    delay_s = delays_s[attempts] * (1.0 + JITTER * (2.0 * chance - 1.0))
    if retry_after_s is not None and status in _ASKS_TO_WAIT:
        delay_s = max(delay_s, min(retry_after_s, LONGEST_ASKED_S))
    return delay_s


def read_retry_after(text: str, now: float) -> float | None:
    """Returns the seconds that a `Retry-After` header asks for, None if it cannot be read.

    Args:
        text: Seconds, or an HTTP date.
        now: Unix time.
    """
    stripped = text.strip()
    if stripped.isascii() and stripped.isdecimal():
        return float(stripped) if len(stripped) <= 12 else LONGEST_ASKED_S
    try:
        moment = parsedate_to_datetime(stripped)
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, moment.timestamp() - now)

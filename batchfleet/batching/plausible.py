"""What can be a measurement at all: what cannot is dropped wherever it is met, since one such figure spoils a fit.

A clock that stood still, a disk that failed, a hand that edited a row: none of them may end a worker. Each test is
false for NaN.
"""

from typing import Final

LEAST_PASS_S: Final = 1e-7
MOST_PASS_S: Final = 1e5
MOST_ROWS: Final = 1 << 20
MOST_LENGTH: Final = 1 << 24
MOST_WEIGHT: Final = 1e9
MOST_MOMENT_S: Final = 1e12
"""Far later than any clock that counts seconds from 1970."""


def is_shape(rows: float, length: float) -> bool:
    """Returns whether a pass can have this shape."""
    return 1 <= rows <= MOST_ROWS and 1 <= length <= MOST_LENGTH


def is_pass(rows: float, length: float, seconds: float) -> bool:
    """Returns whether a pass of this shape can have taken so long."""
    return is_shape(rows, length) and LEAST_PASS_S <= seconds <= MOST_PASS_S


def is_weight(passes: float) -> bool:
    """Returns whether a figure can rest on so many passes."""
    return 0 < passes <= MOST_WEIGHT


def is_ceiling(rows: float, length: float, at: float) -> bool:
    """Returns whether memory can have been seen at `at` to hold so many rows of this length."""
    return is_shape(rows, length) and 0 <= at <= MOST_MOMENT_S

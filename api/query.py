"""Query strings → values, strictly: an unknown or doubled parameter is refused by name."""

import math
import re
from collections.abc import Mapping
from urllib.parse import parse_qsl

from litestar.types import Scope

from batchfleet.errors import InvalidRequestError

_NONE: Mapping[str, str] = {}
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
"""As JSON writes those that are not negative: Python's `float` would take more (`1_0`, ` 5`, `inf`)."""


def read_query(scope: Scope, *known: str) -> Mapping[str, str]:
    """Returns the parameters of a request.

    Raises:
        InvalidRequestError: If one is not among `known`, or stated twice.
    """
    raw: bytes = scope["query_string"]
    if not raw:
        return _NONE
    values: dict[str, str] = {}
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100)
    except ValueError as exc:
        raise InvalidRequestError("the query string is not valid") from exc
    for name, value in pairs:
        if name not in known:
            raise InvalidRequestError("unknown query parameter", field=name)
        if name in values:
            raise InvalidRequestError("stated twice", field=name)
        values[name] = value
    return values


def seconds(values: Mapping[str, str], name: str, longest: float) -> float:
    """Returns a number of seconds from 0 to `longest`; 0 if it is not stated.

    Raises:
        InvalidRequestError: If it is no such number.
    """
    text = values.get(name)
    if text is None:
        return 0.0
    number = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not 0.0 <= number <= longest:
        raise InvalidRequestError(f"must be a number of seconds from 0 to {longest:g}", field=name)
    return number


def count(values: Mapping[str, str], name: str, *, default: int, most: int) -> int:
    """Returns a whole number from 1 to `most`.

    Raises:
        InvalidRequestError: If it is no such number.
    """
    text = values.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) <= 9 and 1 <= int(text) <= most):
        raise InvalidRequestError(f"must be a whole number from 1 to {most}", field=name)
    return int(text)


def flag(values: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    """Returns a truth value; the default if it is not stated.

    Raises:
        InvalidRequestError: If it is neither `true` nor `false` (nor 1 or 0).
    """
    text = values.get(name)
    if text is None:
        return default
    if text not in {"true", "false", "1", "0"}:
        raise InvalidRequestError("must be true or false", field=name)
    return text in {"true", "1"}

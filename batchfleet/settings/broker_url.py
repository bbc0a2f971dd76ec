"""The broker's URL: what can be known of it without connecting. The text of an error shows no password."""

import re
from typing import Final
from urllib.parse import parse_qs, urlsplit

from batchfleet.settings.urls import port_of

_BROKERS: Final = ("redis://", "rediss://", "redis+socket://")
_UNKNOWN: Final = re.compile(r"unexpected keyword argument '(\w+)'")


def check_broker_url(url: str) -> str:
    """Returns the URL if a client can use it.

    Raises:
        ValueError: If none can, whatever answers there.
    """
    if url == "none":
        return url
    if not url.startswith(_BROKERS):
        raise ValueError("must be none, redis://host:port/0, rediss://… or redis+socket:///path")
    parts = urlsplit(url)
    if port_of(url) is None:
        raise ValueError("has no valid port (1 to 65535)")
    local = parts.scheme == "redis+socket"
    number = parse_qs(parts.query).get("virtual_host", ["0"])[-1] if local else parts.path.strip("/") or "0"
    if not (number.isascii() and number.isdecimal()):
        where = "virtual_host" if local else "what follows the host"
        raise ValueError(f"{where} must be the number of a database, as in redis://host:port/0")
    if not local:
        _check_options(url)
    return url


def _check_options(url: str) -> None:
    """Has the client read the URL; nothing is connected."""
    import redis  # noqa: PLC0415 - by whoever will use it anyway

    try:
        redis.ConnectionPool.from_url(url).make_connection()
    except ValueError as error:
        raise ValueError(f"cannot be used: {error}") from None
    except TypeError as error:
        unknown = _UNKNOWN.search(str(error))
        raise ValueError(f"has no option {unknown[1]!r}" if unknown else "has an option that cannot be") from None

"""Which of our forms a client wants: `Accept` with its q-values, and `If-None-Match`."""

from collections.abc import Sequence

from api.problems import NotAcceptableError


def choose(accept: str, offers: Sequence[str]) -> str:
    """Returns the offered media type that the client likes best; of equals, the first offered.

    Args:
        accept: Value of the `Accept` header; empty accepts everything.
        offers: Media types, our favourite first.

    Raises:
        NotAcceptableError: If the client accepts none of them.
    """
    if not accept.strip():
        return offers[0]
    ranges = [_media_range(part) for part in accept.split(",") if part.strip()]
    best, best_quality = "", 0.0
    for offer in offers:
        quality = _quality(offer, ranges)
        if quality > best_quality:
            best, best_quality = offer, quality
    if not best:
        raise NotAcceptableError(f"available: {', '.join(offers)}")
    return best


def unchanged(if_none_match: str | None, etag: str) -> bool:
    """Returns whether the client has this entity tag already (weak comparison)."""
    if not if_none_match:
        return False
    known = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return "*" in known or etag.removeprefix("W/") in known


def _media_range(part: str) -> tuple[str, float]:
    name, *parameters = part.split(";")
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.strip().lower() == "q":
            return name.strip().lower(), _number(value.strip())
    return name.strip().lower(), 1.0


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if 0.0 <= value <= 1.0 else 0.0


def _quality(offer: str, ranges: Sequence[tuple[str, float]]) -> float:
    """The most specific range that matches decides (RFC 9110, 12.5.1)."""
    wildcards = (offer, offer.partition("/")[0] + "/*", "*/*")
    for wanted in wildcards:
        for name, quality in ranges:
            if name == wanted:
                return quality
    return 0.0

"""Secrets in what people read: keys, passwords and signatures are replaced by `***` before they reach a log.

What is masked, wherever in a text it stands:

- API keys (`bf_<id>_***`: the id is safe to show) and webhook secrets (`whsec_***`)
- passwords in URLs (`redis://user:***@host`)
- what opens a presigned URL (`X-Amz-Signature`, `X-Amz-Credential`, `X-Amz-Security-Token` and their elders)
- values of `Authorization` headers
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

_URL: Final = re.compile(r"(?<![\w+.-])([\w+.-]+)://")
"""The beginning of a URL. Each run of letters is looked at once, however long."""
_APART: Final = frozenset(" \t\r\n\"'`<>()[]{}=,;|")
"""What stands before a URL that is one of its own: `a://` in `redis://me:a://b@h` is of the password."""
_WEB: Final = frozenset({"http", "https", "ws", "wss", "s3", "file", "ftp"})
"""Their credentials end where the specification says; those of databases and brokers where their drivers say."""
_WEB_END: Final = re.compile(r"[\s\"'<>]")
_USER: Final = re.compile(r"[^:/]*:")
_PORT: Final = re.compile(r"[0-9]*(?:[/?#\s\"'<>,;)\]}]|\Z)")

_SIGNATURE: Final = r"(?:X-Amz-|X-Goog-)?(?:Signature|Credential|Security-Token)|AWSAccessKeyId"
_BEARER: Final = r"(?:Proxy-)?Authorization[\"']?\s*[:=]\s*[\"']?(?:Bearer|Basic)|Bearer"
_PASSWORD: Final = r"password|passwd|passphrase|(?<![A-Za-z])pwd"  # noqa: S105 - a pattern
_PARTS: Final = (
    (re.compile(r"\bbf_([0-9A-Fa-f]{16})_[A-Za-z0-9_-]+"), r"bf_\1_***"),
    (re.compile(r"\bwhsec_[A-Za-z0-9+/=_-]+"), "whsec_***"),
    (re.compile(rf"\b({_SIGNATURE})(=|%3D)[^\s&,;\"'<>]+", re.IGNORECASE), r"\1\2***"),
    (re.compile(rf"\b({_BEARER})\s+[^\s\"',]+", re.IGNORECASE), r"\1 ***"),
    # libpq's own form (`password='a b'`) and queries; to the next space, since a password may hold quotes.
    (re.compile(rf"({_PASSWORD})(=|%3D)(?:'[^'&]*'|\"[^\"&]*\")?[^\s&]*", re.IGNORECASE), r"\1\2***"),
    # A password with a slash makes a port of its beginning, which the standard library then quotes.
    (re.compile(r"(could not be cast to integer value as ).*"), r"\1***"),
)
_IN_QUERY: Final = re.compile(rf"({_PASSWORD})=[^&]*", re.IGNORECASE)
_HINT: Final = re.compile(rf"bf_|whsec_|://|integer value|{_SIGNATURE}|Bearer|Authorization|{_PASSWORD}", re.IGNORECASE)
"""Found in what may hold a secret: most log lines hold none of these, and are looked through once."""
_DEPTH: Final = 4


def mask_url(url: str) -> str:
    """Returns the URL with its passwords replaced by `***`, to be shown or logged.

    That between `user:` and the last `@`, whatever it holds: drivers take slashes and spaces for parts of passwords.
    And those of the query (`?password=`, `&sslpassword=`).
    """
    before, mark, query = _mask_credentials(url, alone=True).partition("?")
    return before + mark + _IN_QUERY.sub(r"\1=***", query)


def mask_text(text: str) -> str:
    """Returns the text with every secret in it replaced by `***`."""
    if _HINT.search(text) is None:
        return text
    text = _mask_credentials(text)
    for pattern, masked in _PARTS:
        text = pattern.sub(masked, text)
    return text


def _mask_credentials(text: str, *, alone: bool = False) -> str:
    """Masks the passwords before hosts. Linear in the text: each part of it is looked at a fixed number of times.

    In a text that is no URL `alone`, one that stands apart ends the one before.
    """
    parts, done = [], 0
    for start, end in _credentials(text, alone=alone):
        parts += [text[done:start], "***"]
        done = end
    return "".join([*parts, text[done:]])


def _credentials(text: str, *, alone: bool) -> Iterator[tuple[int, int]]:
    """Yields from where to where each password stands."""
    urls = list(_URL.finditer(text))
    apart = [] if alone else [url.start() for url in urls if url.start() and text[url.start() - 1] in _APART]
    done, last = 0, (-1, -1)
    for url in urls:
        if url.start() < done:
            continue
        at = bisect_right(apart, url.start())
        until = apart[at] if at < len(apart) else len(text)
        if last[0] != until:
            last = (until, text.rfind("@", url.end(), until))
        found = _password(text, url, last[1], alone=alone)
        if found is not None:
            yield found
            done = found[1]


def _password(text: str, url: re.Match[str], last_at: int, *, alone: bool) -> tuple[int, int] | None:
    """Returns from where to where its password stands, up to the last `@` at most."""
    begin = url.end()
    if last_at < begin:
        return None
    user = _USER.match(text, begin)
    if user is None or user.end() > last_at:
        return None
    if url[1].lower() in _WEB:
        if _PORT.match(text, user.end()):
            return None
        if not alone:
            end = _WEB_END.search(text, user.end(), last_at)
            last_at = last_at if end is None else text.rfind("@", user.end(), end.start())
    return None if last_at < user.end() else (user.end(), last_at)


def mask_value(value: object, depth: int = _DEPTH) -> object:
    """Returns a value of a log line's fields with the secrets in its texts masked, however they are nested."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, bytes):
        return mask_text(value.decode("utf-8", "backslashreplace"))
    if depth and isinstance(value, Mapping):
        return {mask_text(str(key)): mask_value(member, depth - 1) for key, member in value.items()}
    if depth and isinstance(value, Iterable) and isinstance(value, list | tuple | set | frozenset):
        return [mask_value(member, depth - 1) for member in value]
    return mask_text(str(value))

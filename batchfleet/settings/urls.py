"""What the URLs of folders, buckets and servers look like. Pure; raises `ValueError`, whose text shows no URL."""

import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

MAX_BUCKET_URL: Final = 400
"""A key has 1,024 bytes at most, prefix and a blob's own key (512) together."""
_BUCKET_URL: Final = re.compile(
    r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?P<prefix>(/[A-Za-z0-9_=-][A-Za-z0-9_=.-]*)*)/?", re.ASCII
)


def check_folder(url: str) -> str:
    """Returns the URL of a folder."""
    if not _is_folder(url):
        raise ValueError("must be file:///folder")
    return url


def check_folder_or_bucket(url: str) -> str:
    """Returns the URL of a folder or of a place in a bucket."""
    if not _is_folder(url) and (not _BUCKET_URL.fullmatch(url) or len(url) > MAX_BUCKET_URL):
        raise ValueError(
            "must be file:///folder or s3://bucket/prefix (the prefix: letters, digits and _=.- between slashes, "
            f"{MAX_BUCKET_URL} characters in all)"
        )
    return url


def is_plain_server(url: str) -> bool:
    """Returns whether a URL names an HTTP server, with a port that can be, and neither user nor query."""
    parts = urlsplit(url)
    plain = parts.scheme in {"http", "https"} and parts.hostname and "@" not in parts.netloc
    return bool(plain) and not parts.query and not parts.fragment and port_of(url) is not None


def port_of(url: str) -> int | None:
    """Returns the port that a URL states, 0 if it states none, None if it is no port."""
    try:
        return urlsplit(url).port or 0
    except ValueError:
        return None


def bucket_of(url: str) -> tuple[str, str]:
    """Returns bucket and prefix that an `s3://bucket/prefix` URL names; the prefix has no slash at either end.

    Raises:
        ValueError: If it is another kind of URL.
    """
    found = _BUCKET_URL.fullmatch(url)
    if found is None:
        raise ValueError(f"not a bucket URL: {url}")
    return found["bucket"], found["prefix"].strip("/")


def folder_of(url: str) -> Path:
    """Returns the folder that a `file:///…` URL names.

    Raises:
        ValueError: If it is another kind of URL.
    """
    parts = urlsplit(url)
    if parts.scheme != "file":
        raise ValueError(f"not a file URL: {url}")
    return Path(unquote(parts.path))


def _is_folder(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "file" and not parts.netloc and bool(parts.path)

"""Where webhooks may go: not into the network that the fleet itself lives in, unless its operator allows it.

A `callback_url` is a caller's; followed blindly it would let them reach what only this machine can (a metadata
service, a database without a password). So a URL is checked when a job is submitted (`check_callback_url`, form and
literal addresses), and every address is checked again when a connection is opened (`check_address`, by
`guarded_network`), since a name may lead elsewhere by then. Pure.
"""

import re
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias
from urllib.parse import SplitResult, urlsplit

from batchfleet.errors import BatchfleetError, InvalidRequestError

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

MAX_URL_LENGTH: Final = 2_048
DEFAULT_PORTS: Final = {"http": 80, "https": 443}

_PRIVILEGED: Final = 1_024
"""Ports below it, but for the two of HTTP, belong to other protocols (mail, shells): a POST could be taken for one."""
_LABEL: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII | re.IGNORECASE)
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII | re.IGNORECASE)
_MAX_NAME: Final = 253
_BRACKETED: Final = re.compile(r"\[([0-9A-Fa-f:.]+)\](:[0-9]*)?")
"""No zones (`%25eth0`), no addresses of versions to come (`v1.x`), nothing between the bracket and the port."""

# What the registries of special addresses (RFC 6890 and its successors) call other than global, written out: the
# standard library's own judgement differs between its versions.
_NOT_PUBLIC_4: Final = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",
        "100.64.0.0/10",  # shared by carriers; also some clouds' metadata
        "127.0.0.0/8",
        "169.254.0.0/16",  # link-local: the metadata services
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)
_PUBLIC_6: Final = IPv6Network("2000::/3")
"""All that is global unicast; ::1, IPv4-mapped, NAT64 (64:ff9b::), fc00::, fe80:: and ff00:: lie outside."""
_NOT_PUBLIC_6: Final = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments, Teredo among them: IPv4 in disguise
        "2001:db8::/32",
        "2002::/16",  # 6to4: IPv4 in disguise
        "3fff::/20",
    )
)


class RefusedTargetError(BatchfleetError):
    """A webhook would leave the public network. The message names no address: a caller must not learn ours."""


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Reads networks, `10.0.0.0/8`.

    Raises:
        ValueError: If one is none.
    """
    return tuple(ip_network(text) for text in texts)


def check_address(address: str, networks: Sequence[Network] = ()) -> None:
    """Lets a public address pass, or one that lies in an allowed network.

    Args:
        address: In any form that `ipaddress` or a resolver writes.
        networks: What may be reached though it is not public. IPv4 in an IPv6 disguise counts as IPv6.

    Raises:
        RefusedTargetError: If it is another one.
    """
    try:
        parsed = ip_address(address)
    except ValueError:
        raise RefusedTargetError("the host has no valid address") from None
    if not is_public(parsed) and not any(parsed in network for network in networks):
        raise RefusedTargetError("the host does not lead to a public address")


def is_public(address: Address) -> bool:
    """Returns whether anybody's packets to the address leave this network."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_4)
    return address in _PUBLIC_6 and not any(address in network for network in _NOT_PUBLIC_6)


def check_callback_url(url: str, networks: Sequence[Network] = (), *, field: str = "callback_url") -> str:
    """Returns a URL that a webhook may be posted to, as far as can be told without asking anybody.

    Args:
        url: As the caller wrote it.
        networks: What may be reached though it is not public.
        field: Where it stood, for the error.

    Raises:
        InvalidRequestError: If it may not; the message says why.
    """
    if len(url) > MAX_URL_LENGTH:
        raise InvalidRequestError(f"must have at most {MAX_URL_LENGTH} characters", field=field)
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise InvalidRequestError("must be ASCII without spaces: percent-encode it (hosts as xn--…)", field=field)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InvalidRequestError("is no URL", field=field) from None
    reason = (
        _wrong_form(url, parts, port) or _wrong_brackets(parts.netloc) or _wrong_host(parts.hostname or "", networks)
    )
    if reason is not None:
        raise InvalidRequestError(reason, field=field)
    return url


def _wrong_form(url: str, parts: SplitResult, port: int | None) -> str | None:
    if parts.scheme not in DEFAULT_PORTS:
        return "must be an https:// (or http://) URL"
    if "@" in parts.netloc:
        return "must not hold credentials: verify the signature instead"
    if "#" in url:
        return "must not have a fragment"
    if not parts.hostname:
        return "must name a host"
    if port is not None and port not in DEFAULT_PORTS.values() and port < _PRIVILEGED:
        return f"its port must be 80, 443, or {_PRIVILEGED} and above"
    return None


def _wrong_brackets(netloc: str) -> str | None:
    """The standard library's reading passes over what stands around brackets, and lets zones pass."""
    if set(netloc) & {"[", "]", "%"} and not _BRACKETED.fullmatch(netloc):
        return "its host is neither a name nor an address"
    return None


def _wrong_host(host: str, networks: Sequence[Network]) -> str | None:
    literal = _literal(host)
    if literal is None:
        labels = host.removesuffix(".").split(".")
        if len(host) > _MAX_NAME or not all(_LABEL.fullmatch(label) for label in labels):
            return "its host is neither a name nor an address"
        if _NUMBER.fullmatch(labels[-1]):
            # 2130706433, 0x7f.1, 0177.0.0.1: what some resolvers take for an address.
            return "its host must be a name, or an address in its usual form (192.0.2.1)"
        if labels[-1].lower() != "localhost":
            return None
        literal = "127.0.0.1"
    try:
        check_address(literal, networks)
    except RefusedTargetError as exc:
        return str(exc)
    return None


def _literal(host: str) -> str | None:
    try:
        return str(ip_address(host))
    except ValueError:
        return None

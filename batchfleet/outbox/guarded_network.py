"""The network as webhooks see it: every address checked at the connection itself, and one deadline for all of it.

A name is resolved once for a connection, all of its addresses are checked, and the connection goes to one of those
very addresses: a name that leads elsewhere a moment later changes nothing. The name stays what TLS and the `Host`
header say. Each wait is cut to what is left of the deadline, so that a receiver that trickles ends with it.
"""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

import httpcore

from batchfleet.clock import Monotonic
from batchfleet.outbox.guard import Network, check_address

Resolver: TypeAlias = Callable[[str, int], Sequence[str]]
"""Returns the addresses of a host name; raises `OSError` if there are none."""

_MOST_ADDRESSES: Final = 4
"""Addresses of one name that are tried in turn."""


def resolve(host: str, port: int) -> Sequence[str]:
    """Asks this machine's resolver.

    Raises:
        OSError: If the name leads nowhere.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[4][0]) for address in found))


class Deadline:
    """A moment by which everything has to be done.

    Args:
        seconds: From now.
    """

    def __init__(self, seconds: float, clock: Monotonic = time.monotonic) -> None:
        self._clock = clock
        self._at = clock() + seconds

    def left_s(self, at_most: float | None = None) -> float:
        """Returns the seconds left.

        Raises:
            httpcore.TimeoutException: If there are none.
        """
        left = self._at - self._clock()
        if left <= 0:
            raise httpcore.TimeoutException("the deadline is over")
        return left if at_most is None else min(left, at_most)


class GuardedNetwork(httpcore.NetworkBackend):
    """Connects to checked addresses only, within a deadline. One for each attempt.

    Args:
        networks: What may be reached though it is not public.
        deadline: Of the attempt.
        resolver: Finds addresses.
        network: Opens connections.
    """

    def __init__(
        self,
        networks: Sequence[Network],
        deadline: Deadline,
        *,
        resolver: Resolver = resolve,
        network: httpcore.NetworkBackend | None = None,
    ) -> None:
        self._networks = networks
        self._deadline = deadline
        self._resolver = resolver
        self._network = network or httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """Connects to the first address of the host that answers.

        Raises:
            RefusedTargetError: If any address of the host is not allowed.
            httpcore.ConnectError, httpcore.TimeoutException: If none answers.
        """
        addresses = self._addresses(host, port)
        for address in addresses:
            check_address(address, self._networks)
        failure: Exception = httpcore.ConnectError("the host has no address")
        for address in addresses[:_MOST_ADDRESSES]:
            try:
                stream = self._network.connect_tcp(
                    address, port, self._deadline.left_s(timeout), local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as exc:
                failure = exc
            else:
                return _DeadlineStream(stream, self._deadline)
        raise failure

    def _addresses(self, host: str, port: int) -> Sequence[str]:
        """Resolves on a thread of its own: a resolver that hangs cannot be told when to stop."""
        answer: list[Sequence[str]] = []
        failed: list[OSError] = []

        def ask() -> None:
            try:
                answer.append(self._resolver(host, port))
            except (OSError, UnicodeError) as exc:
                failed.append(OSError(str(exc)))

        thread = threading.Thread(target=ask, name="resolve", daemon=True)
        thread.start()
        thread.join(self._deadline.left_s())
        if answer:
            return answer[0]
        if failed:
            raise httpcore.ConnectError("the host's name leads nowhere")
        raise httpcore.ConnectTimeout("the host's name was not resolved in time")


class _DeadlineStream(httpcore.NetworkStream):
    """A connection whose every wait ends with the deadline."""

    def __init__(self, stream: httpcore.NetworkStream, deadline: Deadline) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._deadline.left_s(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._deadline.left_s(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        stream = self._stream.start_tls(ssl_context, server_hostname, self._deadline.left_s(timeout))
        return _DeadlineStream(stream, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

"""Waiting on a connection and on a wake-up call at once."""

import select
import socket
from contextlib import suppress
from enum import Enum
from typing import Protocol


class Woke(Enum):
    """Why a wait ended."""

    READABLE = "readable"
    CALLED = "called"
    TIMEOUT = "timeout"


class HasFileno(Protocol):
    """A socket."""

    def fileno(self) -> int:
        """Returns its descriptor."""
        ...


class Waker:
    """A wake-up call that any thread may make, and that one thread waits for beside a socket.

    A call made while nobody waits is kept for the next wait. Several are one.
    """

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def call(self) -> None:
        """Wakes the waiter; does nothing once closed."""
        with suppress(OSError):  # a full buffer holds a call already
            self._writer.send(b"\0")

    def consume(self) -> bool:
        """Returns whether there was a call since the last time, and forgets it."""
        try:
            while len(self._reader.recv(4096)) == 4096:
                pass
        except BlockingIOError:
            return False
        return True

    def wait(self, timeout_s: float, sock: HasFileno | None = None) -> Woke:
        """Waits until the socket can be read, a call comes (which is consumed), or the time is over."""
        poll = select.poll()  # not `select`, which cannot watch descriptors over 1,023
        poll.register(self._reader, select.POLLIN)
        if sock is not None:
            poll.register(sock.fileno(), select.POLLIN)
        ready = {fd for fd, _ in poll.poll(max(0.0, timeout_s) * 1000)}
        if sock is not None and sock.fileno() in ready:
            return Woke.READABLE
        if ready and self.consume():
            return Woke.CALLED
        return Woke.TIMEOUT

    def close(self) -> None:
        """Gives up the descriptors; idempotent."""
        self._writer.close()
        self._reader.close()

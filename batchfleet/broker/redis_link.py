"""One connection to Redis or Valkey, on which every wait has an end.

Made from kombu's channel (hints) or from a URL (ring); both want the same of it: commands within a deadline,
replies awaited together with a wake-up call, and a broken connection replaced at the next command.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import redis

from batchfleet.broker.waker import HasFileno

LinkFailure: Final = (redis.RedisError, OSError)
"""What a command can raise: every failure of server or network."""

MakeConnection = Callable[[], Any]
"""Makes a redis-py connection; it may connect at once or at its first command."""


class RedisLink:
    """A connection that comes back. Used by one thread at a time.

    Args:
        make: Makes the redis-py connection, with socket timeouts set; called once, at the first command.
        deadline_s: Bounds each `execute` once connected.
    """

    def __init__(self, make: MakeConnection, *, deadline_s: float) -> None:
        self._make = make
        self._deadline_s = deadline_s
        self._connection: Any = None
        self._open = False
        self.generation = 0
        """Raised by each connect; what belongs to one connection is kept with its number."""

    def execute(self, *commands: Sequence[object]) -> list[Any]:
        """Sends commands in one write and returns their replies, an error reply as the exception it means.

        A connection that had gone stale (server restarted, idle connection cut) is replaced once, at once;
        the commands may then run twice, which hints and rings bear.

        Raises:
            redis.RedisError, OSError: If the server could not be asked within the deadline.
        """
        was_open = self._open
        try:
            return self._execute(commands)
        except redis.ConnectionError:
            if not was_open:
                raise
        return self._execute(commands)

    def send(self, *command: object) -> None:
        """Sends one command whose reply is read with `read`."""
        with self._dropping():
            self._opened().send_packed_command([pack((command,))])

    def read(self) -> Any:
        """Reads one reply, within the socket's timeout. An error reply is raised."""
        with self._dropping():
            return self._opened().read_response()

    def has_input(self) -> bool:
        """Whether bytes are there to be read, without waiting."""
        with self._dropping():
            return bool(self._opened().can_read(0))

    def socket(self) -> HasFileno:
        """Returns the socket, to wait on it; only while nothing that was received is left to be read."""
        sock: HasFileno | None = self._opened()._sock  # noqa: SLF001 - redis-py cannot wait on two things
        if sock is None:
            raise redis.ConnectionError("not connected")
        return sock

    def drop(self) -> None:
        """Disconnects; the next command connects again."""
        self._open = False
        if self._connection is not None:
            self._connection.disconnect()

    def _opened(self) -> Any:
        if not self._open:
            if self._connection is None:
                self._connection = self._make()
            self._connection.connect()
            self._open = True
            self.generation += 1
        return self._connection

    def _execute(self, commands: Sequence[Sequence[object]]) -> list[Any]:
        with self._dropping():
            connection = self._opened()
            deadline = time.monotonic() + self._deadline_s
            connection.send_packed_command([pack(commands)])
            return [_reply(connection, deadline) for _ in commands]

    @contextmanager
    def _dropping(self) -> Iterator[None]:
        """An answer that was not read to its end would be taken for the next one: never go on after an error."""
        try:
            yield
        except BaseException:
            self.drop()
            raise


def pack(commands: Sequence[Sequence[object]]) -> bytes:
    """Returns commands as RESP arrays, for one write; text is sent as UTF-8.

    redis-py's packer costs several times as much: it looks at the type and the size of each argument in turn.
    """
    parts: list[bytes] = []
    for command in commands:
        parts.append(b"*%d\r\n" % len(command))
        for word in command:
            data = word if isinstance(word, bytes) else str(word).encode()
            parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


def _reply(connection: Any, deadline: float) -> Any:
    # A server that trickles would satisfy the socket's own timeout for ever.
    if not connection.can_read(max(0.0, deadline - time.monotonic())):
        raise redis.TimeoutError("no reply within the deadline")
    try:
        return connection.read_response()
    except redis.ResponseError as error:
        return error


def raise_errors(replies: Sequence[Any]) -> None:
    """Raises the first error among replies, if there is one."""
    for reply in replies:
        if isinstance(reply, redis.RedisError):
            raise reply


def is_wrong_type(error: BaseException) -> bool:
    """Whether a command failed because a key of its name holds another kind of value."""
    return isinstance(error, redis.ResponseError) and "WRONGTYPE" in str(error)

"""Hints over kombu on Redis or Valkey.

Each flow is a kombu queue of the default exchange: a list named after it, with kombu's message form inside, and
no routing state in the broker that a restart or FLUSHALL could lose. Connections are kombu's; what travels on
them is ours: many envelopes an LPUSH, many messages an LMPOP, one BLMPOP while there is nothing to do.
Every key has a lifetime, and none grows without bound: the broker is a doorbell.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import redis
from kombu.connection import Connection
from kombu.exceptions import KombuError

from batchfleet.broker.envelope import EnvelopeWriter, read_envelope
from batchfleet.broker.hint import Flow, Hint, InvalidHintError
from batchfleet.broker.redis_link import LinkFailure, RedisLink, is_wrong_type, raise_errors
from batchfleet.broker.waker import Waker, Woke
from batchfleet.errors import BrokerUnavailableError
from batchfleet.telemetry import Action, Metrics, mask_url

PUBLISH_DEADLINE_S: Final = 2.0
QUEUE_TTL_S: Final = 3600
"""A queue that nobody has put into for so long is dropped: its model is not served, and the relay repeats."""
MAX_QUEUE_HINTS: Final = 10_000
"""Hints over which a queue loses its oldest."""

_LONGEST_BLOCK_S: Final = 5.0
"""One BLMPOP at most: a connection that died silently is noticed after it."""
_SHORTEST_BLOCK_S: Final = 0.001
"""Less would be written as 0, which means for ever."""
_AT_ONCE_S: Final = 0.002
"""A reply that took longer was waited for."""
_GRACE_S: Final = 1.0
"""How much later than asked the server may answer a BLMPOP before its connection counts as dead."""
_HINTS_PER_PUSH: Final = 512

logger = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")


class KombuBroker:
    """The hint broker on Redis or Valkey (`HintBroker`).

    Args:
        url: `redis://…`, `rediss://…` or `redis+socket:///path`, as kombu reads them.
        deadline_s: Bounds a publish, connecting included.
    """

    def __init__(self, url: str, *, metrics: Metrics, deadline_s: float = PUBLISH_DEADLINE_S) -> None:
        self._url = url
        self._metrics = metrics
        self._step_s = deadline_s / 2  # connecting and talking each get half
        self._writer = EnvelopeWriter()
        self._waker = Waker()
        self._channel: Any = None
        self._transport: Any = None
        self._link = RedisLink(self._open, deadline_s=self._step_s)
        self._control = RedisLink(self._open, deadline_s=self._step_s)
        self._client_id: tuple[int, int] | None = None

    def publish(self, hints: Sequence[Hint]) -> None:
        """Sends hints, one write for all of them."""
        if not hints:
            return
        queues: dict[str, list[bytes]] = {}
        for hint in hints:
            queues.setdefault(hint.flow.queue, []).append(self._writer.write(hint))
        with self._failures():
            self._repairing(tuple(queues), lambda: self._push(queues))
        self._metrics.hints_published.inc(len(hints))

    def pull(self, flows: Sequence[Flow], max_hints: int, wait_s: float) -> list[Hint]:
        """Takes hints, from the first flows first; waits in the broker for the first one."""
        queues = tuple(flow.queue for flow in flows)
        if not queues or max_hints < 1:
            self._waker.wait(wait_s)
            return []
        until = time.monotonic() + wait_s
        with self._failures():
            while True:
                messages, called = self._take(queues, max_hints, until)
                hints = self._read(messages)
                if hints or called or (not messages and time.monotonic() >= until):
                    return hints

    def depth(self, flow: Flow) -> int:
        """Returns how many hints of the flow lie in the broker."""
        with self._failures():
            return self._repairing((flow.queue,), lambda: int(self._ask("LLEN", flow.queue)))

    def interrupt(self) -> None:
        """Makes the pull that waits, or the next one that would, return without waiting."""
        self._waker.call()

    def close(self) -> None:
        """Gives up connections."""
        self._link.drop()
        self._control.drop()
        if self._channel is not None:
            self._transport.close_connection(self._transport)
            self._channel = None
        self._waker.close()

    # -- putting ------------------------------------------------------------------------------------------

    def _push(self, queues: dict[str, list[bytes]]) -> None:
        commands: list[Sequence[object]] = []
        for queue, messages in queues.items():
            commands.extend(
                ("LPUSH", queue, *messages[start : start + _HINTS_PER_PUSH])
                for start in range(0, len(messages), _HINTS_PER_PUSH)
            )
            commands.append(("EXPIRE", queue, QUEUE_TTL_S))
        replies = self._link.execute(*commands)
        raise_errors(replies)
        self._trim(commands, replies)

    def _trim(self, commands: Sequence[Sequence[object]], replies: Sequence[Any]) -> None:
        full = {
            command[1]
            for command, reply in zip(commands, replies, strict=True)
            if command[0] == "LPUSH" and int(reply) > MAX_QUEUE_HINTS
        }
        if full:  # messages are put in on the left, so the oldest are at the right end
            raise_errors(self._link.execute(*[("LTRIM", queue, 0, MAX_QUEUE_HINTS - 1) for queue in full]))

    # -- taking -------------------------------------------------------------------------------------------

    def _take(self, queues: tuple[str, ...], max_hints: int, until: float) -> tuple[list[bytes], bool]:
        """Returns messages, and whether the wait for them was called off."""
        asked_at = time.monotonic()
        found, called = self._repairing(queues, lambda: self._first(queues, max_hints, until))
        waited = time.monotonic() - asked_at > _AT_ONCE_S
        messages: list[bytes] = []
        while found is not None:
            queue, taken = found
            messages += taken
            if waited:
                break  # all queues were empty a moment ago: what else has come since is the next pull's
            queues = queues[queues.index(queue.decode()) + 1 :]
            found = self._pop(queues, max_hints - len(messages))
        return messages, called

    def _pop(self, queues: tuple[str, ...], count: int) -> Any:
        """Takes from the first queue that holds anything; None if none does, or none is wanted."""
        if not queues or count < 1:
            return None
        return self._repairing(queues, lambda: self._ask("LMPOP", len(queues), *queues, "RIGHT", "COUNT", count))

    def _first(self, queues: tuple[str, ...], max_hints: int, until: float) -> tuple[Any, bool]:
        """Takes from the first queue that holds anything, waiting if none does and time is left."""
        wait_s = min(until - time.monotonic(), _LONGEST_BLOCK_S)
        called = wait_s > 0 and self._waker.consume()
        if called or wait_s < _SHORTEST_BLOCK_S:
            return self._pop(queues, max_hints), called
        was_open = self._link.generation
        try:
            return self._block(queues, max_hints, wait_s)
        except redis.ConnectionError:
            if self._link.generation != was_open:
                raise
        return self._block(queues, max_hints, wait_s)  # the connection had gone stale since the last call

    def _block(self, queues: tuple[str, ...], max_hints: int, wait_s: float) -> tuple[Any, bool]:
        client_id = self._own_id()
        self._link.send("BLMPOP", f"{wait_s:.3f}", len(queues), *queues, "RIGHT", "COUNT", max_hints)
        woke = self._waker.wait(wait_s + _GRACE_S, self._link.socket())
        if woke is Woke.TIMEOUT:
            raise TimeoutError("a blocked connection has gone silent")
        if woke is Woke.CALLED and not self._unblock(client_id):
            return None, True
        return self._link.read(), woke is Woke.CALLED

    def _own_id(self) -> int:
        """Returns the server's number of our connection, by which another one can unblock it."""
        if self._client_id is None or self._client_id[0] != self._link.generation:
            number = int(self._ask("CLIENT", "ID"))
            self._client_id = (self._link.generation, number)
        return self._client_id[1]

    def _unblock(self, client_id: int) -> bool:
        """Ends our BLMPOP from a second connection, so that no message is taken for a reader that left.

        The reply to the BLMPOP then comes in any case: empty, or with messages that had been on their way.
        Where that cannot be asked (broker hangs, command forbidden), the blocked connection is given up, and with
        it whatever the server may just be sending: the relay repeats it.
        """
        try:
            raise_errors(self._control.execute(("CLIENT", "UNBLOCK", client_id)))
        except LinkFailure:
            self._link.drop()
            return False
        return True

    def _read(self, messages: Sequence[bytes]) -> list[Hint]:
        hints: list[Hint] = []
        for message in messages:
            try:
                hints.append(read_envelope(message))
            except InvalidHintError:
                self._metrics.hints_invalid.inc()
        self._metrics.hints_pulled.inc(len(hints))
        return hints

    # -- failing ------------------------------------------------------------------------------------------

    def _ask(self, *command: object) -> Any:
        replies = self._link.execute(command)
        raise_errors(replies)
        return replies[0]

    def _repairing(self, queues: tuple[str, ...], work: Callable[[], _Answer]) -> _Answer:
        try:
            return work()
        except LinkFailure as error:
            if not is_wrong_type(error):
                raise
        self._remove_foreign(queues)
        return work()

    def _remove_foreign(self, queues: tuple[str, ...]) -> None:
        """Removes keys of our names that are no lists: they would block the flow for ever."""
        kinds = self._link.execute(*[("TYPE", queue) for queue in queues])
        for queue, kind in zip(queues, kinds, strict=True):
            if kind not in (b"list", b"none"):
                self._ask("UNLINK", queue)
                self._metrics.hints_invalid.inc()
                logger.warning("removed a foreign key", extra={"action": Action.BROKER_REPAIRED, "queue": queue})

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except (*LinkFailure, KombuError) as error:
            self._link.drop()
            self._control.drop()
            raise BrokerUnavailableError(f"{mask_url(self._url)}: {error}") from error

    def _open(self) -> Any:
        if self._channel is None:
            self._transport, self._channel = _open_channel(self._url, self._step_s)
        return self._channel.client.connection_pool.get_connection()


def _open_channel(url: str, timeout_s: float) -> tuple[Any, Any]:
    """Returns kombu's transport and a channel of it; kombu asks the server once (PING) to make them.

    The transport is asked itself: `Connection.channel` would sleep two seconds before a second try.
    """
    options = {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "socket_keepalive": True,
        "health_check_interval": 0,  # every wait of ours has its own end
    }
    transport: Any = Connection(url, transport_options=options).transport  # type: ignore[no-untyped-call]
    try:
        return transport, transport.create_channel(transport.establish_connection())
    except BaseException:
        transport.close_connection(transport)
        raise

"""The ring over Redis or Valkey pub/sub: one publish a settling transaction, heard by every API process."""

import logging
import random
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

import redis

from batchfleet.broker.port import RingListener
from batchfleet.broker.redis_link import LinkFailure, RedisLink, raise_errors
from batchfleet.broker.ring import RING_CHANNEL, InvalidRingError, pack_ids, unpack_ids
from batchfleet.broker.waker import Waker, Woke
from batchfleet.jobs.job import JobId
from batchfleet.lifecycle import CrashHandler, ServiceThread, exit_on_crash
from batchfleet.telemetry import Action, Metrics, mask_url

_TIMEOUT_S: Final = 1.0
_QUIET_S: Final = 5.0
"""Silence after which the subscription is pinged; twice that, and it counts as dead."""
_FIRST_BACKOFF_S: Final = 0.05
_LAST_BACKOFF_S: Final = 2.0

logger = logging.getLogger(__name__)


class RedisRing:
    """The ring on Redis or Valkey (`Ring`). `ring` may be called from any thread.

    Args:
        url: `redis://…`, `rediss://…` or `redis+socket:///path`.
        channel: Name of the pub/sub channel.
        quiet_s: Silence after which the subscription is checked.
        rest_s: Pause after each ring that was heard, for a listener to whom many are as good as one.
    """

    def __init__(
        self,
        url: str,
        *,
        metrics: Metrics,
        channel: str = RING_CHANNEL,
        quiet_s: float = _QUIET_S,
        rest_s: float = 0.0,
        on_crash: CrashHandler = exit_on_crash,
    ) -> None:
        self._url = url
        self._metrics = metrics
        self._channel = channel
        self._quiet_s = quiet_s
        self._rest_s = rest_s
        self._pool = redis.ConnectionPool.from_url(
            redis_py_url(url), socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S
        )
        self._lock = threading.Lock()
        self._publisher = RedisLink(self._open, deadline_s=_TIMEOUT_S)
        self._subscriber = RedisLink(self._open, deadline_s=_TIMEOUT_S)
        self._backoff = _Backoff()
        self._waker = Waker()
        self._listener: RingListener | None = None
        self._thread = ServiceThread("ring", self._run, wake=self._waker.call, on_crash=on_crash)
        self.subscribed = threading.Event()
        """Set while the subscription stands."""

    def ring(self, ids: Sequence[JobId]) -> None:
        """Tells all listeners. While the broker is down it is asked only now and then, so that settling goes on."""
        if not ids:
            return
        if self._backoff.holds():
            self._metrics.rings_failed.inc()
            return
        message = pack_ids(ids)
        try:
            with self._lock:
                raise_errors(self._publisher.execute(("PUBLISH", self._channel, message)))
        except LinkFailure as error:
            self._backoff.failed()
            self._metrics.rings_failed.inc()
            logger.warning("ring not sent", extra={"action": Action.BROKER_UNAVAILABLE, "reason": self._say(error)})
        else:
            self._backoff.succeeded()
            self._metrics.rings_published.inc()

    def listen(self, listener: RingListener) -> None:
        """Starts calling the listener, on a thread of the ring's own; once."""
        self._listener = listener
        self._thread.start()

    def close(self) -> None:
        """Stops the thread and gives up connections."""
        self._thread.stop()
        self._thread.join(2 * _TIMEOUT_S)
        with self._lock:
            self._publisher.drop()
        self._waker.close()

    # -- listening ----------------------------------------------------------------------------------------

    def _run(self, stopping: threading.Event) -> None:
        backoff = _Backoff()
        while not stopping.is_set():
            try:
                self._subscribe()
                backoff.succeeded()
                self._hear(stopping)
            except LinkFailure as error:
                backoff.failed()
                self._lost(error)
            finally:
                self.subscribed.clear()
                self._subscriber.drop()
            self._waker.wait(backoff.left_s())

    def _subscribe(self) -> None:
        self._subscriber.send("SUBSCRIBE", self._channel)
        self._subscriber.read()
        self.subscribed.set()
        logger.debug("ring subscribed", extra={"action": Action.RING_CONNECTED})

    def _hear(self, stopping: threading.Event) -> None:
        """Passes on what arrives, until told to stop or until the connection is found dead."""
        pinged = False
        while not stopping.is_set():
            # What the parser has buffered already would not make the socket readable.
            buffered = self._subscriber.has_input()
            woke = Woke.READABLE if buffered else self._wait()
            if woke is Woke.READABLE:
                self._take(self._subscriber.read())
                pinged = False
                if self._rest_s and not buffered:
                    stopping.wait(self._rest_s)
            elif woke is Woke.TIMEOUT:
                if pinged:
                    raise redis.TimeoutError("the subscription has gone silent")
                self._subscriber.send("PING")
                pinged = True

    def _wait(self) -> Woke:
        return self._waker.wait(self._quiet_s, self._subscriber.socket())

    def _take(self, reply: Any) -> None:
        if not isinstance(reply, list) or len(reply) != 3 or reply[0] != b"message":
            return  # the answer to a ping
        with suppress(InvalidRingError):
            ids = unpack_ids(reply[2])
            assert self._listener is not None  # noqa: S101 - set before the thread starts
            self._listener(ids)

    def _lost(self, error: BaseException) -> None:
        if self.subscribed.is_set():
            logger.warning("ring lost", extra={"action": Action.RING_LOST, "reason": self._say(error)})

    def _say(self, error: BaseException) -> str:
        return f"{mask_url(self._url)}: {error}"

    def _open(self) -> Any:
        return self._pool.get_connection()


class _Backoff:
    """When to try again: at once after success, then ever later, with jitter, up to a bound."""

    def __init__(self) -> None:
        self._delay_s = 0.0
        self._until = 0.0

    def failed(self) -> None:
        self._delay_s = min(_LAST_BACKOFF_S, max(_FIRST_BACKOFF_S, 2 * self._delay_s))
        self._until = time.monotonic() + self._delay_s * random.uniform(0.5, 1.0)  # noqa: S311 - jitter

    def succeeded(self) -> None:
        self._delay_s = self._until = 0.0

    def left_s(self) -> float:
        return max(0.0, self._until - time.monotonic())

    def holds(self) -> bool:
        return self.left_s() > 0


def redis_py_url(url: str) -> str:
    """Returns the URL as redis-py writes it: kombu's `redis+socket:///path?virtual_host=1` is its `unix:///…?db=1`."""
    parts = urlsplit(url)
    if parts.scheme != "redis+socket":
        return url
    query = urlencode([("db" if key == "virtual_host" else key, value) for key, value in parse_qsl(parts.query)])
    return f"unix://{parts.netloc}{parts.path}" + (f"?{query}" if query else "")

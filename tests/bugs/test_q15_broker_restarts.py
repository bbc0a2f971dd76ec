"""Q15, the broker's part: readers and writers live through restarts and FLUSHALL without being restarted.

Celery workers stopped consuming after a Redis restart for years (celery#9054, #8384), and a lost binding key made
sends vanish silently (kombu#1063). The part with jobs and workers is in `tests/chaos`.
"""

import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from batchfleet.broker.hint import Flow, Hint
from batchfleet.broker.kombu_broker import KombuBroker
from batchfleet.errors import BrokerUnavailableError
from batchfleet.jobs.job import Lane, new_job_id
from batchfleet.telemetry import Metrics
from tests.support.servers import ValkeyServer

FLOW = Flow("minilm", Lane.STANDARD)
RESTARTS = 5


class Reader:
    """A worker's receive loop in small: it goes on whatever happens."""

    def __init__(self, broker: KombuBroker) -> None:
        self._broker = broker
        self._stop = threading.Event()
        self._arrived = threading.Condition()
        self._ids: set[str] = set()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait_for(self, job_id: str, timeout_s: float) -> bool:
        with self._arrived:
            return self._arrived.wait_for(lambda: job_id in self._ids, timeout_s)

    def close(self) -> None:
        self._stop.set()
        self._broker.interrupt()
        self._thread.join()
        self._broker.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                hints = self._broker.pull([FLOW], 32, 5.0)
            except BrokerUnavailableError:
                self._stop.wait(0.02)
                continue
            with self._arrived:
                self._ids.update(job_id for hint in hints for job_id in hint.ids)
                self._arrived.notify_all()


@pytest.fixture
def reader(own_valkey: ValkeyServer) -> Iterator[Reader]:
    made = Reader(KombuBroker(own_valkey.url, metrics=Metrics()))
    yield made
    made.close()


def relay_until_read(writer: KombuBroker, reader: Reader) -> None:
    """Announces a job again and again, as the relay does, until it was read."""
    job_id = new_job_id()
    for _ in range(1000):
        with suppress(BrokerUnavailableError):
            writer.publish([Hint(FLOW.model, FLOW.lane, (job_id,))])
        if reader.wait_for(job_id, 0.05):
            return
    pytest.fail("the reader is deaf")


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_readers_and_writers_survive_restarts(own_valkey: ValkeyServer, reader: Reader, how: str) -> None:
    writer = KombuBroker(own_valkey.url, metrics=Metrics())
    relay_until_read(writer, reader)
    for _ in range(RESTARTS):
        getattr(own_valkey, how)()
        with pytest.raises(BrokerUnavailableError):
            writer.publish([Hint(FLOW.model, FLOW.lane, (new_job_id(),))])
        own_valkey.start()

        relay_until_read(writer, reader)
    writer.close()


def test_a_restart_between_two_publishes_goes_unnoticed(own_valkey: ValkeyServer) -> None:
    """The connection of before the restart is stale: it is replaced within the call."""
    writer = KombuBroker(own_valkey.url, metrics=Metrics())
    for expected in (1, 1, 1):
        writer.publish([Hint(FLOW.model, FLOW.lane, (new_job_id(),))])
        assert writer.depth(FLOW) == expected
        own_valkey.restart()
    writer.close()


def test_flushall_loses_hints_and_nothing_else(own_valkey: ValkeyServer, reader: Reader) -> None:
    writer = KombuBroker(own_valkey.url, metrics=Metrics())
    relay_until_read(writer, reader)
    own_valkey.flushall()

    relay_until_read(writer, reader)
    writer.close()

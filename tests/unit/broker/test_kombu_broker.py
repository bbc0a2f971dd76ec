"""The adapter on a real Valkey: kombu's own clients, foreign keys, and servers that hang or are gone."""

import gc
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kombu.connection import Connection
from kombu.messaging import Consumer, Producer

from batchfleet.broker.hint import Flow, Hint, decode_hint, encode_hint
from batchfleet.broker.kombu_broker import MAX_QUEUE_HINTS, QUEUE_TTL_S, KombuBroker
from batchfleet.errors import BrokerUnavailableError
from batchfleet.jobs.job import Lane, new_job_id
from batchfleet.telemetry import Metrics
from tests.support.servers import ValkeyServer, free_port

BULK = Flow("minilm", Lane.BULK)
ONLINE = Flow("minilm", Lane.ONLINE)


def hint(flow: Flow = BULK, jobs: int = 2) -> Hint:
    return Hint(flow.model, flow.lane, tuple(new_job_id() for _ in range(jobs)))


def value(counter: Any) -> float:
    return float(counter._value.get())


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def broker(valkey: ValkeyServer, metrics: Metrics) -> Iterator[KombuBroker]:
    made = KombuBroker(valkey.url, metrics=metrics)
    yield made
    made.close()


@pytest.fixture
def kombu_connection(valkey: ValkeyServer) -> Iterator[Any]:
    made: Any = Connection(valkey.url)  # type: ignore[no-untyped-call]
    with made as connection:
        yield connection


def test_a_kombu_consumer_reads_and_acks_our_hints(broker: KombuBroker, kombu_connection: Any) -> None:
    sent = [hint() for _ in range(3)]
    broker.publish(sent)
    read: list[Hint] = []

    def take(_body: object, message: Any) -> None:
        read.append(decode_hint(message.body))
        message.ack()

    queue = kombu_connection.SimpleQueue(BULK.queue).queue
    channel = kombu_connection.channel()
    consumer: Any = Consumer(channel, [queue], callbacks=[take], accept=["json"])  # type: ignore[no-untyped-call]
    with consumer:
        while len(read) < len(sent):
            kombu_connection.drain_events(timeout=10)

    assert sorted(read, key=str) == sorted(sent, key=str)
    assert broker.depth(BULK) == 0


def test_we_read_the_hints_of_a_kombu_producer(broker: KombuBroker, kombu_connection: Any) -> None:
    sent = [hint() for _ in range(3)]
    producer: Any = Producer(kombu_connection.channel())  # type: ignore[no-untyped-call]
    for each in sent:
        body = encode_hint(each)
        producer.publish(
            body, exchange="", routing_key=BULK.queue, content_type="application/json", content_encoding="utf-8"
        )

    assert broker.pull([BULK], 10, 0) == sent


def test_garbage_is_dropped_and_counted(broker: KombuBroker, metrics: Metrics, valkey: ValkeyServer) -> None:
    sent = hint()
    with valkey.client() as client:
        client.lpush(BULK.queue, b"\xff", b"{}", b'{"body": "x"}')
    broker.publish([sent])

    assert broker.pull([BULK], 2, 5.0) == [sent]
    assert value(metrics.hints_invalid) == 3
    assert value(metrics.hints_pulled) == 1
    assert value(metrics.hints_published) == 1


@pytest.mark.parametrize("wait_s", [0.0, 0.05])
def test_keys_of_another_kind_are_removed(
    broker: KombuBroker, metrics: Metrics, valkey: ValkeyServer, wait_s: float
) -> None:
    with valkey.client() as client:
        client.set(ONLINE.queue, "in the way")
        client.set("not ours", "stays")

        assert broker.pull([ONLINE, BULK], 4, wait_s) == []

        client.hset(BULK.queue, "in", "the way")
        broker.publish([hint()])
        assert broker.depth(BULK) == 1

        client.set(ONLINE.queue, "in the way")
        assert broker.depth(ONLINE) == 0
        assert client.get("not ours") == b"stays"
    assert value(metrics.hints_invalid) == 3


def test_every_queue_has_a_lifetime_and_a_bound(broker: KombuBroker, valkey: ValkeyServer) -> None:
    sent = [hint(jobs=1) for _ in range(MAX_QUEUE_HINTS + 10)]
    broker.publish(sent)

    with valkey.client() as client:
        assert 0 < int(str(client.ttl(BULK.queue))) <= QUEUE_TTL_S
    assert broker.depth(BULK) == MAX_QUEUE_HINTS
    assert broker.pull([BULK], 1, 0) == [sent[10]]


def test_no_other_key_is_made(broker: KombuBroker, valkey: ValkeyServer) -> None:
    """Routing state in the broker would be lost by a restart, and everything else would pile up."""
    broker.publish([hint()])
    broker.pull([ONLINE], 1, 0.01)

    with valkey.client() as client:
        assert client.keys("*") == [BULK.queue.encode()]


def test_idle_waiting_costs_few_commands(broker: KombuBroker, valkey: ValkeyServer) -> None:
    broker.pull([ONLINE, BULK], 4, 0.01)
    before = valkey.calls()
    for _ in range(3):
        broker.pull([ONLINE, BULK], 4, 0.05)
    after = valkey.calls()

    assert after["blmpop"] - before["blmpop"] <= 4  # a wait that ends a hair early is taken up again
    assert sum(after.values()) - sum(before.values()) <= 6  # with the two INFO and their connections


def test_a_pull_that_waited_takes_what_came_and_asks_for_no_more(broker: KombuBroker, valkey: ValkeyServer) -> None:
    """The other queues were empty a moment ago: to ask for them would cost each lone job a round trip."""
    broker.pull([ONLINE, BULK], 4, 0.0)
    publisher = KombuBroker(valkey.url, metrics=Metrics())
    with ThreadPoolExecutor(1) as pool, valkey.client() as client:
        pulling = pool.submit(broker.pull, [ONLINE, BULK], 4, 30.0)
        while not client.client_list(_type="normal") or not any(
            one["cmd"] == "blmpop" for one in client.client_list(_type="normal")
        ):
            pass
        before = valkey.calls()
        publisher.publish([hint(ONLINE)])
        assert len(pulling.result(30.0)) == 1
    publisher.close()

    assert valkey.calls().get("lmpop", 0) == before.get("lmpop", 0)


def test_a_broker_that_is_away_says_so_and_comes_back(own_valkey: ValkeyServer, metrics: Metrics) -> None:
    own_valkey.stop()
    broker = KombuBroker(own_valkey.url, metrics=metrics)
    for call in (lambda: broker.publish([hint()]), lambda: broker.pull([BULK], 1, 5.0), lambda: broker.depth(BULK)):
        with pytest.raises(BrokerUnavailableError):
            call()
    own_valkey.start()
    sent = hint()

    broker.publish([sent])

    assert broker.pull([BULK], 1, 5.0) == [sent]
    broker.close()


@pytest.mark.parametrize("kind", ["url", "socket_url"])
def test_a_broker_that_hangs_costs_only_the_deadline(own_valkey: ValkeyServer, metrics: Metrics, kind: str) -> None:
    broker = KombuBroker(getattr(own_valkey, kind), metrics=metrics, deadline_s=0.4)
    fresh = KombuBroker(getattr(own_valkey, kind), metrics=metrics, deadline_s=0.4)
    broker.publish([hint()])
    own_valkey.pause()

    for each in (broker, fresh):
        with pytest.raises(BrokerUnavailableError):
            each.publish([hint()])
        with pytest.raises(BrokerUnavailableError):
            each.pull([BULK], 1, 0.1)

    own_valkey.resume()
    for each in (broker, fresh):
        each.publish([hint()])
        assert each.pull([BULK], 1, 5.0)
        each.close()


def test_an_interrupt_works_while_the_broker_hangs(own_valkey: ValkeyServer, metrics: Metrics) -> None:
    """The wake-up call does not go through the broker; the blocked connection is then given up."""
    broker = KombuBroker(own_valkey.url, metrics=metrics, deadline_s=0.4)
    broker.pull([BULK], 1, 0.01)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(broker.pull, [BULK], 1, 60.0)
        while not own_valkey.info("clients")["blocked_clients"]:
            pass
        own_valkey.pause()
        broker.interrupt()
        try:
            assert waiting.result() == []
        finally:
            own_valkey.resume()
    broker.close()


def test_a_reader_survives_the_kill_of_its_blocked_connection(broker: KombuBroker, valkey: ValkeyServer) -> None:
    sent = hint()
    broker.pull([BULK], 1, 0.01)
    with valkey.client() as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    broker.publish([sent])
    with valkey.client() as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    assert broker.pull([BULK], 1, 5.0) == [sent]


def test_reconnecting_leaks_no_descriptors(own_valkey: ValkeyServer, metrics: Metrics) -> None:
    broker = KombuBroker(own_valkey.url, metrics=metrics)
    broker.publish([hint()])

    def cycle() -> None:
        own_valkey.stop()
        with pytest.raises(BrokerUnavailableError):
            broker.publish([hint()])
        own_valkey.start()
        broker.publish([hint()])

    cycle()
    gc.collect()
    before = len(list(Path(f"/proc/{os.getpid()}/fd").iterdir()))
    for _ in range(12):
        cycle()
    gc.collect()

    assert len(list(Path(f"/proc/{os.getpid()}/fd").iterdir())) <= before
    broker.close()


def test_passwords_are_not_shown(metrics: Metrics) -> None:
    broker = KombuBroker(f"redis://me:secret@127.0.0.1:{free_port()}/0", metrics=metrics)

    with pytest.raises(BrokerUnavailableError) as caught:
        broker.publish([hint()])

    assert "secret" not in str(caught.value)
    broker.close()

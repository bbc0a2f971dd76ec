"""The ring on a real Valkey that restarts, hangs or is away."""

import queue
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfleet.broker.redis_ring import RedisRing, redis_py_url
from batchfleet.broker.ring import InvalidRingError, pack_ids, unpack_ids
from batchfleet.jobs.job import JobId, new_job_id
from batchfleet.telemetry import Metrics
from tests.support.servers import ValkeyServer

WAIT_S = 30.0


def value(counter: Any) -> float:
    return float(counter._value.get())


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def ring(own_valkey: ValkeyServer, metrics: Metrics) -> Iterator[RedisRing]:
    made = RedisRing(own_valkey.url, metrics=metrics, quiet_s=0.2)
    yield made
    made.close()


def listen(ring: RedisRing) -> "queue.SimpleQueue[list[JobId]]":
    heard: queue.SimpleQueue[list[JobId]] = queue.SimpleQueue()
    ring.listen(lambda ids: heard.put(list(ids)))
    assert ring.subscribed.wait(WAIT_S)
    return heard


def ring_until_heard(ring: RedisRing, heard: "queue.SimpleQueue[list[JobId]]", ids: list[JobId]) -> None:
    """Rings while the subscription is coming back: what is rung before that is lost, as allowed."""
    for _ in range(1000):
        ring.ring(ids)
        try:
            assert heard.get(timeout=0.05) == ids
        except queue.Empty:
            continue
        return
    pytest.fail("the ring did not come back")


@given(st.integers(0, 100))
def test_ids_survive_the_packing(count: int) -> None:
    ids = [new_job_id() for _ in range(count)]

    assert unpack_ids(pack_ids(ids)) == ids


def test_only_ids_are_packed() -> None:
    with pytest.raises(ValueError, match="not job ids"):
        pack_ids(["ab"])


@pytest.mark.parametrize("message", [b"", b"\x02" + bytes(16), b"\x01" + bytes(15)])
def test_other_messages_are_refused(message: bytes) -> None:
    with pytest.raises(InvalidRingError):
        unpack_ids(message)


def test_the_ring_comes_back_after_a_restart(ring: RedisRing, own_valkey: ValkeyServer) -> None:
    heard = listen(ring)
    for _ in range(3):
        own_valkey.restart()
        ring_until_heard(ring, heard, [new_job_id()])


def test_a_subscription_that_went_silent_is_replaced(ring: RedisRing, own_valkey: ValkeyServer) -> None:
    """A half-dead connection never becomes readable: only the unanswered ping tells."""
    heard = listen(ring)
    own_valkey.pause()
    while ring.subscribed.is_set():
        ring._thread.stopping.wait(0.01)
    own_valkey.resume()

    ring_until_heard(ring, heard, [new_job_id()])


def test_a_quiet_subscription_is_pinged_and_kept(ring: RedisRing, own_valkey: ValkeyServer) -> None:
    heard = listen(ring)
    while own_valkey.calls().get("ping", 0) < 3:
        pass
    with own_valkey.client() as client:
        client.publish("batchfleet.ring", b"garbage")
    ids = [new_job_id()]
    ring.ring(ids)

    assert heard.get(timeout=WAIT_S) == ids
    assert own_valkey.calls()["subscribe"] == 1


def test_ringing_a_broker_that_is_away_is_counted_and_never_raises(
    ring: RedisRing, own_valkey: ValkeyServer, metrics: Metrics
) -> None:
    ring.ring([new_job_id()])
    own_valkey.stop()
    for _ in range(50):
        ring.ring([new_job_id()])

    assert value(metrics.rings_published) == 1
    assert value(metrics.rings_failed) == 50


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://h:1/2", "redis://h:1/2"),
        ("redis+socket:///tmp/v.sock", "unix:///tmp/v.sock"),
        ("redis+socket:///tmp/v.sock?virtual_host=3", "unix:///tmp/v.sock?db=3"),
        ("redis+socket://:pw@/tmp/v.sock", "unix://:pw@/tmp/v.sock"),
    ],
)
def test_urls_are_kombus(url: str, expected: str) -> None:
    assert redis_py_url(url) == expected


def test_a_listener_that_rests_hears_of_the_rings_of_its_rest_afterwards(own_valkey: ValkeyServer) -> None:
    resting = RedisRing(own_valkey.url, metrics=Metrics(), rest_s=0.05)
    try:
        heard = listen(resting)
        rung = [[new_job_id()] for _ in range(5)]
        for ids in rung:
            resting.ring(ids)

        assert [heard.get(timeout=WAIT_S) for _ in rung] == rung
    finally:
        resting.close()


def test_a_rest_does_not_hold_up_the_end(own_valkey: ValkeyServer) -> None:
    resting = RedisRing(own_valkey.url, metrics=Metrics(), rest_s=3600.0)
    heard = listen(resting)
    resting.ring([new_job_id()])
    heard.get(timeout=WAIT_S)

    resting.close()

    assert not resting.subscribed.is_set()

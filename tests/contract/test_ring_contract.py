"""The contract of `Ring`, held by the Redis adapter and by the in-memory double."""

import queue
from collections.abc import Callable, Iterator

import pytest

from batchfleet.broker.memory import MemoryHub, MemoryRing
from batchfleet.broker.redis_ring import RedisRing
from batchfleet.jobs.job import JobId, new_job_id
from batchfleet.telemetry import Metrics
from tests.support.servers import ValkeyServer

AnyRing = MemoryRing | RedisRing
MakeRing = Callable[[], AnyRing]
WAIT_S = 30.0


@pytest.fixture(params=["memory", "valkey", "valkey-socket"])
def make(request: pytest.FixtureRequest) -> Iterator[MakeRing]:
    made: list[AnyRing] = []
    hub = MemoryHub()
    metrics = Metrics()

    def build() -> AnyRing:
        if request.param == "memory":
            made.append(MemoryRing(hub))
        else:
            server: ValkeyServer = request.getfixturevalue("valkey")
            url = server.socket_url if request.param == "valkey-socket" else server.url
            made.append(RedisRing(url, metrics=metrics))
        return made[-1]

    yield build
    for ring in made:
        ring.close()


def listening(ring: AnyRing) -> "queue.SimpleQueue[list[JobId]]":
    heard: queue.SimpleQueue[list[JobId]] = queue.SimpleQueue()
    ring.listen(lambda ids: heard.put(list(ids)))
    assert ring.subscribed.wait(WAIT_S)
    return heard


def test_every_listener_hears_every_ring(make: MakeRing) -> None:
    heard = [listening(make()), listening(make())]
    bell, ids = make(), [new_job_id() for _ in range(40)]

    bell.ring(ids[:1])
    bell.ring(ids[1:])

    assert [[each.get(timeout=WAIT_S), each.get(timeout=WAIT_S)] for each in heard] == [[ids[:1], ids[1:]]] * 2


def test_a_listener_may_ring_itself(make: MakeRing) -> None:
    ring = make()
    heard, job = listening(ring), new_job_id()

    ring.ring([job])

    assert heard.get(timeout=WAIT_S) == [job]


def test_ringing_for_nobody_is_no_error(make: MakeRing) -> None:
    make().ring([new_job_id()])
    make().ring([])


def test_close_ends_the_listening_and_can_be_repeated(make: MakeRing) -> None:
    ring = make()
    listening(ring)
    ring.close()
    ring.close()


def test_a_ring_that_never_listened_can_be_closed(make: MakeRing) -> None:
    make().close()

"""Which URL gives which adapter."""

import subprocess
import sys

import pytest

from batchfleet.broker.connect import connect_broker, connect_ring, has_broker
from batchfleet.broker.hint import Flow, Hint
from batchfleet.broker.kombu_broker import KombuBroker
from batchfleet.broker.none import NoBroker, NullRing
from batchfleet.broker.redis_ring import RedisRing
from batchfleet.jobs.job import Lane, new_job_id
from batchfleet.telemetry import Metrics

FLOW = Flow("m", Lane.BULK)


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "redis+socket:///nowhere/v.sock", "rediss://h/0"])
def test_redis_urls_connect_at_their_first_call_only(url: str) -> None:
    broker, ring = connect_broker(url, metrics=Metrics()), connect_ring(url, metrics=Metrics())

    assert isinstance(broker, KombuBroker)
    assert isinstance(ring, RedisRing)
    broker.close()
    ring.close()


@pytest.mark.parametrize("url", ["amqp://u:secret@h//", "memory://", "", "redis"])
def test_unknown_brokers_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="unknown broker") as caught:
        connect_broker(url, metrics=Metrics())
    with pytest.raises(ValueError, match="unknown broker"):
        connect_ring(url, metrics=Metrics())
    assert "secret" not in str(caught.value)


def test_no_broker_pauses_and_forgets() -> None:
    broker, ring = connect_broker("none", metrics=Metrics()), connect_ring("none", metrics=Metrics())

    assert isinstance(broker, NoBroker)
    assert isinstance(ring, NullRing)
    assert not has_broker("none")
    broker.publish([Hint(FLOW.model, FLOW.lane, (new_job_id(),))])
    assert broker.depth(FLOW) == 0
    assert broker.pull([FLOW], 1, 0) == []
    assert broker.pull([FLOW], 1, 0.001) == []
    broker.interrupt()
    assert broker.pull([FLOW], 1, 60) == []
    ring.listen(lambda _ids: None)
    ring.ring([new_job_id()])
    broker.close()
    ring.close()


def test_a_process_without_a_broker_loads_no_client_library() -> None:
    code = (
        "import sys; from batchfleet.broker.connect import connect_broker; "
        "from batchfleet.telemetry import Metrics; connect_broker('none', metrics=Metrics()); "
        "sys.exit(bool({'kombu', 'redis'} & set(sys.modules)))"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

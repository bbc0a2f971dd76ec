"""The contract of `HintBroker`, held by every adapter and by the in-memory double."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from batchfleet.broker.connect import connect_broker
from batchfleet.broker.hint import Flow, Hint
from batchfleet.broker.memory import MemoryBroker, MemoryHub
from batchfleet.broker.port import HintBroker
from batchfleet.jobs.job import Lane, new_job_id
from batchfleet.telemetry import Metrics
from tests.support.servers import ValkeyServer

MakeBroker = Callable[[], HintBroker]

ONLINE = Flow("minilm", Lane.ONLINE)
BULK = Flow("minilm", Lane.BULK)
OTHER = Flow("other", Lane.STANDARD)
LONG_S = 60.0
"""A wait that a test never sits out: something must end it."""


def hint(flow: Flow = BULK, jobs: int = 2) -> Hint:
    return Hint(flow.model, flow.lane, tuple(new_job_id() for _ in range(jobs)))


@pytest.fixture(params=["memory", "valkey", "valkey-socket"])
def make(request: pytest.FixtureRequest) -> Iterator[MakeBroker]:
    made: list[HintBroker] = []
    hub = MemoryHub()
    metrics = Metrics()

    def build() -> HintBroker:
        if request.param == "memory":
            made.append(MemoryBroker(hub))
        else:
            server: ValkeyServer = request.getfixturevalue("valkey")
            url = server.socket_url if request.param == "valkey-socket" else server.url
            made.append(connect_broker(url, metrics=metrics))
        return made[-1]

    yield build
    for broker in made:
        broker.close()


def test_hints_arrive_as_they_were_sent_and_in_order(make: MakeBroker) -> None:
    sent = [hint(jobs=count) for count in (1, 2, 32)]
    make().publish(sent)

    assert make().pull([BULK], 10, 0) == sent


def test_hints_are_taken_once(make: MakeBroker) -> None:
    first, second = make(), make()
    sent = [hint() for _ in range(20)]
    first.publish(sent)

    taken = second.pull([BULK], 12, 0) + first.pull([BULK], 12, 0)

    assert taken == sent
    assert second.pull([BULK], 12, 0) == []


def test_the_first_flows_are_emptied_first_and_no_more_is_taken_than_asked(make: MakeBroker) -> None:
    broker = make()
    online, bulk, other = [hint(ONLINE)], [hint(BULK) for _ in range(3)], [hint(OTHER)]
    broker.publish([*bulk, *other, *online])

    assert broker.pull([ONLINE, OTHER, BULK], 4, 0) == [*online, *other, *bulk[:2]]
    assert [broker.depth(flow) for flow in (ONLINE, OTHER, BULK)] == [0, 0, 1]


def test_flows_that_were_not_asked_for_stay(make: MakeBroker) -> None:
    broker = make()
    broker.publish([hint(OTHER)])

    assert broker.pull([ONLINE, BULK], 4, 0) == []
    assert broker.depth(OTHER) == 1


def test_an_empty_broker_answers_at_once_when_not_to_wait(make: MakeBroker) -> None:
    assert make().pull([ONLINE, BULK], 4, 0) == []


def test_a_short_wait_ends_by_itself(make: MakeBroker) -> None:
    assert make().pull([ONLINE, BULK], 4, 0.02) == []


def test_a_waiting_pull_gets_what_is_published(make: MakeBroker) -> None:
    reader, writer, sent = make(), make(), hint(ONLINE)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(reader.pull, [BULK, ONLINE], 4, LONG_S)
        writer.publish([sent])

        assert waiting.result() == [sent]


def test_an_interrupt_ends_a_wait(make: MakeBroker) -> None:
    broker = make()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(broker.pull, [BULK], 4, LONG_S)
        broker.interrupt()

        assert waiting.result() == []


def test_an_interrupt_before_the_wait_is_not_lost(make: MakeBroker) -> None:
    broker = make()
    broker.interrupt()
    broker.interrupt()

    assert broker.pull([BULK], 4, LONG_S) == []


def test_an_interrupt_ends_a_wait_for_nothing(make: MakeBroker) -> None:
    broker = make()
    broker.interrupt()

    assert broker.pull([], 4, LONG_S) == []


def test_an_interrupt_takes_no_hint_away(make: MakeBroker) -> None:
    """Whatever an interrupted pull had in its hands is returned by it, or still there for the next one."""
    reader, writer = make(), make()
    sent = [hint(ONLINE) for _ in range(50)]
    taken: list[Hint] = []

    def read() -> None:
        while len(taken) < len(sent):
            taken.extend(reader.pull([ONLINE], 4, LONG_S))

    thread = threading.Thread(target=read)
    thread.start()
    for each in sent:
        reader.interrupt()
        writer.publish([each])
        reader.interrupt()
    thread.join()

    assert taken == sent


def test_depth_counts_hints(make: MakeBroker) -> None:
    broker = make()
    broker.publish([hint(BULK) for _ in range(3)])

    assert broker.depth(BULK) == 3
    assert broker.depth(ONLINE) == 0


def test_publishing_nothing_is_nothing(make: MakeBroker) -> None:
    make().publish([])


def test_many_hints_in_one_call(make: MakeBroker) -> None:
    broker = make()
    sent = [hint(jobs=1) for _ in range(1300)]
    broker.publish(sent)

    assert broker.pull([BULK], 2000, 0) == sent


def test_close_can_be_repeated(make: MakeBroker) -> None:
    broker = make()
    broker.publish([hint()])
    broker.close()
    broker.close()


def test_closing_is_safe_while_others_interrupt(make: MakeBroker) -> None:
    broker = make()
    broker.close()
    broker.interrupt()

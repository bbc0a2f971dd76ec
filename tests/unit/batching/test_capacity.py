"""Device-seconds of a backlog, from what work has cost."""

from dataclasses import dataclass

from batchfleet.batching.capacity import WorkRate, backlog_seconds
from batchfleet.jobs.job import LANES, Lane

RATE = WorkRate(items=100, input_bytes=20_000, seconds=4.0)


@dataclass(frozen=True)
class Queue:
    model: str
    lane: str
    items: int
    input_bytes: int


def test_long_inputs_count_by_their_bytes_and_unread_ones_by_their_number() -> None:
    assert RATE.seconds_for(items=10, input_bytes=20_000) == 4.0
    assert RATE.seconds_for(items=10, input_bytes=0) == 0.4
    assert WorkRate(100, 0, 4.0).seconds_for(items=10, input_bytes=20_000) == 0.4


def test_lanes_of_a_known_model_add_up_and_idle_ones_are_zero() -> None:
    waiting = [Queue("m", Lane.BULK, 50, 10_000), Queue("m", Lane.BULK, 25, 0), Queue("unknown", Lane.BULK, 9, 9)]

    seconds = backlog_seconds(waiting, {"m": RATE}, LANES)

    assert seconds == {("m", "online"): 0.0, ("m", "standard"): 0.0, ("m", "bulk"): 3.0}

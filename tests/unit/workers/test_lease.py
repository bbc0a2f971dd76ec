"""The fence: what a worker may do depends on when its last good heartbeat was sent."""

from batchfleet.clock import ManualClock
from batchfleet.jobs.job import WorkerState
from workers.lease import Fence, SharedLease


def test_past_half_a_ttl_without_a_heartbeat_no_work_starts() -> None:
    shared, clock = SharedLease(), ManualClock(100.0)
    fence = Fence(shared, ttl_s=15.0, clock=clock)

    assert not fence()  # no heartbeat yet
    shared.beat(100.0)
    assert fence()
    clock.advance(7.4)
    assert fence()
    clock.advance(0.2)
    assert not fence()
    shared.beat(clock())
    assert fence()


def test_a_lost_lease_is_never_fresh_again() -> None:
    shared, clock = SharedLease(), ManualClock(100.0)
    shared.beat(100.0)
    shared.lose()

    assert not Fence(shared, 15.0, clock)()
    assert shared.lost


def test_both_sides_see_state_and_retirement() -> None:
    shared = SharedLease()
    seen = [(shared.state, shared.retired)]
    for state in WorkerState:
        shared.state = state
        seen.append((shared.state, shared.retired))
    shared.beat(1.0)
    shared.retire()
    seen.append((shared.state, shared.retired))

    assert seen == [
        (WorkerState.STARTING, False),
        (WorkerState.STARTING, False),
        (WorkerState.READY, False),
        (WorkerState.DRAINING, False),
        (WorkerState.DRAINING, True),
    ]

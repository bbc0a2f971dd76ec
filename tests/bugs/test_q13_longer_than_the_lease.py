"""Q13: a job that runs for longer than the lease runs once while its worker lives, and again soon after it died.

Visibility timeouts ran such jobs twice, or an hour late. [celery#5935, river#682, arq#402]
"""

from pathlib import Path

from batchfleet.clock import ManualClock
from batchfleet.jobs.job import WorkerLease, WorkerState, new_job_id
from batchfleet.jobs.memory import MemoryStore
from batchfleet.jobs.states import JobState
from tests.support.pipeline import WAIT_S, Gate, Pipeline
from tests.support.sessions import StubSession

TTL_S = 15.0
SWEEP_S = 1.0


def test_it_runs_once_under_a_live_heartbeat_and_a_second_time_within_ttl_and_sweep(tmp_path: Path) -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    gate = Gate(lambda values: 1.0 in values)
    session = StubSession(gate)
    worker = Pipeline(tmp_path, session, store=store).start()
    (job,) = worker.submit([1.0], run_timeout_s=3_600.0)
    assert gate.entered.wait(WAIT_S)

    for _ in range(int(3 * TTL_S / (TTL_S / 3))):  # three leases long, under a heartbeat
        clock.advance(TTL_S / 3)
        assert store.heartbeat(worker.boot, WorkerState.READY)
        assert store.rescue(TTL_S, 100).requeued == ()
    assert (worker.records([job])[0].state, worker.records([job])[0].epoch) == (JobState.RUNNING, 1)

    clock.advance(TTL_S + SWEEP_S)  # kill -9: no heartbeat comes any more
    assert store.rescue(TTL_S, 100).requeued == (job,)
    gate.open.set()
    worker.close()

    assert worker.records([job])[0].state is JobState.QUEUED, "what the old run gives now is stale"
    assert session.item_runs == [[1.0]]
    other = new_job_id()
    store.register(WorkerLease(boot=other, name="other", pid=2, state=WorkerState.READY))
    (claimed,) = store.claim(other, [job])
    assert (claimed.id, claimed.crashes) == (job, 1)

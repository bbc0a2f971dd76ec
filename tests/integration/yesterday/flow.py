"""What a process of the version before does with a database: submit, claim, settle, rescue, cancel, expire, look up.

Run by `test_yesterday.py` with that version's archive as its only `batchfleet`. It may use what that version has.
"""

import sys

import batchfleet
from batchfleet.jobs.job import (
    HandBack,
    JobError,
    JobFilter,
    Lane,
    NewJob,
    Settlement,
    WorkerLease,
    WorkerState,
    new_job_id,
)
from batchfleet.jobs.sql.store import SqlStore
from batchfleet.jobs.states import JobState

LONG_S = 1e-6


def job(**changes: object) -> NewJob:
    """Returns a small job."""
    fields = {"id": new_job_id(), "model": "tiny", "version": "1", "inputs": b'["text"]', "item_count": 1}
    return NewJob(**(fields | changes))  # type: ignore[arg-type]


def boot_of(store: SqlStore) -> str:
    """Registers a worker."""
    boot = new_job_id()
    store.register(WorkerLease(boot=boot, name="old", pid=1, state=WorkerState.READY, models=()))
    return boot


def run(url: str) -> None:
    """Goes through every write that a service does."""
    store = SqlStore(url)
    boot = boot_of(store)

    new = [job(idempotency_key="k", fingerprint="f"), job(lane=Lane.BULK), job(), job(ttl_s=3600.0), job(), job()]
    assert [answer.created for answer in store.submit(new)] == [True] * 6
    again = job(idempotency_key="k", fingerprint="f")
    assert store.submit([again])[0].id == new[0].id

    claimed = {found.id: found for found in store.claim(boot, [entry.id for entry in new[:4]])}
    assert len(claimed) == 4
    good, bad, later, back = (claimed[entry.id] for entry in new[:4])
    rows = [
        Settlement(id=good.id, epoch=good.epoch, state=JobState.SUCCEEDED, format="{}", length=4),
        Settlement(id=bad.id, epoch=bad.epoch, state=JobState.FAILED, error=JobError("bad_input", "no")),
        Settlement(
            id=later.id, epoch=later.epoch, state=JobState.QUEUED, error=JobError("flaky", "again"), retry_in_s=60.0
        ),
    ]
    assert len(store.settle(boot, rows, b"data").applied) == 3
    assert store.hand_back(boot, [HandBack(back.id, back.epoch)]) == [back.id]

    (orphan,) = store.claim(boot, [new[4].id])
    assert store.heartbeat(boot, WorkerState.READY)
    store.due(LONG_S)
    assert orphan.id in store.rescue(LONG_S, 10).requeued
    assert store.cancel([new[5].id]) == [(new[5].id, JobState.CANCELLED, True)]
    store.announceable(10)
    store.expire(10)

    second = boot_of(store)
    ready = store.claim_ready(second, [], 10)
    assert {found.id for found in ready} == {back.id, orphan.id}
    assert set(store.bury(second, [ready[0].id]).requeued) == {back.id, orphan.id}

    (record,) = store.look_up([good.id], with_results=True)
    assert record.result is not None
    assert record.result.data == b"data"
    assert len(store.list_jobs(JobFilter())) == 6
    assert store.queue_depths()
    store.workers()
    store.close()


if __name__ == "__main__":
    assert ".zip" in batchfleet.__file__, batchfleet.__file__
    run(sys.argv[1])

"""B11 and Q16: one job that makes its worker's process die, in a batch with seven good ones.

Workers were respawned for ever with the same job, or took its neighbours down with it.
[pytorch/serve#2357, #3034, celery#9082] What a supervisor and its worker make of it is in
`tests/acceptance/test_worker_process.py`.
"""

from pathlib import Path

import pytest

from batchfleet.jobs.job import JobErrorCode, JobRecord
from batchfleet.jobs.sql.store import SqlStore
from batchfleet.jobs.states import JobState
from migrations import upgrade
from tests.support.boots import POISON, Behave, exits, hoards, new_jobs, run_boot

GOOD = [[float(n)] for n in range(1, 8)]
ENOUGH = 6


@pytest.mark.parametrize("behave", [exits, hoards], ids=["b11: it exits", "q16: it takes all memory"])
def test_poison_ends_at_its_second_crash_and_the_good_finish(tmp_path: Path, behave: Behave) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    upgrade(url)
    store = SqlStore(url)
    jobs = new_jobs([*GOOD[:4], [POISON], *GOOD[4:]])
    store.submit(jobs)
    ids = [job.id for job in jobs]

    codes: list[int] = []
    while not codes or codes[-1] != 0:
        assert len(codes) < ENOUGH, "a hot loop"
        codes.append(run_boot(tmp_path, url, behave, ids))

    found = {record.id: record for record in store.look_up(ids)}
    records: list[JobRecord] = [found[job_id] for job_id in ids]
    store.close()
    poison = records.pop(4)
    assert codes[:-1] == [codes[0]] * 2, "two crashes, and no third"
    assert poison.state is JobState.FAILED
    assert poison.error is not None
    assert (poison.error.code, poison.crashes) == (JobErrorCode.WORKER_CRASHED, 2)
    assert [record.state for record in records] == [JobState.SUCCEEDED] * 7
    assert all(record.crashes <= 1 for record in records)

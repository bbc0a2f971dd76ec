"""Nothing is lost and nothing doubled when the parts of a fleet are killed under load."""

import sqlite3
from collections.abc import Iterator

import pytest
import redis

from tests.support.models import tiny_text
from tests.support.upstack import UpStack, eventually, running_up

JOBS = 2_000
FEWER_JOBS = 700
"""Where only the broker is lost: enough for it to be lost in the middle."""

WITHIN_S = 30.0
TOKENS = (20, 40, 60, 80, 120)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpStack]:
    with running_up(tmp_path_factory.mktemp("fleet"), workers=2, slow=True) as running:
        yield running


def submit_many(stack: UpStack, name: str, count: int = JOBS) -> list[str]:
    return stack.submit(
        [
            {"model": "tiny", "inputs": [tiny_text(TOKENS[n % len(TOKENS)], n)], "idempotency_key": f"{name}-{n}"}
            for n in range(count)
        ]
    )


def wait_for_first_results(stack: UpStack, ids: list[str], number: int) -> None:
    eventually(lambda: stack.states(ids).get("succeeded", 0) >= number or None, f"{number} jobs are done")


def check_one_result_each(stack: UpStack, ids: list[str]) -> None:
    """The database itself is asked: one result a job, and none for anything else."""
    database = sqlite3.connect(f"file:{stack.data_dir / 'batchfleet.db'}?mode=ro", uri=True)
    with database:
        stored = database.execute("SELECT id FROM job_results WHERE data IS NOT NULL").fetchall()
        jobs = database.execute("SELECT id FROM jobs").fetchall()
    database.close()
    wanted = sorted(text.removeprefix("job_") for text in ids)
    assert sorted(row[0] for row in stored if row[0] in set(wanted)) == wanted
    assert sorted(row[0] for row in jobs if row[0] in set(wanted)) == wanted
    assert len(stored) == len(jobs)


@pytest.mark.timeout(240)
def test_worker_api_and_scheduler_are_killed_in_turn(stack: UpStack) -> None:
    """All 2,000 jobs succeed with exactly one result, within 30 s of the last kill."""
    ids = submit_many(stack, "killed")
    wait_for_first_results(stack, ids, 50)
    for done, name in ((100, "worker-0"), (200, "api"), (300, "scheduler")):
        wait_for_first_results(stack, ids, done)
        stack.kill(name)
    still_open = stack.states(ids)
    assert still_open.get("queued", 0) + still_open.get("running", 0) > 0, "too fast to be killed in"

    assert stack.finish(ids, WITHIN_S) == {"succeeded": JOBS}

    check_one_result_each(stack, ids)
    # The same keys give the same jobs: nothing of the submission was lost with the API either.
    assert submit_many(stack, "killed") == ids


@pytest.mark.timeout(240)
def test_a_flushed_broker_loses_nothing(stack: UpStack) -> None:
    ids = submit_many(stack, "flushed", FEWER_JOBS)
    broker = redis.Redis(unix_socket_path=str(stack.data_dir / "valkey" / "valkey.sock"))
    for done in (50, 200, 400):
        wait_for_first_results(stack, ids, done)
        broker.flushall()
    broker.close()

    assert stack.finish(ids, WITHIN_S) == {"succeeded": FEWER_JOBS}

    check_one_result_each(stack, ids)


@pytest.mark.timeout(240)
def test_the_broker_itself_is_killed(stack: UpStack) -> None:
    """Q15: the doorbell is gone for a moment; jobs go on, by the database at first."""
    ids = submit_many(stack, "doorbell", FEWER_JOBS)
    wait_for_first_results(stack, ids, 50)
    stack.kill("valkey")

    assert stack.finish(ids, WITHIN_S) == {"succeeded": FEWER_JOBS}

    check_one_result_each(stack, ids)

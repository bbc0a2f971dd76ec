"""The writer: one transaction for many requests, halved for a bad member, silent about what it did not insert."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from api.submitter import MAX_JOBS_PER_TRANSACTION, Submitter
from batchfleet.errors import StoreUnavailableError
from batchfleet.jobs.job import Announcement, NewJob, Submitted, new_job_id
from migrations.run import upgrade
from tests.support.apiserver import FaultyStore


@pytest.fixture
def store(tmp_path: Path) -> Any:
    url = f"sqlite:///{tmp_path}/db"
    upgrade(url)
    store = FaultyStore(url)
    yield store
    store.close()


def job(text: str = "a", **fields: Any) -> NewJob:
    return NewJob(id=new_job_id(), model="tiny", version="1", inputs=f'["{text}"]'.encode(), item_count=1, **fields)


def submit(store: FaultyStore, *requests: Sequence[NewJob]) -> tuple[list[Any], list[Announcement]]:
    """Submits all requests in one round of the loop and returns outcomes and announcements."""
    announced: list[Announcement] = []

    async def scenario() -> list[Any]:
        submitter = Submitter(store, announced.extend)
        submitter.start()
        try:
            return await asyncio.gather(*(submitter.submit(each) for each in requests), return_exceptions=True)
        finally:
            await submitter.close()

    return asyncio.run(scenario()), announced


def test_requests_of_one_moment_share_a_transaction(store: FaultyStore) -> None:
    requests = [[job()], [job(), job()], [job()]]
    outcomes, announced = submit(store, *requests)

    assert store.transactions == [4]
    assert [[one.id for one in outcome] for outcome in outcomes] == [[one.id for one in each] for each in requests]
    assert {one.id for one in announced} == {one.id for each in requests for one in each}


def test_a_bad_member_is_found_by_halving(store: FaultyStore) -> None:
    store.chokes_on = lambda job: b"poison" in job.inputs
    requests = [[job("poison" if number == 5 else "good")] for number in range(8)]
    outcomes, announced = submit(store, *requests)

    created = [isinstance(outcome[0], Submitted) for outcome in outcomes]
    assert created == [number != 5 for number in range(8)]
    assert isinstance(outcomes[5][0], ValueError)
    assert store.transactions == [8, 4, 4, 2, 1, 1, 2]
    assert len(announced) == 7


def test_an_outage_is_not_halved(store: FaultyStore) -> None:
    store.down = True
    outcomes, announced = submit(store, [job()], [job(), job()])

    assert all(isinstance(outcome, StoreUnavailableError) for outcome in outcomes)
    assert announced == []


def test_only_new_jobs_that_are_due_are_announced(store: FaultyStore) -> None:
    first = job(idempotency_key="k", fingerprint="f")
    repeated = job(idempotency_key="k", fingerprint="f")
    conflicting = job(idempotency_key="k", fingerprint="g")
    later = job(announced_by_submitter=False)
    outcomes, announced = submit(store, [first, repeated, conflicting, later])

    assert [(one.created, one.conflict) for one in outcomes[0]] == [
        (True, False), (False, False), (False, True), (True, False)
    ]  # fmt: skip
    assert [one.id for one in announced] == [first.id]
    assert announced[0].input_bytes == len(first.inputs)


def test_a_large_request_leaves_room_between_its_slices(store: FaultyStore) -> None:
    large = [job() for _ in range(2 * MAX_JOBS_PER_TRANSACTION + 1)]
    outcomes, _ = submit(store, large, [job()])

    # The small request goes with or after the first slice, never behind the whole.
    assert max(store.transactions) <= MAX_JOBS_PER_TRANSACTION
    assert store.transactions[1] in {1, MAX_JOBS_PER_TRANSACTION}
    assert len(outcomes[0]) == len(large)
    assert len(outcomes[1]) == 1


def test_cancelling_goes_through_the_same_thread(store: FaultyStore) -> None:
    async def scenario() -> None:
        submitter = Submitter(store, lambda _: None)
        submitter.start()
        (submitted,) = await submitter.submit([job()])
        assert isinstance(submitted, Submitted)

        assert await submitter.cancel(submitted.id, tenant="default") == (submitted.id, "cancelled", True)
        assert await submitter.cancel(submitted.id, tenant="default") == (submitted.id, "cancelled", False)
        assert await submitter.cancel(submitted.id, tenant="somebody else") is None
        assert await submitter.cancel(new_job_id(), tenant="default") is None
        store.down = True
        with pytest.raises(StoreUnavailableError):
            await submitter.cancel(submitted.id, tenant="default")
        await submitter.close()

    asyncio.run(scenario())

"""The reader: look-ups of one moment are one statement, and each caller sees only what is his."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from api.lookups import Lookups
from batchfleet.errors import JobNotFoundError, StoreUnavailableError
from batchfleet.jobs.job import JobRecord
from batchfleet.jobs.states import JobState
from tests.support.apiserver import job_record as record


class CountingStore:
    """Holds a few records, and every look-up made."""

    def __init__(self, *records: JobRecord) -> None:
        self.records = {one.id: one for one in records}
        self.asked: list[tuple[list[str], bool]] = []
        self.broken_for_results = False

    def look_up(self, ids: Sequence[str], *, tenant: str | None = None, with_results: bool = False) -> list[JobRecord]:
        self.asked.append((list(ids), with_results))
        if with_results and self.broken_for_results:
            raise StoreUnavailableError("away")
        return [self.records[one] for one in ids if one in self.records]


def run(store: Any, *questions: Any) -> list[Any]:
    async def scenario() -> list[Any]:
        lookups = Lookups(store)
        lookups.start()
        try:
            return await asyncio.gather(*(ask(lookups) for ask in questions), return_exceptions=True)
        finally:
            await lookups.close()

    return asyncio.run(scenario())


def test_look_ups_of_one_moment_are_one_statement() -> None:
    store = CountingStore(record("a"), record("b"))
    answers = run(
        store,
        lambda it: it.one("a", tenant="default"),
        lambda it: it.many(["b", "a", "c"], tenant="default"),
        lambda it: it.ended(["a"]),
    )

    assert store.asked == [(["a", "b", "c"], False)]
    assert answers[0].id == "a"
    assert set(answers[1]) == {"a", "b"}


def test_those_with_results_are_apart_and_fail_apart() -> None:
    store = CountingStore(record("a"))
    store.broken_for_results = True
    answers = run(
        store,
        lambda it: it.one("a", tenant="default"),
        lambda it: it.one("a", tenant="default", with_result=True),
    )

    assert answers[0].id == "a"
    assert isinstance(answers[1], StoreUnavailableError)


def test_another_tenants_job_does_not_exist() -> None:
    store = CountingStore(record("a", tenant="other"))
    answers = run(store, lambda it: it.one("a", tenant="default"), lambda it: it.many(["a"], tenant="default"))

    assert isinstance(answers[0], JobNotFoundError)
    assert answers[1] == {}


def test_what_has_ended_or_is_not_there_is_told() -> None:
    store = CountingStore(record("a"), record("b", state=JobState.FAILED))

    assert run(store, lambda it: it.ended(["a", "b", "c"])) == [["b", "c"]]


def test_many_ids_are_asked_in_slices() -> None:
    store = CountingStore()
    run(store, lambda it: it.ended([str(number) for number in range(2_500)]))

    assert [len(ids) for ids, _ in store.asked] == [1000, 1000, 500]


def test_other_reads_run_on_the_same_thread() -> None:
    def fails() -> None:
        raise KeyError("k")

    answers = run(CountingStore(), lambda it: it.call(lambda: 5), lambda it: it.call(fails))

    assert answers[0] == 5
    with pytest.raises(KeyError):
        raise answers[1]

"""What is known of keys: how long it is trusted, what an outage means, and that a flood stays outside."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from api.known import AGAIN_S, MAX_KNOWN, MAX_UNKNOWN, OUTAGE_S, KnownRows
from batchfleet.clock import ManualClock
from batchfleet.errors import OverloadedError, StoreUnavailableError

FRESH_S = 10.0


class Table:
    """Rows by name, a count of reads, and an outage to switch on."""

    def __init__(self, **rows: str) -> None:
        self.rows = rows
        self.reads: list[str] = []
        self.away: Exception | None = None

    async def read(self, name: str) -> str | None:
        self.reads.append(name)
        await asyncio.sleep(0)
        if self.away is not None:
            raise self.away
        return self.rows.get(name)


def _run(scenario: Callable[[Table, KnownRows[str], ManualClock], Any]) -> None:
    async def run() -> None:
        table, clock = Table(a="row"), ManualClock()
        await scenario(table, KnownRows(table.read, fresh_s=FRESH_S, clock=clock), clock)

    asyncio.run(run())


async def _settled() -> None:
    """Returns when the reads under way are through."""
    while pending := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(pending)


def test_a_row_is_read_once_for_all_who_ask_and_for_a_while() -> None:
    async def scenario(table: Table, known: KnownRows[str], clock: ManualClock) -> None:
        assert await asyncio.gather(*(known.get("a") for _ in range(5))) == ["row"] * 5
        clock.advance(FRESH_S / 2 - 0.1)
        assert await known.get("a") == "row"
        assert table.reads == ["a"]

    _run(scenario)


def test_it_is_read_again_beside_the_requests_before_it_is_too_old() -> None:
    async def scenario(table: Table, known: KnownRows[str], clock: ManualClock) -> None:
        await known.get("a")
        table.rows["a"] = "changed"
        clock.advance(FRESH_S / 2 + 0.1)

        assert await known.get("a") == "row"
        await _settled()
        assert await known.get("a") == "changed"
        assert table.reads == ["a", "a"]

    _run(scenario)


def test_what_is_too_old_is_not_trusted() -> None:
    async def scenario(table: Table, known: KnownRows[str], clock: ManualClock) -> None:
        await known.get("a")
        table.rows["a"] = "revoked"
        clock.advance(FRESH_S)

        assert await known.get("a") == "revoked"

    _run(scenario)


def test_a_name_that_is_not_there_is_remembered_too_but_not_for_longer() -> None:
    async def scenario(table: Table, known: KnownRows[str], clock: ManualClock) -> None:
        assert [await known.get("b"), await known.get("b")] == [None, None]
        assert table.reads == ["b"]
        table.rows["b"] = "new"
        clock.advance(FRESH_S)
        assert await known.get("b") == "new"

    _run(scenario)


def test_a_flood_of_made_up_names_is_bounded_and_drives_out_no_row() -> None:
    async def scenario(table: Table, known: KnownRows[str], clock: ManualClock) -> None:
        await known.get("a")
        for number in range(MAX_UNKNOWN + 50):
            assert await known.get(f"made-up-{number}") is None

        assert len(known._unknown) == MAX_UNKNOWN
        assert len(known._known) <= MAX_KNOWN
        table.reads.clear()
        assert await known.get("a") == "row"
        assert table.reads == []

    _run(scenario)


@pytest.mark.parametrize("error", [StoreUnavailableError("away"), OverloadedError("busy")])
def test_while_the_database_is_away_what_was_known_counts_for_a_bounded_time(error: Exception) -> None:
    async def scenario(table: Table, known: KnownRows[str], clock: ManualClock) -> None:
        await known.get("a")
        table.away = error
        clock.advance(FRESH_S)
        assert await known.get("a") == "row"
        with pytest.raises(type(error)):
            await known.get("b")

        clock.advance(OUTAGE_S)
        with pytest.raises(type(error)):
            await known.get("a")

    _run(scenario)


def test_an_outage_is_not_felt_by_each_request() -> None:
    async def scenario(table: Table, known: KnownRows[str], clock: ManualClock) -> None:
        await known.get("a")
        table.away = StoreUnavailableError("away")
        clock.advance(FRESH_S)
        table.reads.clear()

        for _ in range(100):
            assert await known.get("a") == "row"
        assert table.reads == ["a"]

        clock.advance(AGAIN_S)
        table.away, table.rows["a"] = None, "back"
        assert await known.get("a") == "back"

    _run(scenario)


def test_a_caller_that_goes_away_takes_the_answer_from_nobody() -> None:
    async def scenario(table: Table, known: KnownRows[str], clock: ManualClock) -> None:
        first, second = asyncio.ensure_future(known.get("a")), asyncio.ensure_future(known.get("a"))
        await asyncio.sleep(0)
        first.cancel()

        assert await second == "row"

    _run(scenario)

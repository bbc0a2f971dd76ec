"""Keys at the edge: trusted for a bounded time, compared in a time that tells nothing, noted when used."""

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from api.auth import ANYBODY, TOUCH_EVERY_S, Authenticator, Caller
from api.known import OUTAGE_S
from api.problems import UnauthenticatedError
from batchfleet.access.keys import ApiKey, Role, WrittenKey, new_key
from batchfleet.access.sql import SqlAccess
from batchfleet.clock import ManualClock
from batchfleet.errors import StoreUnavailableError
from tests.support.stores import sqlite_url

FRESH_S = 5.0


class CountingAccess(SqlAccess):
    """Real keys, with a count of statements and an outage to switch on."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.down = False
        self.asked: list[int] = []
        self.touched: list[list[str]] = []

    def find_keys(self, key_ids: Sequence[str]) -> list[ApiKey]:
        self.asked.append(len(key_ids))
        if self.down:
            raise StoreUnavailableError("away")
        return super().find_keys(key_ids)

    def touch_keys(self, key_ids: Sequence[str]) -> None:
        self.touched.append(list(key_ids))
        if self.down:
            raise StoreUnavailableError("away")
        super().touch_keys(key_ids)

    def make(self, **fields: Any) -> WrittenKey:
        written = new_key()
        self.create_key(written, **{"tenant": "acme", "name": "k", "roles": frozenset(Role), **fields})
        return written


class Door:
    """An authenticator, and requests to it."""

    def __init__(self, access: CountingAccess, *, required: bool = True) -> None:
        self.access = access
        self.clock = ManualClock()
        self.wall = ManualClock(time.time())
        self.auth = Authenticator(access, required=required, fresh_s=FRESH_S, clock=self.clock, wall=self.wall)

    async def ask(self, text: str | None, role: Role = Role.READ) -> Caller:
        headers = [] if text is None else [(b"authorization", f"Bearer {text}".encode())]
        return await self.auth.caller(SimpleNamespace(scope={"headers": headers}), role)  # type: ignore[arg-type]

    async def opens(self, text: str) -> bool:
        try:
            await self.ask(text)
        except UnauthenticatedError:
            return False
        return True


def _run(tmp_path: Path, scenario: Callable[[Door], Awaitable[None]], **options: Any) -> None:
    async def run() -> None:
        access = CountingAccess(sqlite_url(tmp_path))
        door = Door(access, **options)
        door.auth.start()
        try:
            await scenario(door)
        finally:
            await door.auth.close()
            access.close()

    asyncio.run(run())


def test_a_key_tells_tenant_roles_and_itself(tmp_path: Path) -> None:
    async def scenario(door: Door) -> None:
        key = door.access.make(roles=frozenset({Role.READ}))

        assert await door.ask(key.text) == Caller("acme", frozenset({Role.READ}), key.id)
        with pytest.raises(UnauthenticatedError):
            await door.ask(None)

    _run(tmp_path, scenario)


def test_where_no_key_is_required_nobody_asks_the_database(tmp_path: Path) -> None:
    async def scenario(door: Door) -> None:
        assert await door.ask(None, Role.ADMIN) is ANYBODY
        assert door.access.asked == []

    _run(tmp_path, scenario, required=False)


def test_a_revoked_key_works_on_for_the_cache_time_at_most(tmp_path: Path) -> None:
    async def scenario(door: Door) -> None:
        key = door.access.make()
        assert await door.opens(key.text)
        door.access.revoke_key(key.id)

        door.clock.advance(FRESH_S)
        assert not await door.opens(key.text)

    _run(tmp_path, scenario)


def test_a_key_expires_by_the_clock_and_not_by_the_cache(tmp_path: Path) -> None:
    async def scenario(door: Door) -> None:
        key = door.access.make(ttl_s=3600.0)
        assert await door.opens(key.text)

        door.wall.advance(3601.0)
        assert not await door.opens(key.text)
        assert door.access.asked == [1]

    _run(tmp_path, scenario)


def test_a_wrong_secret_of_a_known_key_costs_no_read(tmp_path: Path) -> None:
    async def scenario(door: Door) -> None:
        key = door.access.make()
        assert await door.opens(key.text)

        for _ in range(20):
            assert not await door.opens(WrittenKey(key.id, new_key().secret).text)
        assert door.access.asked == [1]

    _run(tmp_path, scenario)


def test_a_digest_is_compared_whether_there_is_a_key_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    def noted(one: str, other: str) -> bool:
        compared.append(len(other))
        return one == other

    async def scenario(door: Door) -> None:
        known = door.access.make()
        monkeypatch.setattr(hmac, "compare_digest", noted)
        await door.opens(known.text)
        await door.opens(new_key().text)

    _run(tmp_path, scenario)
    assert compared == [64, 64]


def test_a_flood_of_made_up_keys_is_a_few_statements(tmp_path: Path) -> None:
    async def scenario(door: Door) -> None:
        flood = [new_key().text for _ in range(3_000)]

        assert not any(await asyncio.gather(*(door.opens(text) for text in flood)))
        first = len(door.access.asked)
        assert sum(door.access.asked) == len(flood)
        assert first <= len(flood) / 100
        assert not any(await asyncio.gather(*(door.opens(text) for text in flood[-100:])))
        assert len(door.access.asked) == first

    _run(tmp_path, scenario)


def test_an_outage_lets_known_keys_work_for_a_bounded_time_and_others_wait(tmp_path: Path) -> None:
    async def scenario(door: Door) -> None:
        known, other = door.access.make(), door.access.make()
        assert await door.opens(known.text)
        door.access.down = True
        door.clock.advance(FRESH_S)

        assert await door.opens(known.text)
        with pytest.raises(StoreUnavailableError):
            await door.opens(other.text)
        door.clock.advance(OUTAGE_S)
        with pytest.raises(StoreUnavailableError):
            await door.opens(known.text)

    _run(tmp_path, scenario)


def test_the_use_of_a_key_is_noted_once_a_minute(tmp_path: Path) -> None:
    async def scenario(door: Door) -> None:
        key = door.access.make()
        for _ in range(50):
            assert await door.opens(key.text)
        door.clock.advance(TOUCH_EVERY_S)
        for _ in range(50):
            assert await door.opens(key.text)
        await door.auth.close()

        assert [key_id for ids in door.access.touched for key_id in ids] == [key.id, key.id]
        noted = door.access.find_key(key.id)
        assert noted is not None
        assert noted.last_used_at is not None

    _run(tmp_path, scenario)


def test_a_use_that_cannot_be_noted_fails_no_request(tmp_path: Path) -> None:
    async def scenario(door: Door) -> None:
        key = door.access.make()
        assert await door.opens(key.text)
        door.access.down = True
        door.clock.advance(TOUCH_EVERY_S)

        assert await door.opens(key.text)

    _run(tmp_path, scenario)

"""Groups form while one is worked on; each member gets its own outcome."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from api.coalesce import Coalescer
from batchfleet.errors import OverloadedError, UnavailableError

WAIT_S = 30.0


class Gated:
    """Work that holds its first group until told to go on."""

    def __init__(self) -> None:
        self.groups: list[list[Any]] = []
        self.entered = threading.Event()
        self.go = threading.Event()

    def __call__(self, group: list[Any]) -> list[Any]:
        self.groups.append(group)
        self.entered.set()
        assert self.go.wait(WAIT_S)
        return [item if isinstance(item, Exception) else f"{item}!" for item in group]


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, WAIT_S))


async def _settled(coalescer: Coalescer[Any, Any], *items: Any) -> list["asyncio.Task[Any]"]:
    tasks = [asyncio.ensure_future(coalescer.ask(item)) for item in items]
    await asyncio.sleep(0)  # each task runs up to its wait
    return tasks


def test_what_arrives_meanwhile_is_one_group() -> None:
    async def scenario() -> None:
        work = Gated()
        coalescer: Coalescer[Any, Any] = Coalescer("t", work)
        coalescer.start()
        first = await _settled(coalescer, 1)
        await asyncio.to_thread(work.entered.wait, WAIT_S)
        later = await _settled(coalescer, 2, 3, 4)
        work.go.set()

        assert await asyncio.gather(*first, *later) == ["1!", "2!", "3!", "4!"]
        assert work.groups == [[1], [2, 3, 4]]
        await coalescer.close()

    run(scenario())


def test_a_group_has_a_largest_weight_but_at_least_one_member() -> None:
    async def scenario() -> None:
        work = Gated()
        work.go.set()
        coalescer: Coalescer[Any, Any] = Coalescer("t", work, weigh=lambda item: item, max_group=10)
        coalescer.start()
        await asyncio.gather(*await _settled(coalescer, 99, 4, 6, 1))

        assert work.groups == [[99], [4, 6], [1]]
        await coalescer.close()

    run(scenario())


def test_an_exception_is_its_own_members() -> None:
    async def scenario() -> None:
        work = Gated()
        work.go.set()
        coalescer: Coalescer[Any, Any] = Coalescer("t", work)
        coalescer.start()
        good, bad = await asyncio.gather(*await _settled(coalescer, 1, KeyError("k")), return_exceptions=True)

        assert good == "1!"
        assert isinstance(bad, KeyError)
        await coalescer.close()

    run(scenario())


def test_what_the_work_raises_is_everybodys() -> None:
    def broken(_group: list[Any]) -> list[Any]:
        raise ValueError("broken")

    async def scenario() -> None:
        coalescer: Coalescer[Any, Any] = Coalescer("t", broken)
        coalescer.start()
        for outcome in await asyncio.gather(*await _settled(coalescer, 1, 2), return_exceptions=True):
            assert isinstance(outcome, ValueError)
        await coalescer.close()

    run(scenario())


def test_work_that_forgets_a_member_leaves_nobody_waiting() -> None:
    async def scenario() -> None:
        coalescer: Coalescer[Any, Any] = Coalescer("t", lambda group: group[1:])
        coalescer.start()
        for outcome in await asyncio.gather(*await _settled(coalescer, 1, 2), return_exceptions=True):
            assert isinstance(outcome, RuntimeError)
        await coalescer.close()

    run(scenario())


def test_too_much_waiting_is_refused_and_the_rest_goes_on() -> None:
    async def scenario() -> None:
        work = Gated()
        coalescer: Coalescer[Any, Any] = Coalescer("t", work, max_waiting=2)
        coalescer.start()
        first = await _settled(coalescer, 1)
        await asyncio.to_thread(work.entered.wait, WAIT_S)
        later = await _settled(coalescer, 2, 3)
        with pytest.raises(OverloadedError):
            await coalescer.ask(4)
        work.go.set()

        assert await asyncio.gather(*first, *later) == ["1!", "2!", "3!"]
        await coalescer.close()

    run(scenario())


def test_a_caller_that_goes_away_disturbs_nobody() -> None:
    async def scenario() -> None:
        work = Gated()
        coalescer: Coalescer[Any, Any] = Coalescer("t", work)
        coalescer.start()
        gone, stays = await _settled(coalescer, 1, 2)
        await asyncio.to_thread(work.entered.wait, WAIT_S)
        gone.cancel()
        work.go.set()

        assert await stays == "2!"
        await coalescer.close()

    run(scenario())


def test_closing_finishes_what_waits_and_takes_no_more() -> None:
    async def scenario() -> None:
        work = Gated()
        coalescer: Coalescer[Any, Any] = Coalescer("t", work)
        coalescer.start()
        first = await _settled(coalescer, 1)
        await asyncio.to_thread(work.entered.wait, WAIT_S)
        later = await _settled(coalescer, 2)
        closing = asyncio.ensure_future(coalescer.close())
        await asyncio.sleep(0)
        with pytest.raises(UnavailableError):
            await coalescer.ask(3)
        work.go.set()
        await closing

        assert await asyncio.gather(*first, *later) == ["1!", "2!"]
        await coalescer.close()  # idempotent

    run(scenario())


def test_before_its_start_it_is_unavailable() -> None:
    coalescer: Coalescer[Any, Any] = Coalescer("t", list)
    with pytest.raises(UnavailableError):
        asyncio.run(coalescer.ask(1))

"""A client that stops in the middle of its body is let go; time is the test's own."""

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from api.bodies import BODY_S, SILENCE_S, ClientGoneError, read_body
from api.problems import TABLE, BodyTimeoutError, handle
from batchfleet.clock import ManualClock


class _Selector(selectors.SelectSelector):
    """Waits no time: what the loop would sleep for is added to the clock instead."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> Any:
        if timeout:
            self._clock.advance(timeout)
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, clock: ManualClock) -> None:
        super().__init__(_Selector(clock))
        self.time = clock  # type: ignore[method-assign]
        self._clock_resolution = 1e-6


def _run(scenario: Callable[[], Awaitable[None]]) -> float:
    """Runs a scenario in no time; returns how long it would have taken."""
    clock = ManualClock(0.0)
    with asyncio.Runner(loop_factory=lambda: _Loop(clock)) as runner:
        runner.run(scenario())  # type: ignore[arg-type]  # coroutines, all of them
    return clock()


def _request(*pauses: float, more: bool = True) -> Any:
    """Returns a request whose chunks come after pauses; after the last one nothing comes if there is more."""
    left = list(pauses)

    async def receive() -> dict[str, Any]:
        if not left:
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(left.pop(0))
        return {"type": "http.request", "body": b"x", "more_body": more or bool(left)}

    return SimpleNamespace(receive=receive, headers={}, scope={})


def test_a_client_that_stalls_is_let_go_after_a_minute() -> None:
    async def scenario() -> None:
        with pytest.raises(BodyTimeoutError):
            await read_body(_request(0.0, 5.0), 100)

    assert _run(scenario) == pytest.approx(5.0 + SILENCE_S, abs=0.1)


def test_one_that_sends_nothing_at_all_is_too() -> None:
    async def scenario() -> None:
        with pytest.raises(BodyTimeoutError):
            await read_body(_request(), 100)

    assert _run(scenario) == pytest.approx(SILENCE_S, abs=0.1)


def test_a_slow_client_that_goes_on_is_waited_for() -> None:
    async def scenario() -> None:
        assert await read_body(_request(*[SILENCE_S - 1.0] * 8, more=False), 100) == b"x" * 8

    _run(scenario)


def test_a_byte_now_and_then_does_not_hold_a_connection_for_ever() -> None:
    async def scenario() -> None:
        with pytest.raises(BodyTimeoutError):
            await read_body(_request(*[SILENCE_S - 1.0] * 100), 1_000)

    assert _run(scenario) == pytest.approx(BODY_S, abs=0.1)


def test_a_client_that_hangs_up_is_not_answered_408() -> None:
    async def gone() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def scenario() -> None:
        with pytest.raises(ClientGoneError):
            await read_body(SimpleNamespace(receive=gone, headers={}), 100)  # type: ignore[arg-type]

    _run(scenario)


def test_the_connection_is_closed_with_the_answer() -> None:
    answer = handle(_request(), BodyTimeoutError("the rest did not come"))

    assert answer.status_code == TABLE["body_timeout"].status == 408
    assert answer.headers["Connection"] == "close"

"""Calls of a blob store that hangs: bounded in time, and in what they take from others."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from api.blobreads import SHARE, BlobReads
from api.turns import Circuit
from batchfleet.clock import ManualClock
from batchfleet.results.blobs import BlobsUnavailableError

WAIT_S = 20.0


@pytest.fixture
def hanging() -> Iterator[threading.Event]:
    """Set at the end, so that no thread stays behind."""
    event = threading.Event()
    yield event
    event.set()


def test_a_call_has_its_time_and_no_more_its_wait_for_a_thread_included(hanging: threading.Event) -> None:
    async def scene(reads: BlobReads) -> list[object]:
        calls = [reads.call("a", hanging.wait, WAIT_S) for _ in range(SHARE + 3)]
        return await asyncio.gather(*calls, return_exceptions=True)

    with closing(BlobReads(deadline_s=0.2)) as reads:
        ends = asyncio.run(scene(reads))

    assert all(isinstance(end, BlobsUnavailableError) for end in ends), ends
    assert "within 0.2 s" in str(ends[0])


def test_what_one_tenant_waits_for_is_not_waited_for_by_others(hanging: threading.Event) -> None:
    async def scene(reads: BlobReads) -> int:
        waiting = [asyncio.create_task(reads.call("a", hanging.wait, WAIT_S)) for _ in range(4 * SHARE)]
        answer = await reads.call("b", lambda: 7)
        assert not any(task.done() for task in waiting)
        hanging.set()
        assert all(await asyncio.gather(*waiting))
        return answer

    with closing(BlobReads()) as reads:
        assert asyncio.run(scene(reads)) == 7


def test_once_calls_have_timed_out_all_are_refused_at_once_until_a_probe_is_answered(hanging: threading.Event) -> None:
    clock = ManualClock()

    async def scene(reads: BlobReads) -> None:
        hung = [reads.call("a", hanging.wait, WAIT_S) for _ in range(3)]
        await asyncio.gather(*hung, return_exceptions=True)
        with pytest.raises(BlobsUnavailableError, match="does not answer"):
            await reads.call("b", lambda: pytest.fail("it is not asked"))
        clock.advance(5.0)
        assert await reads.call("b", lambda: 7) == 7
        assert await reads.call("c", lambda: 8) == 8

    with closing(BlobReads(0.05, Circuit(limit=3, pause_s=5.0), clock=clock)) as reads:
        asyncio.run(scene(reads))


def test_an_error_that_comes_at_once_opens_nothing() -> None:
    def refused() -> None:
        raise BlobsUnavailableError("connection refused")

    async def scene(reads: BlobReads) -> None:
        for _ in range(5):
            with pytest.raises(BlobsUnavailableError, match="connection refused"):
                await reads.call("a", refused)

    with closing(BlobReads(circuit=Circuit(limit=1))) as reads:
        asyncio.run(scene(reads))

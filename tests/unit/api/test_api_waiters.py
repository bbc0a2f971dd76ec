"""Waiters: one wake-up a ring, one look-up for all, nothing at all while nobody waits."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

from api.waiters import Waiters
from batchfleet.errors import StoreUnavailableError
from batchfleet.jobs.job import JobRecord
from batchfleet.jobs.states import JobState
from tests.support.apiserver import job_record as record

NEVER_S = 3600.0
WAIT_S = 30.0


class Scene:
    """Waiters over a table of states."""

    def __init__(self, lookup_s: float = NEVER_S, *, with_answers: bool = False) -> None:
        self.reads = 0
        self.heard: list[list[str]] = []
        self.ring_fails = False
        self.states: dict[str, JobState] = {}
        self.looked_up: list[list[str]] = []
        self.lookup_fails = 0
        self.on_look_up: Callable[[], None] = lambda: None
        read = self._read if with_answers else None
        self.waiters = Waiters(self._ended, lookup_s=lookup_s, read=read)
        self.waiters.start()
        self.hung_up = asyncio.Event()

    async def _ended(self, ids: Sequence[str]) -> Sequence[str]:
        self.looked_up.append(list(ids))
        self.on_look_up()
        if self.lookup_fails:
            self.lookup_fails -= 1
            raise StoreUnavailableError("away")
        return [one for one in ids if self.states[one].terminal]

    def _read(self, ids: Sequence[str]) -> Iterator[list[JobRecord]]:
        self.heard.append(list(ids))
        for job_id in ids if not self.ring_fails else ():
            yield [record(job_id, state=self.states[job_id])]

    async def wait(self, job_id: str, seconds: float = NEVER_S) -> JobRecord | None:
        async def read() -> JobRecord:
            self.reads += 1
            return record(job_id, state=self.states[job_id])

        async def gone() -> None:
            await self.hung_up.wait()

        with self.waiters.waiting(job_id) as waiter:
            return await self.waiters.until_ended(waiter, seconds, read, gone=gone)

    async def begin(self, *ids: str) -> list["asyncio.Task[JobRecord | None]"]:
        tasks = []
        for job_id in ids:
            self.states[job_id] = JobState.RUNNING
            tasks.append(asyncio.ensure_future(self.wait(job_id)))
        await asyncio.sleep(0)
        return tasks


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), WAIT_S))


def test_a_ring_from_another_thread_wakes_those_it_names() -> None:
    async def scenario() -> None:
        scene = Scene()
        ended, other = await scene.begin("a", "b")
        scene.states["a"] = JobState.SUCCEEDED
        threading.Thread(target=scene.waiters.ring, args=(["a", "x"],)).start()

        found = await ended
        assert found is not None
        assert found.state is JobState.SUCCEEDED
        assert not other.done()
        assert len(scene.waiters) == 1
        scene.waiters.close()
        await other

    run(scenario)


def test_a_ring_between_registering_and_waiting_is_not_lost() -> None:
    async def scenario() -> None:
        scene = Scene()
        scene.states["a"] = JobState.RUNNING
        with scene.waiters.waiting("a") as waiter:
            scene.states["a"] = JobState.SUCCEEDED
            scene.waiters.ring(["a"])

            async def read() -> JobRecord:
                return record("a", state=scene.states["a"])

            found = await scene.waiters.until_ended(waiter, NEVER_S, read, gone=scene.hung_up.wait)  # type: ignore[arg-type]

        assert found is not None
        assert found.state is JobState.SUCCEEDED

    run(scenario)


def test_a_ring_that_was_wrong_keeps_waiting() -> None:
    async def scenario() -> None:
        scene = Scene()
        (task,) = await scene.begin("a")
        scene.waiters.ring(["a"])
        for _ in range(5):
            await asyncio.sleep(0)
        assert not task.done()
        scene.states["a"] = JobState.FAILED
        scene.waiters.ring(["a"])

        assert (await task) is not None

    run(scenario)


def test_time_that_is_up_gives_the_present_state() -> None:
    async def scenario() -> None:
        scene = Scene()
        scene.states["a"] = JobState.RUNNING
        found = await scene.wait("a", 0.0)

        assert found is not None
        assert found.state is JobState.RUNNING
        assert len(scene.waiters) == 0

    run(scenario)


def test_a_client_that_hangs_up_leaves_nothing() -> None:
    async def scenario() -> None:
        scene = Scene()
        (task,) = await scene.begin("a")
        scene.hung_up.set()

        assert await task is None
        assert len(scene.waiters) == 0

    run(scenario)


def test_release_answers_all_and_later_ones_at_once() -> None:
    async def scenario() -> None:
        scene = Scene()
        tasks = await scene.begin("a", "b")
        scene.waiters.release()
        found = [await task for task in tasks] + [await scene.wait("a")]

        assert [one.state for one in found if one] == [JobState.RUNNING] * 3
        assert len(scene.waiters) == 0

    run(scenario)


def test_the_safety_net_asks_once_for_all_and_survives_an_outage() -> None:
    async def scenario() -> None:
        scene = Scene(lookup_s=0.001)
        scene.lookup_fails = 2
        tasks = await scene.begin("a", "b")

        def end_after_outage() -> None:
            if len(scene.looked_up) == 3:
                scene.states.update(a=JobState.SUCCEEDED, b=JobState.FAILED)

        scene.on_look_up = end_after_outage
        await asyncio.gather(*tasks)

        assert scene.looked_up == [["a", "b"]] * 3
        scene.waiters.close()

    run(scenario)


def test_nothing_runs_while_nobody_waits() -> None:
    async def scenario() -> None:
        scene = Scene()
        loop = asyncio.get_running_loop()
        called: list[Any] = []
        loop.call_soon_threadsafe = lambda *args: called.append(args)  # type: ignore[method-assign, assignment]
        scene.waiters.ring(["a"])

        assert called == []
        assert scene.waiters._timer is None
        del loop.call_soon_threadsafe

    run(scenario)


def test_a_ring_after_the_loop_is_no_trouble() -> None:
    scenes: list[Scene] = []

    async def scenario() -> None:
        scenes.append(Scene())

    run(scenario)
    scenes[0].waiters._waiting["a"] = set()
    scenes[0].waiters.ring(["a"])


def test_a_ring_for_others_does_not_wake_the_loop() -> None:
    async def scenario() -> None:
        scene = Scene()
        (task,) = await scene.begin("a")
        loop = asyncio.get_running_loop()
        woken: list[object] = []
        threadsafe = loop.call_soon_threadsafe

        def noting(*call: Any) -> asyncio.Handle:
            woken.append(call)
            return threadsafe(*call)

        loop.call_soon_threadsafe = noting  # type: ignore[method-assign, assignment]

        scene.waiters.ring(["b", "c"])
        assert woken == []
        scene.states["a"] = JobState.SUCCEEDED
        scene.waiters.ring(["b", "a"])
        assert len(woken) == 1
        ended = await task
        assert ended is not None
        assert ended.state is JobState.SUCCEEDED
        scene.waiters.close()
        del loop.call_soon_threadsafe

    run(scenario)


def test_a_ring_brings_the_answers_along() -> None:
    """Who hears it reads all rows at once: no waiter reads its own."""

    async def scenario() -> None:
        scene = Scene(with_answers=True)
        tasks = await scene.begin("a", "b", "c")
        scene.states.update(a=JobState.SUCCEEDED, b=JobState.FAILED)

        await asyncio.to_thread(scene.waiters.ring, ["a", "x", "b"])

        first, second = await asyncio.gather(*tasks[:2])
        assert first is not None
        assert second is not None
        assert (first.state, second.state) == (JobState.SUCCEEDED, JobState.FAILED)
        assert scene.heard == [["a", "b"]]
        assert scene.reads == 0
        assert not tasks[2].done()
        tasks[2].cancel()

    run(scenario)


def test_what_a_ring_cannot_read_its_waiters_read() -> None:
    async def scenario() -> None:
        scene = Scene(with_answers=True)
        scene.ring_fails = True
        (task,) = await scene.begin("a")
        scene.states["a"] = JobState.SUCCEEDED

        await asyncio.to_thread(scene.waiters.ring, ["a"])

        ended = await task
        assert ended is not None
        assert ended.state is JobState.SUCCEEDED
        assert scene.reads == 1

    run(scenario)


def test_an_answer_that_came_too_early_is_not_the_end() -> None:
    """The row that the ring's reader saw had not ended: its waiter waits on, and does not keep that row."""

    async def scenario() -> None:
        scene = Scene(with_answers=True)
        (task,) = await scene.begin("a")

        await asyncio.to_thread(scene.waiters.ring, ["a"])
        await asyncio.sleep(0)
        scene.states["a"] = JobState.SUCCEEDED
        await asyncio.to_thread(scene.waiters.ring, ["a"])

        ended = await task
        assert ended is not None
        assert ended.state is JobState.SUCCEEDED

    run(scenario)

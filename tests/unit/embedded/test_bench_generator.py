"""The load generator against a server that answers as the test says."""

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np

from batchfleet.embedded.bench.generator_worker import Answers, Work, generate
from batchfleet.embedded.bench.http_connection import Target
from batchfleet.embedded.valkey import free_port

Answering = Callable[[bytes], Awaitable[bytes | None]]

DONE = b'{"id":"job_1","status":"succeeded"}'
QUEUED = b'{"id":"job_1","status":"queued"}'


def answer(body: bytes, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n" % (status.encode(), len(body)) + body


def run(answering: Answering, count: int, **work: object) -> Answers:
    """Sends `count` requests, each with its number as its body, to a server; None closes the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                reply = await answering(await reader.readexactly(size))
                if reply is None:
                    break
                writer.write(reply)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def all_of_it() -> Answers:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            target = Target.of("http://127.0.0.1:{1}".format(*server.sockets[0].getsockname()), {"X-Test": "1"})
            requests = [target.post("/v1/jobs", str(number).encode()) for number in range(count)]
            return await generate(target, Work(requests=requests, **work))  # type: ignore[arg-type]

    return asyncio.run(all_of_it())


def test_callers_send_one_request_at_a_time_and_every_text_once() -> None:
    seen: list[bytes] = []
    most = now = 0

    async def answering(body: bytes) -> bytes:
        nonlocal now, most
        seen.append(body)
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1
        return answer(DONE)

    found = run(answering, 50, callers=3, keep=frozenset({7}))

    assert sorted(seen, key=int) == [str(number).encode() for number in range(50)]
    assert most <= 3
    assert found.connections == 3
    assert found.succeeded.all()
    assert (found.until_s > found.from_s).all()
    assert found.kept == {7: DONE}


def test_in_an_open_loop_latency_counts_from_when_a_request_was_due() -> None:
    """A server that stalls until the last has come: callers of a closed loop would never have sent it."""
    last = asyncio.Event()

    async def answering(body: bytes) -> bytes:
        if body == b"2":
            last.set()
        await last.wait()
        return answer(DONE)

    found = run(answering, 3, due_s=[0.0, 0.03, 0.06])

    assert list(found.from_s) == [0.0, 0.03, 0.06]
    assert found.latencies_s[0] > 0.055
    assert found.latencies_s[1] > 0.025
    assert found.late_s.min() > -0.001
    assert found.connections == 3


def test_only_a_job_that_succeeded_counts_as_such() -> None:
    async def answering(body: bytes) -> bytes:
        return {b"0": answer(DONE), b"1": answer(QUEUED, "202 Accepted"), b"2": answer(b"{}", "429 Too Many")}[body]

    found = run(answering, 3)

    assert list(found.statuses) == [200, 202, 429]
    assert list(found.succeeded) == [True, False, False]
    assert len(found.latencies_s) == 1


def test_a_connection_that_breaks_costs_its_own_request_alone() -> None:
    async def answering(body: bytes) -> bytes | None:
        return None if body == b"3" else answer(DONE)

    found = run(answering, 8, callers=2)

    assert list(np.flatnonzero(found.statuses == 0)) == [3]
    assert np.isnan(found.until_s[3])
    assert found.succeeded.sum() == 7
    assert found.connections == 3


def test_what_is_not_answered_in_time_is_given_up() -> None:
    async def answering(body: bytes) -> bytes:
        if body == b"1":
            await asyncio.Event().wait()
        return answer(DONE)

    found = run(answering, 2, callers=2, patience_s=0.1)

    assert list(found.statuses) == [200, 0]


def test_nobody_listens() -> None:
    target = Target.of(f"http://127.0.0.1:{free_port('127.0.0.1')}", {})

    found = asyncio.run(generate(target, Work(requests=[target.post("/", b"")] * 5, callers=2)))

    assert list(found.statuses) == [0] * 5


def test_a_target_keeps_its_path_and_leaves_credentials_out() -> None:
    target = Target.of("https://user:secret@host/fleet/", {"Authorization": "Bearer k"})

    request = target.post("/v1/jobs?wait=1", b"{}")

    assert (target.host, target.port, target.tls) == ("host", 443, True)
    assert request.startswith(b"POST /fleet/v1/jobs?wait=1 HTTP/1.1\r\nHost: host\r\n")
    assert b"Authorization: Bearer k\r\n" in request
    assert b"secret" not in request

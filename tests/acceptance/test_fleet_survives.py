"""A fleet as several machines would run it: two of everything, on Postgres, Valkey and S3, each killed in its turn.

Nothing accepted is lost, nothing is settled twice, and what is told at one API is heard at the other.
"""

import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from batchfleet.models.config import Limits
from tests.support.fleet import Fleet, Part
from tests.support.models import build_tiny_encoder, tiny_text
from tests.support.postgres import PostgresServer
from tests.support.receivers import Receiver, receiver
from tests.support.s3servers import CREDENTIALS, Bucket, MotoServer
from tests.support.servers import ValkeyServer, free_port
from tests.support.upstack import eventually

ROW_BYTES = 4096
"""Vectors of 256 numbers: a job of one item is kept in its row, one of eight is a blob."""
TEXTS = tuple(tiny_text(length, seed=length) for length in (40, 80, 120, 160))
JOBS = 24
"""Jobs of one portion."""
WAIT_S = 60.0
SLOW = Limits(max_batch_items=4, max_batch_tokens=4096, max_item_tokens=512)
"""Small passes of a model that is large for a test: a portion takes long enough to be killed in."""


@dataclass
class World:
    """The fleet and the servers under it.

    Attributes:
        hooks: Takes the webhooks.
        urls: Of the two APIs.
    """

    fleet: Fleet
    postgres: PostgresServer
    valkey: ValkeyServer
    bucket: Bucket
    hooks: Receiver
    urls: tuple[str, str]
    client: httpx.Client

    def ask(self, at: int, method: str, path: str, **request: Any) -> httpx.Response:
        """Sends a request to one of the APIs, again and again while it or what it needs is being restarted."""

        def look() -> httpx.Response | None:
            try:
                answer = self.client.request(method, self.urls[at] + path, **request)
            except httpx.TransportError:
                return None
            return None if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE else answer

        return eventually(look, f"{method} {path} is answered", WAIT_S)

    def submit(self, at: int, jobs: Sequence[Mapping[str, Any]]) -> list[str]:
        """Submits jobs, each with a key, so that an answer that was lost costs nothing; returns their ids."""
        bodies = [{"idempotency_key": uuid.uuid4().hex, **job} for job in jobs]
        answer = self.ask(at, "POST", "/v1/jobs/bulk", json=bodies)
        assert answer.status_code == httpx.codes.ACCEPTED, answer.text
        return [entry["id"] for entry in answer.json()["jobs"]]

    def look_up(self, at: int, ids: Sequence[str]) -> list[dict[str, Any]]:
        """Returns jobs."""
        found: list[dict[str, Any]] = []
        for start in range(0, len(ids), 1000):
            answer = self.ask(at, "POST", "/v1/jobs/lookup", json={"ids": ids[start : start + 1000]})
            assert answer.status_code == httpx.codes.OK, answer.text
            found += answer.json()["jobs"]
        return found

    def any_is(self, at: int, ids: Sequence[str], wanted: Callable[[dict[str, Any]], bool]) -> bool | None:
        """Returns whether a job is as wanted; for `eventually`."""
        return any(map(wanted, self.look_up(at, ids))) or None

    def none_is(self, at: int, ids: Sequence[str], unwanted: Callable[[dict[str, Any]], bool]) -> bool | None:
        """Returns whether no job is as unwanted; for `eventually`."""
        return not any(map(unwanted, self.look_up(at, ids))) or None

    def finish(self, ids: Sequence[str]) -> None:
        """Returns when all jobs have ended; otherwise says what the database and the parts know."""
        try:
            eventually(lambda: self.none_is(0, ids, is_open), "every job has ended", 2 * WAIT_S)
        except AssertionError as error:
            rows = self.postgres.execute("SELECT state, owner, crashes, count(*) FROM jobs GROUP BY 1, 2, 3")
            boots = self.postgres.execute("SELECT boot, name, state, seen_at FROM workers")
            told = f"{rows}\n{boots}\n{self.postgres.log[-3000:]}\n{self.fleet.logs()}"
            raise AssertionError(f"{error}\n{told}") from None


def is_open(job: Mapping[str, Any]) -> bool:
    return job["status"] in {"queued", "running"}


def is_running(job: Mapping[str, Any]) -> bool:
    return bool(job["status"] == "running")


def is_suspect(job: Mapping[str, Any]) -> bool:
    return is_open(job) and job["crashes"] > 0


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("fleet")
    with ExitStack() as stack:
        postgres, valkey, s3 = PostgresServer(), ValkeyServer(), MotoServer()
        for server in (postgres, valkey, s3):
            stack.callback(server.close)
            server.start()
        hooks = stack.enter_context(receiver())
        bucket = s3.make_bucket()
        build_tiny_encoder(folder / "models", layers=4, hidden=256, limits=SLOW)
        ports = (free_port(), free_port())
        shared = shared_settings(folder, postgres, valkey, bucket)
        fleet = stack.enter_context(Fleet(parts(shared, ports)))
        client = stack.enter_context(httpx.Client(timeout=WAIT_S))
        urls = (f"http://127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[1]}")
        yield World(fleet, postgres, valkey, bucket, hooks, urls, client)


def shared_settings(folder: Path, postgres: PostgresServer, valkey: ValkeyServer, bucket: Bucket) -> Mapping[str, str]:
    settings = {
        "database_url": postgres.url,
        "broker_url": valkey.url,
        "models_url": f"file://{folder}/models",
        "metrics_dir": f"{folder}/metrics",
        "state_dir": f"{folder}/state",
        "output_prefixes": f"{bucket.url}/outputs/",
        "webhook_networks": "127.0.0.0/8",
        "worker_variant": "fp32",
        "result_row_bytes": str(ROW_BYTES),
        # A dead worker's jobs come back within the test's patience.
        "heartbeat_s": "1",
        "lease_ttl_s": "4",
        # The safety net of waiting requests looks once an hour: only a ring can end a wait.
        "ring_lookup_s": "3600",
        **bucket.settings,
    }
    return {**os.environ, **CREDENTIALS, **{f"BATCHFLEET_{name.upper()}": value for name, value in settings.items()}}


def parts(shared: Mapping[str, str], ports: tuple[int, int]) -> Iterator[Part]:
    for number, port in enumerate(ports, 1):
        yield Part(f"api-{number}", "api", {**shared, "BATCHFLEET_API_PORT": str(port)})
        yield Part(f"worker-{number}", "workers", {**shared, "BATCHFLEET_WORKER_NAME": f"worker-{number}"})
        yield Part(f"scheduler-{number}", "scheduler", shared)


def portion(world: World) -> list[dict[str, Any]]:
    """Returns jobs of which some have large results, some an output, and some a callback."""
    jobs: list[dict[str, Any]] = []
    for number in range(JOBS):
        text = TEXTS[number % len(TEXTS)]
        mark = {"name": uuid.uuid4().hex, "text": text[:20]}
        job: dict[str, Any] = {"model": "tiny", "inputs": [text] * (8 if number % 6 == 0 else 1), "metadata": mark}
        if number % 12 == 1:
            job["callback_url"] = f"{world.hooks.url}/{mark['name']}"
            mark["owes"] = "webhook"
        if number % 12 == 2:
            job["output_uri"] = f"{world.bucket.url}/outputs/{mark['name']}"
            mark["owes"] = "output"
        jobs.append(job)
    return jobs


@pytest.mark.timeout(240)
def test_each_part_is_killed_in_its_turn_and_every_job_is_settled_once(world: World) -> None:
    ids: list[str] = []
    for turn, victim in enumerate([*world.fleet.parts, "valkey", "postgres"]):
        alive = 1 if victim == "api-1" else 0
        ids += put_to_work(world, alive, ids)
        kill_and_restart(world, victim)
        ids += world.submit(turn % 2, portion(world)[: JOBS // 2])

    world.finish(ids)

    jobs = world.look_up(0, ids)
    assert Counter(job["status"] for job in jobs) == {"succeeded": len(ids)}, world.fleet.logs()
    assert sorted(job["id"] for job in world.look_up(1, ids)) == sorted(ids)
    check_rows(world, ids)
    check_results(world, jobs)
    check_debts(world, jobs)


def put_to_work(world: World, at: int, before: Sequence[str]) -> list[str]:
    """Submits a portion and returns when the fleet is at it, and nobody in it is under suspicion any more.

    A job may lose one worker in its pass; one that loses two is convicted, as it should be.
    """
    ids = world.submit(at, portion(world))
    eventually(lambda: world.any_is(at, ids, is_running), "the fleet is at work", WAIT_S)
    eventually(lambda: world.none_is(at, [*before, *ids], is_suspect), "what a dead worker left has run", WAIT_S)
    return ids


def kill_and_restart(world: World, victim: str) -> None:
    servers: dict[str, ValkeyServer | PostgresServer] = {"valkey": world.valkey, "postgres": world.postgres}
    server = servers.get(victim)
    if server is not None:
        server.kill()
        server.start()
        return
    part = world.fleet.parts[victim]
    part.kill()
    part.start()
    part.await_ready()


def check_rows(world: World, ids: Sequence[str]) -> None:
    """One row, one result, and nothing else in the database."""
    count = world.postgres.execute
    assert count("SELECT count(*), count(DISTINCT id) FROM jobs") == [(len(ids), len(ids))]
    assert count("SELECT count(*) FROM job_results JOIN jobs USING (id) WHERE state = 'succeeded'") == [(len(ids),)]
    assert count("SELECT count(*) FROM job_results") == [(len(ids),)]


def check_results(world: World, jobs: Sequence[Mapping[str, Any]]) -> None:
    """The same text has the same vector, whoever ran it, in whatever company, from the row or from S3."""
    in_blobs = world.postgres.execute("SELECT count(*) FROM job_results WHERE blob_key IS NOT NULL")[0][0]
    assert in_blobs == sum(job["item_count"] == 8 for job in jobs) > 0
    found: dict[str, list[Any]] = {}
    for number, job in enumerate(jobs[::7]):
        answer = world.ask(number % 2, "GET", f"/v1/jobs/{job['id']}/result", follow_redirects=True)
        values = np.asarray(answer.raise_for_status().json()["values"], np.float32)
        assert values.shape == (job["item_count"], 256)
        found.setdefault(job["metadata"]["text"], []).extend(values)
    assert len(found) == len(TEXTS)
    for vectors in found.values():
        assert np.allclose(vectors, vectors[0], atol=1e-4)


def check_debts(world: World, jobs: Sequence[Mapping[str, Any]]) -> None:
    """Each job owes a thing once, and it is paid: the callback is told, the output is there."""
    owed: dict[str, set[str]] = {"webhook": set(), "output": set()}
    for job in jobs:
        if "owes" in job["metadata"]:
            owed[job["metadata"]["owes"]].add(job["metadata"]["name"])
    count = len(owed["webhook"]) + len(owed["output"])
    assert world.postgres.execute("SELECT count(*), count(DISTINCT (job_id, kind)) FROM outbox") == [(count, count)]

    unpaid = "SELECT count(*) FROM outbox WHERE state <> 'delivered'"
    eventually(lambda: world.postgres.execute(unpaid) == [(0,)] or None, "everything owed is paid", WAIT_S)

    told: dict[str, set[str]] = {}
    for call in world.hooks.calls:
        told.setdefault(call.path.rpartition("/")[2], set()).add(call.id)
    assert told.keys() == owed["webhook"]
    assert {len(deliveries) for deliveries in told.values()} == {1}
    written = [key.removeprefix("outputs/") for key in world.bucket.keys() if key.startswith("outputs/")]  # noqa: SIM118
    assert set(written) == owed["output"]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("waits", "ends"), [(0, 1), (1, 0)])
def test_a_wait_at_one_api_ends_when_the_job_is_cancelled_at_the_other(world: World, waits: int, ends: int) -> None:
    """The job starts in an hour, so that it waits; nothing but the ring tells the first API."""
    in_an_hour = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    job = {"model": "tiny", "inputs": ["sun"], "run_at": in_an_hour, "metadata": {"mark": uuid.uuid4().hex}}
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(httpx.post, f"{world.urls[waits]}/v1/jobs?wait=60", json=job, timeout=WAIT_S)
        mine = eventually(lambda: newest(world, ends, job["metadata"]), "the job is seen at the other API")
        world.ask(ends, "POST", f"/v1/jobs/{mine}/cancel")

        answer = waiting.result(WAIT_S / 2)

    assert (answer.json()["id"], answer.json()["status"]) == (mine, "cancelled")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("at", [0, 1])
def test_a_wait_ends_when_a_worker_has_settled(world: World, at: int) -> None:
    answer = httpx.post(
        f"{world.urls[at]}/v1/jobs?wait=60", json={"model": "tiny", "inputs": [TEXTS[0]]}, timeout=WAIT_S / 2
    )

    assert answer.json()["status"] == "succeeded"


def newest(world: World, at: int, metadata: object) -> str | None:
    jobs = world.ask(at, "GET", "/v1/jobs?limit=10").json()["jobs"]
    return next((job["id"] for job in jobs if job.get("metadata") == metadata), None)

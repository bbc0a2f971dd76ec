"""B15: gauges tell the truth after every event, and labels stay few whatever comes."""

import json
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from batchfleet.jobs.job import HandBack, JobError
from batchfleet.jobs.memory import MemoryStore
from batchfleet.jobs.states import JobState
from batchfleet.profiles.port import Lesson, ProfileKey, Rate
from tests.support.apiserver import RunningApi, publish_model, running_api
from tests.support.pipeline import Pipeline

STRANGE = 1_000


def shown(api: RunningApi) -> dict[tuple[str, str, str], float]:
    """Returns the depths that `/metrics` shows, by (model, lane, state)."""
    text = api.client.get("/metrics").text
    found = re.findall(
        r'^batchfleet_queue_jobs\{lane="(\w+)",model="([\w-]+)",state="(\w+)"\} (\S+)$', text, re.MULTILINE
    )
    return {(model, lane, state): float(count) for lane, model, state, count in found}


def stored(folder: Path) -> dict[tuple[str, str, str], float]:
    """Returns the same of the database, counted the plain way."""
    query = "SELECT model, lane, state, COUNT(*) FROM jobs WHERE state IN ('queued', 'running') GROUP BY 1, 2, 3"
    with sqlite3.connect(folder / "batchfleet.db") as database:
        return {(model, lane, state): float(count) for model, lane, state, count in database.execute(query)}


def series(api: RunningApi) -> int:
    """Returns how many series a scrape has."""
    text = api.client.get("/metrics").text
    return sum(1 for line in text.splitlines() if line.startswith("batchfleet_"))


def test_the_depth_of_the_queues_is_the_databases_after_every_event(tmp_path: Path) -> None:
    with running_api(tmp_path, default_max_attempts=2) as api:
        store, worker = api.store, api.worker
        jobs: list[str] = []

        def submit() -> None:
            jobs.extend(api.submit(lane=lane) for lane in ("online", "standard", "bulk", "bulk", "bulk", "standard"))

        def retry() -> None:
            claimed = worker.claim(jobs[3])
            worker.settle(claimed, JobState.QUEUED, retry_in_s=0.0, error=JobError("internal_error", "again"))

        def hand_back() -> None:
            claimed = worker.claim(jobs[3])
            store.hand_back(worker.boot, [HandBack(claimed.id, claimed.epoch)])

        def bury() -> None:
            worker.claim(jobs[4])
            store.bury(worker.boot, [jobs[4].removeprefix("job_")])

        events: list[tuple[str, Callable[[], object]]] = [
            ("submitted", submit),
            ("claimed", lambda: worker.claim(jobs[0])),
            ("succeeded", lambda: worker.succeed(jobs[1])),
            ("failed", lambda: worker.fail(jobs[2], JobError("pass_failed", "no"))),
            ("retried", retry),
            ("handed back", hand_back),
            ("cancelled while running", lambda: api.client.post(f"/v1/jobs/{jobs[0]}/cancel").raise_for_status()),
            ("cancelled while queued", lambda: api.client.post(f"/v1/jobs/{jobs[5]}/cancel").raise_for_status()),
            ("its worker died", bury),
            ("rescued", lambda: store.rescue(0.0, 100)),
            ("expired", lambda: store.expire(100)),
        ]
        for name, event in events:
            event()
            assert shown(api) == stored(tmp_path), name
        assert sum(stored(tmp_path).values()) == 2


def test_strange_models_never_become_labels(tmp_path: Path) -> None:
    with running_api(tmp_path) as api:
        api.submit()
        api.client.post("/v1/jobs", json={"model": "no-such-model", "inputs": ["a"]})
        api.client.post("/v1/jobs/bulk", json=[{"model": "no-such-model", "inputs": ["a"]}])
        api.client.get("/metrics")
        before = series(api)
        for number in range(STRANGE // 10):
            body = {"model": f"strange-{number}", "inputs": ["a" * number]}
            assert api.client.post("/v1/jobs", json=body).status_code == 404
        bulk = [{"model": f"odd-{number}", "inputs": ["x" * number]} for number in range(STRANGE)]
        assert api.client.post("/v1/jobs/bulk", json=bulk).status_code == 202

        assert series(api) == before
        assert "strange" not in api.client.get("/metrics").text


def test_strange_paths_methods_and_lengths_never_become_labels(tmp_path: Path) -> None:
    with running_api(tmp_path) as api:
        for number in range(5):
            _strange(api, number)
        series(api)  # the scrape itself is counted, and shown from the next one on
        before = series(api)
        for number in range(STRANGE):
            _strange(api, number)

        text = api.client.get("/metrics").text
        assert series(api) == before
        assert 'batchfleet_http_requests_total{method="GET",route="unmatched",status="404"}' in text
        assert 'route="/v1/jobs/{job_id}"' in text


def _strange(api: RunningApi, number: int) -> None:
    """One request of each kind that could name something that only a stranger knows."""
    kind = number % 5
    if kind == 0:
        api.client.get(f"/no/such/path/{number}")
    elif kind == 1:
        for path in ("/no/such", f"/v1/jobs/job_{number:032x}", f"/v1/models/strange-{number}"):
            api.client.get(path)
        api.client.request("PROPFIND", "/v1/jobs")
        api.client.get("/v1/jobs", params={"model": f"strange-{number}"})
    elif kind == 2:
        api.client.request("PROPFIND", f"/coffee/{number}")
    elif kind == 3:
        api.client.get("/v1/jobs", params={"model": f"strange-{number}"})
    else:
        api.client.get(f"/v1/jobs/job_{number:032x}", headers={"X-Request-Id": f"id-{number}"})


def test_requests_are_counted_by_route_and_status_and_waits_apart(tmp_path: Path) -> None:
    with running_api(tmp_path) as api:
        job = api.submit()
        api.client.get(f"/v1/jobs/{job}", params={"wait": "0.01"})
        api.client.get(f"/v1/jobs/{job}")
        api.client.post("/v1/jobs", json={"model": "tiny"})
        httpx.get(f"{api.url}/v1/jobs", headers={"Host": "evil.example"})
        text = api.client.get("/metrics").text

    assert 'batchfleet_http_requests_total{method="POST",route="/v1/jobs",status="202"} 1.0' in text
    assert 'batchfleet_http_requests_total{method="POST",route="/v1/jobs",status="400"} 1.0' in text
    assert 'batchfleet_http_requests_total{method="GET",route="unmatched",status="421"} 1.0' in text
    labels = 'batchfleet_http_request_seconds_count{{method="GET",route="/v1/jobs/{{job_id}}",wait="{}"}} 1.0'
    assert labels.format("yes") in text
    assert labels.format("no") in text


def test_the_version_is_told(tmp_path: Path) -> None:
    with running_api(tmp_path) as api:
        found = re.search(
            r'^batchfleet_build_info\{version="([^"]+)"\} 1.0$', api.client.get("/metrics").text, re.MULTILINE
        )

    assert found is not None


def backlog(api: RunningApi) -> dict[tuple[str, str], float]:
    """Returns the device-seconds of backlog that `/metrics` shows, by (model, lane)."""
    text = api.client.get("/metrics").text
    name = "batchfleet_backlog_device_seconds"
    found = re.findall(rf'^{name}\{{lane="(\w+)",model="([\w-]+)"\}} (\S+)$', text, re.MULTILINE)
    return {(model, lane): float(seconds) for lane, model, seconds in found}


def test_the_backlog_is_what_the_fleet_has_learned_times_what_waits(tmp_path: Path) -> None:
    """Right in an API process that never saw a worker: by the bytes of inputs, and not by the number of jobs."""
    costs = {"tiny": 0.5, "other": 0.02}  # device-seconds a byte
    with running_api(tmp_path) as api:
        for model in ("other", "unknown"):
            publish_model(tmp_path / "models", model)
        for model, cost in costs.items():
            api.parts.profiles.tell(ProfileKey(model, "1", "fp32", "cpu"), Lesson(work=Rate(10, 100, 100 * cost)))
        waiting = [
            ("tiny", "bulk", ["a"]),
            ("tiny", "bulk", ["a", "a longer text"]),
            ("tiny", "online", ["b" * 100]),
            ("other", "standard", ["c"]),
            ("unknown", "standard", ["d"]),
        ]
        jobs = [api.submit(model=model, lane=lane, inputs=inputs) for model, lane, inputs in waiting]
        api.worker.claim(jobs[1])  # it runs, and will take its time
        truth = dict.fromkeys(((model, lane) for model in costs for lane in ("online", "standard", "bulk")), 0.0)
        for model, lane, inputs in waiting[:-1]:
            truth[model, lane] += costs[model] * len(json.dumps(inputs, separators=(",", ":")))

        assert backlog(api) == pytest.approx(truth)

        for job in jobs:
            api.client.post(f"/v1/jobs/{job}/cancel").raise_for_status()
        assert backlog(api) == dict.fromkeys(truth, 0.0)


@pytest.mark.parametrize(
    ("broker_url", "waited_s", "lost"), [("redis://h/0", 60, 2), ("redis://h/0", 0, 0), ("none", 60, 0)]
)
def test_jobs_found_without_the_hint_that_should_have_told_of_them_are_counted(
    tmp_path: Path, broker_url: str, waited_s: float, lost: float
) -> None:
    now = [1_000.0]
    store = MemoryStore(lambda: now[0])
    pipeline = Pipeline(tmp_path, store=store, broker_url=broker_url)
    silent = pipeline.submit((1.0,), (2.0,), announce=False)
    now[0] += waited_s
    pipeline.start()
    pipeline.finish(silent)
    pipeline.finish(pipeline.submit((3.0,)))
    pipeline.close()

    assert pipeline.metrics.hints_found_lost._value.get() == lost

"""Looking at jobs over a socket: one, many, pages; cancelling; ETags and notices."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batchfleet.jobs.job import JobError, JobErrorCode
from batchfleet.jobs.states import JobState
from batchfleet.results import codec
from tests.support.apiserver import MODEL, RunningApi, publish_model, running_api

UNKNOWN = "job_" + "0" * 32


@pytest.fixture
def api(tmp_path: Path) -> Any:
    with running_api(tmp_path, inline_result_bytes=64) as running:
        yield running


def test_a_succeeded_job_carries_its_result_and_provenance(api: RunningApi) -> None:
    job_id = api.submit(metadata={"a": 1})
    claimed = api.worker.claim(job_id)
    described, data = codec.encode_tensors([np.array([1.5, 2.0], dtype=np.float32)])
    api.worker.settle(
        claimed, JobState.SUCCEEDED, data=data, format=described, provenance='{"precision":"fp32","worker":"w"}'
    )
    job = api.client.get(f"/v1/jobs/{job_id}").json()

    assert job["status"] == "succeeded"
    assert job["result"] == {"values": [[1.5, 2.0]]}
    assert job["provenance"] == {"precision": "fp32", "worker": "w"}
    assert job["metadata"] == {"a": 1}
    assert job["result_url"] == f"/v1/jobs/{job_id}/result"
    assert job["submitted_at"] <= job["started_at"] <= job["finished_at"]


def test_a_large_result_is_only_linked(api: RunningApi) -> None:
    job_id = api.submit()
    api.worker.succeed(job_id, [np.zeros(17, dtype=np.float32)])
    job = api.client.get(f"/v1/jobs/{job_id}").json()

    assert "result" not in job
    assert job["result_url"] == f"/v1/jobs/{job_id}/result"


def test_a_failed_job_names_its_item(api: RunningApi) -> None:
    job_id = api.submit(inputs=["a", "b"])
    api.worker.fail(job_id, JobError(JobErrorCode.INPUT_TOO_LONG, "too many tokens", 1))
    job = api.client.get(f"/v1/jobs/{job_id}").json()

    assert job["status"] == "failed"
    assert job["error"] == {"code": "input_too_long", "message": "too many tokens", "item": 1, "field": "inputs[1]"}
    assert "result_url" not in job


@pytest.mark.parametrize("path", [UNKNOWN, "job_x", "x", UNKNOWN[4:], UNKNOWN.upper(), "job_%00" + "0" * 31, "%F0%9F"])
@pytest.mark.parametrize("rest", ["", "/result", "?wait=5"])
def test_what_is_no_job_is_not_found(api: RunningApi, path: str, rest: str) -> None:
    answer = api.client.get(f"/v1/jobs/{path}{rest}")

    assert (answer.status_code, answer.json()["code"]) == (404, "job_not_found")


def test_an_unchanged_job_is_not_sent_again(api: RunningApi) -> None:
    job_id = api.submit()
    api.worker.register()
    first = api.client.get(f"/v1/jobs/{job_id}")
    again = api.client.get(f"/v1/jobs/{job_id}", headers={"If-None-Match": first.headers["etag"]})
    api.worker.succeed(job_id)
    changed = api.client.get(f"/v1/jobs/{job_id}", headers={"If-None-Match": first.headers["etag"]})

    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert first.headers["retry-after"] == "1"
    assert changed.status_code == 200
    assert "retry-after" not in changed.headers


def test_a_job_whose_model_nobody_serves_says_so(api: RunningApi) -> None:
    job_id = api.submit()
    alone = api.client.get(f"/v1/jobs/{job_id}")
    api.worker.register()
    api.api.services.workers._answered_at = float("-inf")  # two seconds later
    served = api.client.get(f"/v1/jobs/{job_id}", headers={"If-None-Match": alone.headers["etag"]})

    assert alone.json()["notice"] == f"no live worker serves model {MODEL}"
    assert served.status_code == 200
    assert "notice" not in served.json()


def test_many_jobs_are_looked_up_in_the_order_of_the_ids(api: RunningApi) -> None:
    ids = [api.submit(), api.submit(), api.submit()]
    api.worker.succeed(ids[1])
    asked = [ids[2], UNKNOWN, ids[1], ids[2]]
    plain = api.client.post("/v1/jobs/lookup", json={"ids": asked}).json()["jobs"]
    rich = api.client.post("/v1/jobs/lookup", json={"ids": asked, "include": ["result"]}).json()["jobs"]

    assert [job["id"] for job in plain] == asked
    assert [job["status"] for job in plain] == ["queued", "unknown", "succeeded", "queued"]
    assert plain[1] == {"id": UNKNOWN, "status": "unknown"}
    assert all("result" not in job for job in plain)
    assert rich[2]["result"] == {"values": [[0.0, 1.0, 2.0]]}


def test_results_in_a_look_up_stop_at_the_size_of_a_body(tmp_path: Path) -> None:
    with running_api(tmp_path, max_body_bytes=400) as api:
        ids = [api.submit() for _ in range(3)]
        for job_id in ids:
            api.worker.succeed(job_id, [np.full(20, 0.123456, dtype=np.float32)])
        jobs = api.client.post("/v1/jobs/lookup", json={"ids": ids, "include": ["result"]}).json()["jobs"]

        assert 1 <= sum("result" in job for job in jobs) < 3
        assert all("result_url" in job for job in jobs)


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"ids": ["job_1"]}, 400, "ids[0]"),
        ({"ids": [UNKNOWN, 5]}, 400, "ids[1]"),
        ({}, 400, "ids"),
        ({"ids": [UNKNOWN] * 1001}, 413, "ids"),
        ({"ids": [], "include": ["inputs"]}, 400, "include[0]"),
        ({"ids": [], "exclude": []}, 400, "exclude"),
    ],
)
def test_a_wrong_look_up_is_named(api: RunningApi, body: Any, status: int, field: str) -> None:
    answer = api.client.post("/v1/jobs/lookup", json=body)

    assert (answer.status_code, answer.json()["field"]) == (status, field)


def test_jobs_are_listed_newest_first_page_by_page(api: RunningApi) -> None:
    ids = [api.submit() for _ in range(5)]
    first = api.client.get("/v1/jobs?limit=2").json()
    second = api.client.get(f"/v1/jobs?limit=2&after={first['next']}").json()
    third = api.client.get(f"/v1/jobs?limit=2&after={second['next']}").json()

    shown = [job["id"] for page in (first, second, third) for job in page["jobs"]]
    assert shown == ids[::-1]
    assert third["next"] is None


def test_a_list_can_be_narrowed(api: RunningApi, tmp_path: Path) -> None:
    publish_model(tmp_path / "models", name="other")
    queued, done, dead = api.submit(), api.submit(), api.submit(max_attempts=1)
    other = api.submit(model="other")
    api.worker.succeed(done)
    api.worker.fail(dead, JobError(JobErrorCode.PASS_FAILED, "boom"))

    def ids(query: str) -> list[str]:
        return [job["id"] for job in api.client.get(f"/v1/jobs?{query}").json()["jobs"]]

    assert ids("status=queued") == [other, queued]
    assert ids("status=succeeded,failed") == [dead, done]
    assert ids("model=other") == [other]
    assert ids("dead_letter=true") == [dead]
    assert ids("dead_letter=false&status=queued&model=tiny") == [queued]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("status=done", "status"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=ten", "limit"),
        ("limit=1&limit=2", "limit"),
        ("after=x", "after"),
        ("dead_letter=maybe", "dead_letter"),
        ("model=%00", "model"),
        ("order=asc", "order"),
    ],
)
def test_a_wrong_list_is_named(api: RunningApi, query: str, field: str) -> None:
    answer = api.client.get(f"/v1/jobs?{query}")

    assert (answer.status_code, answer.json()["field"]) == (400, field)


def test_cancelling_is_idempotent_and_leaves_ended_jobs(api: RunningApi) -> None:
    queued, done = api.submit(), api.submit()
    api.worker.succeed(done)
    answers = [api.client.post(f"/v1/jobs/{job_id}/cancel") for job_id in (queued, queued, done)]
    unknown = api.client.post(f"/v1/jobs/{UNKNOWN}/cancel")

    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert [answer.json()["status"] for answer in answers] == ["cancelled", "cancelled", "succeeded"]
    assert (unknown.status_code, unknown.json()["code"]) == (404, "job_not_found")


def test_models_are_listed_as_openai_does(api: RunningApi, tmp_path: Path) -> None:
    publish_model(tmp_path / "models", version="2")
    api.worker.register()
    listed = api.client.get("/v1/models").json()
    shown = api.client.get(f"/v1/models/{MODEL}").json()
    missing = api.client.get("/v1/models/nope")

    assert listed["object"] == "list"
    (model,) = listed["data"]
    assert (model["id"], model["object"], model["owned_by"]) == (MODEL, "model", "batchfleet")
    assert model["created"] > 0
    assert (model["version"], model["versions"], model["task"]) == ("2", ["1", "2"], "embed")
    assert model["limits"]["max_items_per_job"] == 1024
    assert model["live_workers"] == 1
    assert shown["versions"] == ["1", "2"]
    assert (missing.status_code, missing.json()["code"]) == (404, "model_not_found")


def test_a_broken_model_does_not_hide_the_others(api: RunningApi, tmp_path: Path) -> None:
    publish_model(tmp_path / "models", name="broken")
    (tmp_path / "models" / "broken" / "1" / "model.toml").write_text("name = ")
    listed = api.client.get("/v1/models").json()
    asked = api.client.post("/v1/jobs", json={"model": "broken", "inputs": ["a"]})

    assert [model["id"] for model in listed["data"]] == [MODEL]
    assert (asked.status_code, asked.json()["code"]) == (500, "model_config_invalid")

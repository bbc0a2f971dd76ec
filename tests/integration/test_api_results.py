"""`GET /v1/jobs/{id}/result` over a socket: forms, and every way of having no result."""

import dataclasses
import io
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from batchfleet.jobs.job import JobError, JobErrorCode, StoredResult, parse_job_id
from batchfleet.jobs.states import JobState
from batchfleet.results import codec
from batchfleet.results.blobs import result_key
from tests.support.apiserver import RunningApi, running_api

VECTORS = [np.array([0.1, -2.5, 3.0], dtype=np.float32), np.array([1.0, 0.0, 1e-7], dtype=np.float32)]


@pytest.fixture
def api(tmp_path: Path) -> Any:
    with running_api(tmp_path) as running:
        yield running


def _done(api: RunningApi, rows: Any = None) -> str:
    job_id = api.submit(inputs=["a", "b"])
    api.worker.succeed(job_id, VECTORS if rows is None else rows)
    return job_id


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (None, "application/json"),
        ("*/*", "application/json"),
        ("application/*", "application/json"),
        ("application/json", "application/json"),
        ("application/x-npy", "application/x-npy"),
        ("application/msgpack", "application/msgpack"),
        ("application/json;q=0.5, application/x-npy", "application/x-npy"),
        ("application/json;q=0, */*;q=0.1", "application/x-npy"),
        ("text/html, application/msgpack;q=0.9, */*;q=0.1", "application/msgpack"),
    ],
)
def test_the_client_chooses_the_form(api: RunningApi, accept: str | None, form: str) -> None:
    headers = {"accept": accept} if accept else {"accept": ""}
    answer = api.client.get(f"/v1/jobs/{_done(api)}/result", headers=headers)

    assert answer.status_code == 200
    assert answer.headers["content-type"] == form
    assert answer.headers["vary"] == "Accept"
    assert _vectors(form, answer.content) == [vector.tolist() for vector in VECTORS]


def _vectors(form: str, content: bytes) -> Any:
    if form == "application/json":
        values = msgspec.json.decode(content)["values"]
        return np.array(values, dtype=np.float32).tolist()
    if form == "application/x-npy":
        return np.load(io.BytesIO(content), allow_pickle=False).tolist()
    packed = msgspec.msgpack.decode(content)["values"]
    return np.frombuffer(packed["data"], packed["dtype"]).reshape(packed["shape"]).tolist()


@pytest.mark.parametrize("accept", ["text/html", "image/*", "application/json;q=0"])
def test_a_form_that_we_do_not_have_is_406(api: RunningApi, accept: str) -> None:
    answer = api.client.get(f"/v1/jobs/{_done(api)}/result", headers={"accept": accept})

    assert (answer.status_code, answer.json()["code"]) == (406, "not_acceptable")


def test_a_ragged_result_is_no_single_array(api: RunningApi) -> None:
    job_id = _done(api, [np.zeros(2, dtype=np.float32), np.zeros(3, dtype=np.float32)])
    answer = api.client.get(f"/v1/jobs/{job_id}/result", headers={"accept": "application/x-npy"})

    assert (answer.status_code, answer.json()["code"]) == (406, "not_representable")
    assert api.client.get(f"/v1/jobs/{job_id}/result").json() == {"values": [[0.0, 0.0], [0.0, 0.0, 0.0]]}


def test_a_result_that_is_not_ready_is_the_job(api: RunningApi) -> None:
    job_id = api.submit()
    answer = api.client.get(f"/v1/jobs/{job_id}/result", headers={"accept": "application/x-npy"})

    assert answer.status_code == 202
    assert answer.headers["retry-after"] == "1"
    assert answer.headers["location"] == f"/v1/jobs/{job_id}"
    assert answer.headers["content-type"] == "application/json"
    assert (answer.json()["id"], answer.json()["status"]) == (job_id, "queued")
    assert "values" not in answer.json()


def test_fetching_a_result_does_not_wait(api: RunningApi) -> None:
    answer = api.client.get(f"/v1/jobs/{api.submit()}/result?wait=5")

    assert (answer.status_code, answer.json()["field"]) == (400, "wait")


def test_a_failed_job_has_no_result_and_says_why(api: RunningApi) -> None:
    job_id = api.submit()
    api.worker.fail(job_id, JobError(JobErrorCode.INPUT_INVALID, "no good", 0))
    answer = api.client.get(f"/v1/jobs/{job_id}/result")

    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["job_id"]) == (409, "job_failed", job_id)
    assert problem["detail"] == "no good"
    assert problem["job_error"] == {"code": "input_invalid", "message": "no good", "item": 0, "field": "inputs[0]"}


def test_cancelled_and_expired_jobs_have_no_result(api: RunningApi) -> None:
    cancelled, expired = api.submit(), api.submit()
    api.client.post(f"/v1/jobs/{cancelled}/cancel")
    api.worker.settle(api.worker.claim(expired), JobState.EXPIRED)
    answers = [api.client.get(f"/v1/jobs/{job_id}/result") for job_id in (cancelled, expired)]

    assert [answer.status_code for answer in answers] == [409, 409]
    assert [answer.json()["code"] for answer in answers] == ["job_cancelled", "job_expired"]


def test_a_result_in_the_blob_store_is_handed_out(api: RunningApi) -> None:
    job_id, data = _in_blob(api)
    answer = api.client.get(f"/v1/jobs/{job_id}/result", headers={"accept": "application/x-npy"})

    assert answer.status_code == 200
    assert np.load(io.BytesIO(answer.content)).tobytes() == data
    assert "result" not in api.client.get(f"/v1/jobs/{job_id}").json()


def test_a_result_that_was_removed_is_gone(api: RunningApi) -> None:
    job_id, _ = _in_blob(api)
    api.parts.blobs.delete(result_key(parse_job_id(job_id), 1))
    answer = api.client.get(f"/v1/jobs/{job_id}/result")

    assert (answer.status_code, answer.json()["code"]) == (410, "result_gone")


def test_a_result_whose_row_is_gone_is_gone(api: RunningApi, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = _done(api)
    look_up = api.store.look_up

    def without_result(*args: Any, **options: Any) -> Any:
        return [_without_result(record) for record in look_up(*args, **options)]

    monkeypatch.setattr(api.store, "look_up", without_result)
    answer = api.client.get(f"/v1/jobs/{job_id}/result")

    assert (answer.status_code, answer.json()["code"]) == (410, "result_gone")
    assert "result" not in api.client.get(f"/v1/jobs/{job_id}").json()


def test_a_blob_store_that_is_away_is_503(api: RunningApi, tmp_path: Path) -> None:
    job_id, _ = _in_blob(api)
    path = tmp_path / "blobs" / result_key(parse_job_id(job_id), 1)
    path.unlink()
    path.symlink_to(path)  # reading it fails, though it is there
    answer = api.client.get(f"/v1/jobs/{job_id}/result")

    assert (answer.status_code, answer.json()["code"]) == (503, "blobs_unavailable")


def test_a_corrupt_result_is_our_fault(api: RunningApi, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = _done(api)
    look_up = api.store.look_up

    def corrupt(*args: Any, **options: Any) -> Any:
        broken = StoredResult(format='{"n":2,"row":["<f4",[3]]}', data=b"short")
        return [dataclasses.replace(record, result=broken) for record in look_up(*args, **options)]

    monkeypatch.setattr(api.store, "look_up", corrupt)
    answer = api.client.get(f"/v1/jobs/{job_id}/result")

    assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")


def _in_blob(api: RunningApi) -> tuple[str, bytes]:
    job_id = api.submit()
    claimed = api.worker.claim(job_id)
    described, data = codec.encode_tensors([np.arange(50_000, dtype=np.float32)])
    key = result_key(claimed.id, claimed.epoch)
    api.parts.blobs.put(key, data)
    api.worker.settle(claimed, JobState.SUCCEEDED, format=described, blob_key=key)
    return job_id, data


def _without_result(record: Any) -> Any:
    return dataclasses.replace(record, result=None)

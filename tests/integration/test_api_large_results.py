"""Large results: sent in pieces, or fetched from the object store by whoever wants just what lies there."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

from api.blobreads import BlobReads
from api.routes.results import STREAMED_BYTES
from api.turns import Circuit
from batchfleet.jobs.job import parse_job_id
from batchfleet.jobs.states import JobState
from batchfleet.results import codec
from batchfleet.results.blobs import result_key
from batchfleet.results.connect import connect_blobs
from batchfleet.settings import Settings
from tests.support.apiserver import RunningApi, running_api
from tests.support.s3servers import Bucket, S3Server

NPY = {"Accept": "application/x-npy"}
ROWS = [np.arange(300_000, dtype=np.float32) + index for index in range(3)]


@pytest.fixture
def api(tmp_path: Path) -> Iterator[RunningApi]:
    with running_api(tmp_path) as running:
        yield running


@pytest.fixture
def with_s3(tmp_path: Path, bucket: Bucket) -> Iterator[RunningApi]:
    """An API whose blobs are in S3."""
    blobs = connect_blobs(Settings(**bucket.settings))  # type: ignore[arg-type]
    with running_api(tmp_path, blobs=blobs) as running:
        yield running
    blobs.close()


def _settled(api: RunningApi, rows: list[Any] | None = None) -> str:
    """Returns a job whose result is in the blob store, as a worker puts it there."""
    job_id = api.submit(inputs=["a"] * len(ROWS))
    claimed = api.worker.claim(job_id)
    described, data = codec.as_blob(*codec.encode_tensors(ROWS if rows is None else rows))
    key = result_key(claimed.id, claimed.epoch)
    api.parts.blobs.put(key, data)
    api.worker.settle(claimed, JobState.SUCCEEDED, format=described, blob_key=key)
    return job_id


def _check(form: str, content: bytes) -> None:
    if form == "application/json":
        values = np.array(msgspec.json.decode(content)["values"], dtype=np.float32)
    elif form == "application/x-npy":
        values = np.load(io.BytesIO(content), allow_pickle=False)
    else:
        packed = msgspec.msgpack.decode(content)["values"]
        values = np.frombuffer(packed["data"], packed["dtype"]).reshape(packed["shape"])
    assert np.array_equal(values, np.stack(ROWS))


@pytest.mark.parametrize("form", ["application/json", "application/x-npy", "application/msgpack"])
def test_a_large_result_of_a_folder_comes_in_pieces(api: RunningApi, form: str) -> None:
    assert sum(row.nbytes for row in ROWS) > STREAMED_BYTES
    with api.client.stream("GET", f"/v1/jobs/{_settled(api)}/result", headers={"Accept": form}) as answer:
        content = b"".join(answer.iter_raw())

    assert answer.status_code == 200
    assert answer.headers["content-type"] == form
    assert answer.headers["vary"] == "Accept"
    assert answer.headers["transfer-encoding"] == "chunked"
    _check(form, content)


def test_what_lies_in_s3_as_asked_for_is_fetched_there(with_s3: RunningApi) -> None:
    job_id = _settled(with_s3)

    answer = with_s3.client.get(f"/v1/jobs/{job_id}/result", headers=NPY)
    fetched = httpx.get(answer.headers["location"])

    assert (answer.status_code, answer.content, answer.headers["vary"]) == (303, b"", "Accept")
    assert fetched.status_code == 200
    # Not each server heeds it; the signature covers it all the same.
    assert "response-content-type=application%2Fx-npy" in answer.headers["location"]
    assert f"{job_id}.npy" in answer.headers["location"]
    _check("application/x-npy", fetched.content)


@pytest.mark.parametrize("form", ["application/json", "application/msgpack"])
def test_nobody_is_sent_to_what_he_did_not_ask_for(with_s3: RunningApi, form: str) -> None:
    answer = with_s3.client.get(f"/v1/jobs/{_settled(with_s3)}/result", headers={"Accept": form})

    assert (answer.status_code, answer.headers["content-type"]) == (200, form)
    _check(form, answer.content)


def test_who_cannot_reach_the_object_store_says_so(with_s3: RunningApi) -> None:
    answer = with_s3.client.get(f"/v1/jobs/{_settled(with_s3)}/result?redirect=false", headers=NPY)

    assert answer.status_code == 200
    _check("application/x-npy", answer.content)
    wrong = with_s3.client.get(f"/v1/jobs/{with_s3.submit()}/result?redirect=maybe", headers=NPY)
    assert (wrong.status_code, wrong.json()["field"]) == (400, "redirect")


def test_a_ragged_result_in_s3_is_no_file_to_be_sent_to(with_s3: RunningApi) -> None:
    job_id = _settled(with_s3, [ROWS[0], ROWS[1], np.ones(2, np.float32)])

    as_array = with_s3.client.get(f"/v1/jobs/{job_id}/result", headers=NPY)
    as_json = with_s3.client.get(f"/v1/jobs/{job_id}/result")

    assert (as_array.status_code, as_array.json()["code"]) == (406, "not_representable")
    assert [len(row) for row in as_json.json()["values"]] == [300_000, 300_000, 2]


@pytest.mark.parametrize("headers", [NPY, {}])
def test_an_object_that_is_not_there_is_gone_and_no_dead_link(with_s3: RunningApi, headers: dict[str, str]) -> None:
    job_id = _settled(with_s3)
    with_s3.parts.blobs.delete(result_key(parse_job_id(job_id), 1))

    answer = with_s3.client.get(f"/v1/jobs/{job_id}/result", headers=headers)

    assert (answer.status_code, answer.json()["code"]) == (410, "result_gone")


def test_an_s3_that_hangs_is_told_in_time_then_at_once_and_then_used_again(own_nanio: S3Server, tmp_path: Path) -> None:
    blobs = connect_blobs(Settings(**own_nanio.make_bucket().settings))  # type: ignore[arg-type]
    with running_api(tmp_path, blobs=blobs) as api:
        job_id = _settled(api)
        api.api.services.blobs = BlobReads(deadline_s=1.0, circuit=Circuit(limit=2, pause_s=0.2))
        own_nanio.pause()
        answers = [api.client.get(f"/v1/jobs/{job_id}/result") for _ in range(3)]

        assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {(503, "blobs_unavailable")}
        assert [answer.json()["detail"] for answer in answers] == [
            *["the blob store did not answer within 1 s"] * 2,
            "the blob store does not answer",
        ]
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in answers)
        own_nanio.resume()
        while (answer := api.client.get(f"/v1/jobs/{job_id}/result")).status_code == 503:
            assert answer.json()["code"] == "blobs_unavailable"
        _check("application/json", answer.content)
    blobs.close()


def test_a_result_that_retention_removed_is_gone_wherever_it_was_shown(api: RunningApi) -> None:
    in_row, in_blob = api.submit(inputs=["a"] * 3), _settled(api)
    api.worker.succeed(in_row)
    before = api.client.get(f"/v1/jobs/{in_row}")
    api.store.purge_results(-1.0, 10)

    for job_id in (in_row, in_blob):
        gone = api.client.get(f"/v1/jobs/{job_id}/result")
        assert (gone.status_code, gone.json()["code"]) == (410, "result_gone")
        looked_up = api.client.post("/v1/jobs/lookup", json={"ids": [job_id], "include": ["result"]}).json()["jobs"]
        listed = [job for job in api.client.get("/v1/jobs").json()["jobs"] if job["id"] == job_id]
        for job in (*looked_up, *listed, api.client.get(f"/v1/jobs/{job_id}").json()):
            assert (job["status"], job["result_gone"]) == ("succeeded", True)
            assert not {"result", "result_url"} & set(job)
    assert {"result", "result_url"} <= set(before.json())
    assert "result_gone" not in before.json()
    again = api.client.get(f"/v1/jobs/{in_row}", headers={"If-None-Match": before.headers["etag"]})
    assert again.status_code == 200

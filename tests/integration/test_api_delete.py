"""`DELETE /v1/jobs/{id}`: a job that has ended leaves nothing behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from batchfleet.jobs.job import JobError, JobLinks, format_job_id, new_job_id, parse_job_id
from batchfleet.jobs.states import JobState
from batchfleet.outbox.delivery import DeliveryFilter, Outcome
from batchfleet.results import codec
from batchfleet.results.blobs import result_key
from tests.support.apiserver import RunningApi, running_api
from tests.support.stores import new_job


@pytest.fixture
def api(tmp_path: Path) -> Iterator[RunningApi]:
    with running_api(tmp_path) as running:
        yield running


def test_record_result_and_idempotency_key_are_gone(api: RunningApi) -> None:
    headers = {"Idempotency-Key": "k"}
    job = {"model": "tiny", "inputs": ["a"]}
    job_id = api.client.post("/v1/jobs", json=job, headers=headers).json()["id"]
    api.worker.succeed(job_id)

    answer = api.client.delete(f"/v1/jobs/{job_id}")

    assert (answer.status_code, answer.content) == (204, b"")
    assert "content-type" not in answer.headers
    for path in ("", "/result"):
        assert api.client.get(f"/v1/jobs/{job_id}{path}").json()["code"] == "job_not_found"
    assert api.client.delete(f"/v1/jobs/{job_id}").status_code == 404
    assert api.client.post("/v1/jobs/lookup", json={"ids": [job_id]}).json()["jobs"][0]["status"] == "unknown"
    assert api.client.post("/v1/jobs", json=job, headers=headers).json()["id"] != job_id


@pytest.mark.parametrize("state", [JobState.QUEUED, JobState.RUNNING])
def test_a_job_that_has_not_ended_stays(api: RunningApi, state: JobState) -> None:
    job_id = api.submit()
    if state is JobState.RUNNING:
        api.worker.claim(job_id)

    answer = api.client.delete(f"/v1/jobs/{job_id}")

    assert (answer.status_code, answer.json()["code"]) == (409, "job_not_ended")
    assert state in answer.json()["detail"]
    assert api.client.get(f"/v1/jobs/{job_id}").json()["status"] == state


def test_every_end_can_be_removed(api: RunningApi) -> None:
    failed, cancelled, expired = (api.submit() for _ in range(3))
    api.worker.fail(failed, JobError("input_invalid", "no"))
    api.client.post(f"/v1/jobs/{cancelled}/cancel")
    api.worker.settle(api.worker.claim(expired), JobState.EXPIRED)

    assert [api.client.delete(f"/v1/jobs/{job_id}").status_code for job_id in (failed, cancelled, expired)] == [204] * 3
    assert api.client.get("/v1/jobs").json()["jobs"] == []


def test_a_job_whose_output_is_still_to_be_written_stays(api: RunningApi) -> None:
    links = JobLinks(output_uri="s3://bucket/out.json")
    job = new_job(id=new_job_id(), links=links)
    api.store.submit([job])
    job_id = format_job_id(job.id)
    api.worker.succeed(job_id)

    answer = api.client.delete(f"/v1/jobs/{job_id}")

    assert (answer.status_code, answer.json()["code"]) == (409, "output_pending")
    assert int(answer.headers["retry-after"]) > 0
    assert api.client.get(f"/v1/jobs/{job_id}/result").status_code == 200
    outbox = api.parts.outbox
    (owed,) = outbox.list_deliveries(DeliveryFilter(job_id=job.id))
    begun = outbox.begin(owed.id, lease_s=60)
    assert begun is not None
    assert outbox.finish(begun.id, begun.epoch, Outcome(duration_s=0.1), retry_in_s=None)
    assert api.client.delete(f"/v1/jobs/{job_id}").status_code == 204


def _in_blob(api: RunningApi) -> tuple[str, str]:
    job_id = api.submit()
    claimed = api.worker.claim(job_id)
    described, data = codec.encode_values(["label"])
    key = result_key(claimed.id, claimed.epoch)
    api.parts.blobs.put(key, data)
    api.worker.settle(claimed, JobState.SUCCEEDED, format=described, blob_key=key)
    return job_id, key


def test_its_blob_goes_with_it(api: RunningApi) -> None:
    job_id, key = _in_blob(api)

    assert api.client.delete(f"/v1/jobs/{job_id}").status_code == 204
    assert not api.parts.blobs.exists(key)


def test_a_blob_store_that_is_away_does_not_matter(api: RunningApi, tmp_path: Path) -> None:
    """The record is gone, and with it what named the blob: the sweep finds it."""
    job_id, key = _in_blob(api)
    path = tmp_path / "blobs" / key
    path.unlink()
    path.parent.rmdir()
    path.parent.symlink_to(path.parent)  # nothing under it can be reached

    assert api.client.delete(f"/v1/jobs/{job_id}").status_code == 204
    assert api.store.look_up([parse_job_id(job_id)]) == []


@pytest.mark.parametrize("job_id", ["job_" + "0" * 32, "nonsense", "job_" + "F" * 32])
def test_what_is_no_job_cannot_be_removed(api: RunningApi, job_id: str) -> None:
    answer = api.client.delete(f"/v1/jobs/{job_id}")

    assert (answer.status_code, answer.json()["code"]) == (404, "job_not_found")


def test_a_database_that_is_away_is_503(api: RunningApi) -> None:
    job_id = api.submit()
    api.store.down = True

    assert api.client.delete(f"/v1/jobs/{job_id}").status_code == 503

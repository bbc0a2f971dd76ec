"""The client where keys are asked for, and where results lie in S3: against a real API and a real object store."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from batchfleet.access.keys import Role
from batchfleet.cli.main import main
from batchfleet.client import (
    Client,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    RetryPolicy,
    UnauthenticatedError,
)
from batchfleet.embedded.exits import Exit
from batchfleet.jobs.states import JobState
from batchfleet.results import codec
from batchfleet.results.blobs import result_key
from batchfleet.results.connect import connect_blobs
from batchfleet.settings import Settings
from tests.support.apiserver import MODEL, RunningApi, running_api
from tests.support.s3servers import Bucket

ROWS = [np.arange(5_000, dtype=np.float32) + index for index in range(3)]
QUICK = RetryPolicy(retries=1, first_s=0.01, max_s=0.05)


@pytest.fixture
def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningApi]:
    monkeypatch.delenv("BATCHFLEET_API_KEY", raising=False)
    with running_api(tmp_path, require_keys=True) as running:
        yield running


class Seen(httpx.BaseTransport):
    """Sends requests on, and notes to whom and with which headers."""

    def __init__(self) -> None:
        self.requests: list[httpx.Request] = []
        self._inner = httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return self._inner.handle_request(request)

    def close(self) -> None:
        self._inner.close()


def test_a_key_opens_what_its_role_allows(guarded: RunningApi) -> None:
    with Client(guarded.url) as stranger, pytest.raises(UnauthenticatedError) as nobody:
        stranger.models()
    with Client(guarded.url, guarded.key(roles=[Role.READ])) as reader:
        assert [model.id for model in reader.models()] == [MODEL]
        with pytest.raises(ForbiddenError) as forbidden:
            reader.submit(MODEL, ["a"])
    with Client(guarded.url, guarded.key()) as client:
        assert client.submit(MODEL, ["a"]).status == "queued"

    assert nobody.value.code == "unauthenticated"
    assert forbidden.value.code == "forbidden"


def test_another_tenants_job_is_none(guarded: RunningApi) -> None:
    with Client(guarded.url, guarded.key("a")) as ours, Client(guarded.url, guarded.key("b")) as theirs:
        job_id = ours.submit(MODEL, ["a"]).id

        for ask in (theirs.get, theirs.cancel, theirs.delete, theirs.result, theirs.wait):
            with pytest.raises(NotFoundError):
                ask(job_id)
        assert [job.status for job in theirs.as_completed([job_id])] == ["unknown"]
        assert list(theirs.jobs()) == []
        assert ours.get(job_id).status == "queued"


def test_a_job_is_removed_once_it_has_ended(guarded: RunningApi) -> None:
    with Client(guarded.url, guarded.key()) as client:
        job_id = client.submit(MODEL, ["a"]).id
        with pytest.raises(ConflictError) as conflict:
            client.delete(job_id)
        assert conflict.value.code == "job_not_ended"

        client.cancel(job_id)
        client.delete(job_id)

        with pytest.raises(NotFoundError, match=job_id):
            client.delete(job_id)


def test_commands_take_the_key_and_say_what_is_missing(
    guarded: RunningApi, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BATCHFLEET_URL", guarded.url)

    assert main(["jobs"]) == Exit.DENIED
    assert "give a key by BATCHFLEET_API_KEY or --api-key" in capsys.readouterr().err
    assert main(["jobs", "--api-key", guarded.key(roles=[Role.READ])]) == Exit.OK
    monkeypatch.setenv("BATCHFLEET_API_KEY", guarded.key(roles=[Role.READ]))
    assert main(["submit", MODEL, "a"]) == Exit.DENIED
    monkeypatch.setenv("BATCHFLEET_API_KEY", guarded.key())
    assert main(["submit", MODEL, "a"]) == Exit.OK
    job_id = capsys.readouterr().out.split()[-1]

    assert main(["delete", job_id]) == Exit.FAILED
    assert capsys.readouterr().err == f"batchfleet: {job_id}: not ended; cancel first\n"
    assert main(["cancel", job_id]) == Exit.OK
    assert main(["delete", job_id, "--json"]) == Exit.OK
    assert main(["delete", job_id]) == Exit.NOT_FOUND


def settled_in_s3(running: RunningApi) -> str:
    """Returns a job whose result lies in the blob store, as a worker puts it there."""
    job_id = running.submit(inputs=["a"] * len(ROWS))
    claimed = running.worker.claim(job_id)
    described, data = codec.as_blob(*codec.encode_tensors(ROWS))
    key = result_key(claimed.id, claimed.epoch)
    running.parts.blobs.put(key, data)
    running.worker.settle(claimed, JobState.SUCCEEDED, format=described, blob_key=key)
    return job_id


def test_a_large_result_is_fetched_from_s3_which_does_not_learn_the_key(tmp_path: Path, bucket: Bucket) -> None:
    blobs = connect_blobs(Settings(**bucket.settings))  # type: ignore[arg-type]
    seen = Seen()
    with (
        running_api(tmp_path, blobs=blobs) as running,
        Client(running.url, running.key(), transport=seen) as client,
    ):
        job_id = settled_in_s3(running)

        np.testing.assert_array_equal(client.result(job_id), np.stack(ROWS))
        ours, theirs = seen.requests
        np.testing.assert_array_equal(client.item_results(job_id).array(), np.stack(ROWS))
    blobs.close()

    assert "Authorization" in ours.headers
    assert str(theirs.url).startswith(bucket.server.url)
    assert "Authorization" not in theirs.headers


def test_an_object_store_out_of_reach_is_reached_through_the_fleet(tmp_path: Path, nanio_bucket: Bucket) -> None:
    """The link names an address that only the fleet's own network knows."""
    blobs = connect_blobs(Settings(**nanio_bucket.settings))  # type: ignore[arg-type]

    class NoWayThere(Seen):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            if str(request.url).startswith(nanio_bucket.server.url):
                raise httpx.ConnectError("no route to host")
            return super().handle_request(request)

    with (
        running_api(tmp_path, blobs=blobs) as running,
        Client(running.url, policy=QUICK, transport=NoWayThere()) as client,
    ):
        np.testing.assert_array_equal(client.result(settled_in_s3(running)), np.stack(ROWS))
    blobs.close()

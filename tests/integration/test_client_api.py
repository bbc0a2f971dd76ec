"""The client against a real API process: what mocks would only repeat."""

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest

from batchfleet.client import (
    Client,
    ConflictError,
    InvalidError,
    JobRequest,
    NotFoundError,
    NotReadyError,
    PartialResultError,
    RetryPolicy,
    UnavailableError,
    WaitTimeoutError,
)
from batchfleet.errors import StoreUnavailableError
from batchfleet.jobs.job import JobError, JobErrorCode, NewJob
from batchfleet.jobs.states import JobState
from batchfleet.results import codec
from tests.support.apiserver import MODEL, RunningApi, running_api

QUICK = RetryPolicy(retries=3, first_s=0.01, max_s=0.05)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningApi]:
    with running_api(tmp_path) as api:
        yield api


@pytest.fixture
def client(running: RunningApi) -> Iterator[Client]:
    with Client(running.url, policy=QUICK) as found:
        yield found


class LosesAnswers(httpx.BaseTransport):
    """Sends requests on, and loses the answers of the first ones."""

    def __init__(self, lost: int) -> None:
        self.lost = lost
        self.sent = 0
        self._inner = httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._inner.handle_request(request)
        self.sent += 1
        if self.lost:
            self.lost -= 1
            answer.read()
            answer.close()
            raise httpx.ReadError("the connection broke before the answer came")
        return answer

    def close(self) -> None:
        self._inner.close()


def partial_result(running: RunningApi, job_id: str) -> None:
    claimed = running.worker.claim(job_id)
    rows = [np.arange(3, dtype=np.float32), None, np.ones(3, dtype=np.float32)]
    described, data = codec.encode_tensors(rows, [JobError("input_too_long", "too long", 1)])
    running.worker.settle(claimed, JobState.SUCCEEDED, data=data, format=described)


def test_a_job_from_submission_to_vectors(running: RunningApi, client: Client) -> None:
    job = client.submit(MODEL, ["a", "b"], lane="online", metadata={"for": "test"})
    with pytest.raises(NotReadyError):
        client.result(job.id)
    running.worker.succeed(job.id)

    ended = client.wait(job.id, timeout_s=30)

    assert ended.succeeded
    assert ended.metadata == {"for": "test"}
    np.testing.assert_array_equal(client.result(job.id), np.tile(np.arange(3, dtype=np.float32), (2, 1)))
    np.testing.assert_array_equal(client.item_results(job.id).array(), client.result(job.id))
    assert client.result_json(job.id) == {"values": [[0.0, 1.0, 2.0]] * 2}


def test_a_lost_answer_never_means_a_second_job(running: RunningApi) -> None:
    lossy = LosesAnswers(1)
    with Client(running.url, policy=QUICK, transport=lossy) as client:
        job = client.submit(MODEL, ["a"])
        lossy.lost = 1
        submissions = client.submit_many(JobRequest(model=MODEL, inputs=[str(i)]) for i in range(5))

        assert [found.id for found in client.jobs()] == [s.id for s in reversed(submissions)] + [job.id]
    assert all(submission.replayed for submission in submissions)
    assert lossy.sent == 5


def test_what_the_database_could_not_take_is_sent_again(running: RunningApi, client: Client) -> None:
    """A bulk answer may hold refusals that are none of the jobs' faults: those jobs are offered again."""
    failures = iter([StoreUnavailableError("away"), StoreUnavailableError("still away")])

    def away(job: NewJob) -> bool:
        for failure in failures:
            raise failure
        return False

    running.store.chokes_on = away
    submissions = client.submit_many(JobRequest(model=MODEL, inputs=[text]) for text in ["a", "b", "c"])

    assert next(failures, None) is None
    assert [submission.index for submission in submissions] == [0, 1, 2]
    assert [job.id for job in client.jobs()] == [submission.id for submission in reversed(submissions)]


def test_a_refused_job_does_not_hinder_the_others(client: Client) -> None:
    requests = [JobRequest(model=MODEL, inputs=["a"]), JobRequest(model=MODEL, inputs=[5])]

    taken, refused = client.submit_many([*requests])

    assert taken.id is not None
    assert refused.error is not None
    assert (refused.error.code, refused.error.field) == ("invalid_request", "inputs[0]")


def test_a_generator_is_read_no_further_than_it_must(client: Client) -> None:
    read: list[int] = []

    def endless() -> Iterator[JobRequest]:
        while True:
            read.append(len(read))
            yield JobRequest(model=MODEL, inputs=["a"])

    submissions = client.submit_each(endless(), chunk=10)
    first = [next(submissions) for _ in range(12)]

    assert [submission.index for submission in first] == list(range(12))
    assert len(read) == 21  # two chunks, and the one that did not fit


def test_chunks_are_bounded_by_bytes_as_well(tmp_path: Path) -> None:
    with running_api(tmp_path, max_body_bytes=3_000) as running, Client(running.url, policy=QUICK) as client:
        texts = ["x" * 700] * 9 + ["y" * 5_000, "z"]
        small = client.submit_many((JobRequest(model=MODEL, inputs=[t]) for t in texts), chunk_bytes=2_000)
        halved = client.submit_many(JobRequest(model=MODEL, inputs=[t]) for t in texts)

    for submissions in (small, halved):
        assert [submission.id is not None for submission in submissions] == [True] * 9 + [False, True]
        assert submissions[9].error is not None
        assert submissions[9].error.code == "too_large"


def test_jobs_come_as_they_end(running: RunningApi, client: Client) -> None:
    ids = [client.submit(MODEL, [str(i)]).id for i in range(4)]
    running.worker.succeed(ids[2])
    completed = client.as_completed([*ids, "job_" + "0" * 32], timeout_s=60)

    first = {next(completed).id: None for _ in range(2)}
    running.worker.fail(ids[0], JobError(JobErrorCode.PASS_FAILED, "no"))
    third = next(completed)
    running.worker.succeed(ids[3])
    running.worker.succeed(ids[1])
    rest = {job.id for job in completed}

    assert set(first) == {ids[2], "job_" + "0" * 32}
    assert (third.id, third.status) == (ids[0], "failed")
    assert third.error is not None
    assert rest == {ids[1], ids[3]}


def test_a_ring_ends_a_wait(running: RunningApi, client: Client) -> None:
    job_id = running.submit()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.wait, job_id)
        running.await_waiting()
        running.worker.succeed(job_id)
        assert waiting.result(30).succeeded


def test_a_wait_is_bounded(running: RunningApi, client: Client) -> None:
    job_id = running.submit()

    with pytest.raises(WaitTimeoutError) as one:
        client.wait(job_id, timeout_s=0.05)
    with pytest.raises(WaitTimeoutError) as many:
        list(client.as_completed([job_id], timeout_s=0.05))

    assert one.value.pending == many.value.pending == (job_id,)


def test_a_partial_result_is_a_value(running: RunningApi, client: Client) -> None:
    job_id = client.submit(MODEL, ["a", "b", "c"], on_item_error="partial").id
    partial_result(running, job_id)

    with pytest.raises(PartialResultError, match="1 of its inputs have no value") as caught:
        client.result(job_id)

    items = caught.value.items
    assert [value is None for value in items.values] == [False, True, False]
    np.testing.assert_array_equal(items.values[2], np.ones(3, dtype=np.float32))
    assert [(error.index, error.code) for error in items.errors] == [(1, "input_too_long")]
    with pytest.raises(ValueError, match="1 input"):
        items.array()
    with pytest.raises(InvalidError) as refused:
        client.download(job_id, "npy")
    assert refused.value.code == "not_representable"
    assert client.download(job_id, "json").startswith(b'{"values":[[0.0,1.0,2.0],null')


def test_refusals_say_what_why_and_where(running: RunningApi, client: Client) -> None:
    with pytest.raises(InvalidError) as invalid:
        client.submit(MODEL, ["a", 5])
    assert (invalid.value.code, invalid.value.field) == ("invalid_request", "inputs[1]")
    assert invalid.value.request_id

    with pytest.raises(NotFoundError) as missing:
        client.submit("nothing", ["a"])
    assert missing.value.code == "model_not_found"

    failed = running.submit()
    running.worker.fail(failed, JobError(JobErrorCode.INPUT_INVALID, "not a text", 0))
    with pytest.raises(ConflictError) as conflict:
        client.result(failed)
    assert conflict.value.code == "job_failed"
    assert conflict.value.job_error is not None
    assert (conflict.value.job_error.code, conflict.value.job_error.item) == ("input_invalid", 0)

    running.store.down = True
    with pytest.raises(UnavailableError) as away:
        client.get(failed)
    assert away.value.code == "store_unavailable"
    assert away.value.repeats == QUICK.retries
    running.store.down = False


def test_all_pages_are_walked(running: RunningApi, client: Client) -> None:
    ids = [running.submit() for _ in range(5)]

    assert [job.id for job in client.jobs(page=2)] == ids[::-1]
    assert [job.id for job in client.jobs(page=2, status=["failed"])] == []


def test_threads_share_a_client(client: Client) -> None:
    barrier = threading.Barrier(4)

    def submit(number: int) -> list[str | None]:
        barrier.wait(30)
        requests = [JobRequest(model=MODEL, inputs=[f"{number} {i}"]) for i in range(25)]
        return [submission.id for submission in client.submit_many(requests, chunk=5)]

    with ThreadPoolExecutor(4) as pool:
        found = [job_id for ids in pool.map(submit, range(4)) for job_id in ids]

    assert len(set(found)) == 100
    assert {job.id for job in client.jobs()} == set(found)


def test_the_key_shows_nowhere(running: RunningApi, caplog: pytest.LogCaptureFixture) -> None:
    key = "bf_0123456789abcdef_" + "s" * 43
    with caplog.at_level(logging.DEBUG), Client(running.url, api_key=key) as client:
        shown = [repr(client), str(vars(client)), repr(client.webhooks)]
        with pytest.raises(Exception, match=r".") as caught:
            client.get("job_none")
        shown += [str(caught.value), repr(caught.value)]

    assert all("ssss" not in text for text in [*shown, caplog.text])

"""The client against a fleet that is just a function (httpx.MockTransport)."""

import io
import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

from api.problems import TABLE
from api.schemas import JobView
from batchfleet.client import (
    ApiError,
    Client,
    ClientConfigError,
    ConflictError,
    ConnectionFailedError,
    ForbiddenError,
    GoneError,
    InternalError,
    InvalidError,
    Job,
    JobRequest,
    NotFoundError,
    NotReadyError,
    OverloadedError,
    RetryPolicy,
    TooLargeError,
    UnauthenticatedError,
    UnavailableError,
    WebhookVerificationError,
    verify_webhook,
)
from batchfleet.client.transport import Transport
from batchfleet.outbox.signature import new_secret, signature_headers

Handler = Callable[[httpx.Request], httpx.Response]
AT_ONCE = RetryPolicy(retries=3, first_s=0.0, max_s=0.0)


def client(handler: Handler) -> Client:
    return Client("http://fleet", policy=AT_ONCE, transport=httpx.MockTransport(handler))


def problem(status: int, code: str, **members: Any) -> httpx.Response:
    body = {"type": f"urn:batchfleet:error:{code}", "title": "no", "status": status, "code": code, **members}
    return httpx.Response(status, json=body, headers={"Content-Type": "application/problem+json"})


def test_submit_sends_only_what_was_said_and_a_key_of_its_own() -> None:
    seen: list[httpx.Request] = []

    def fleet(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(202, json={"id": "job_1", "status": "queued", "later_member": 1})

    with client(fleet) as fleet_client:
        job = fleet_client.submit("m", ["a", "b"], lane="online", wait_s=1.5)

    assert (job.id, job.status, job.ended) == ("job_1", "queued", False)
    assert json.loads(seen[0].content) == {"model": "m", "inputs": ["a", "b"], "lane": "online"}
    assert seen[0].headers["Idempotency-Key"]
    assert seen[0].url.params["wait"] == "1.500"


def test_a_repeat_carries_the_same_key() -> None:
    keys: list[str] = []

    def fleet(request: httpx.Request) -> httpx.Response:
        keys.append(request.headers["Idempotency-Key"])
        if len(keys) == 1:
            raise httpx.ReadError("connection reset")
        if len(keys) == 2:
            return problem(503, "store_unavailable")
        return httpx.Response(202, json={"id": "job_1", "status": "queued"})

    with client(fleet) as fleet_client:
        assert fleet_client.submit("m", ["a"]).id == "job_1"

    assert len(keys) == 3
    assert len(set(keys)) == 1


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (problem(400, "invalid_request", detail="too many", field="inputs[4]"), InvalidError),
        (problem(409, "job_failed"), ConflictError),
        (httpx.Response(400, text="<html>a proxy</html>"), InvalidError),
    ],
)
def test_refusals_are_typed_and_not_repeated(answer: httpx.Response, error: type[Exception]) -> None:
    calls: list[httpx.Request] = []

    def fleet(request: httpx.Request) -> httpx.Response:
        calls.append(request)
        return answer

    with client(fleet) as fleet_client, pytest.raises(error):
        fleet_client.get("job_1")

    assert len(calls) == 1


def test_the_field_is_named() -> None:
    refusal = problem(400, "invalid_request", detail="too long", field="inputs[4]")

    with (
        client(lambda _: refusal) as fleet_client,
        pytest.raises(InvalidError, match=r"^inputs\[4\]: .*too long"),
    ):
        fleet_client.submit("m", ["a"])


def test_an_overload_is_repeated_then_raised_with_the_servers_wish() -> None:
    calls: list[httpx.Request] = []

    def fleet(request: httpx.Request) -> httpx.Response:
        calls.append(request)
        answer = problem(429, "overloaded")
        answer.headers["Retry-After"] = "7"
        return answer

    with client(fleet) as fleet_client, pytest.raises(OverloadedError) as caught:
        fleet_client.submit("m", ["a"])

    assert caught.value.retry_after_s == 7.0
    assert len(calls) == 1 + AT_ONCE.retries


def test_nobody_answers() -> None:
    def fleet(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with (
        client(fleet) as fleet_client,
        pytest.raises(ConnectionFailedError, match=r"no fleet answers at http://fleet .* `batchfleet up`"),
    ):
        fleet_client.get("job_1")


def test_bulk_goes_in_chunks_and_numbers_all_jobs() -> None:
    bodies: list[list[dict[str, Any]]] = []

    def fleet(request: httpx.Request) -> httpx.Response:
        assert request.headers["Content-Type"] == "application/x-ndjson"
        bodies.append([json.loads(line) for line in request.content.splitlines()])
        answers = [{"index": i, "id": f"job_{len(bodies)}_{i}", "status": "queued"} for i in range(len(bodies[-1]))]
        answers[-1] = {"index": len(answers) - 1, "error": {"code": "invalid_request", "message": "no"}}
        return httpx.Response(202, json={"jobs": answers})

    counts: list[int] = []
    with client(fleet) as fleet_client:
        jobs = (JobRequest(model="m", inputs=[str(i)]) for i in range(5))
        submissions = fleet_client.submit_many(jobs, chunk=2, progress=counts.append)

    assert [len(body) for body in bodies] == [2, 2, 1]
    assert [submission.index for submission in submissions] == [0, 1, 2, 3, 4]
    assert [submission.id is None for submission in submissions] == [False, True, False, True, True]
    assert counts == [2, 4, 5]
    keys = [job["idempotency_key"] for body in bodies for job in body]
    assert len(set(keys)) == 5


def test_bulk_without_keys_is_not_repeated() -> None:
    calls: list[httpx.Request] = []

    def fleet(request: httpx.Request) -> httpx.Response:
        calls.append(request)
        return problem(503, "store_unavailable")

    with client(fleet) as fleet_client, pytest.raises(UnavailableError):
        fleet_client.submit_many([JobRequest(model="m", inputs=["a"])], keys=False)

    assert len(calls) == 1


def test_a_result_is_an_array() -> None:
    expected = np.arange(6, dtype=np.float32).reshape(2, 3)
    buffer = io.BytesIO()
    np.save(buffer, expected)

    def fleet(request: httpx.Request) -> httpx.Response:
        assert request.headers["Accept"] == "application/x-npy"
        return httpx.Response(200, content=buffer.getvalue())

    with client(fleet) as fleet_client:
        np.testing.assert_array_equal(fleet_client.result("job_1"), expected)


def test_a_listing_asks_only_for_what_was_said() -> None:
    def fleet(request: httpx.Request) -> httpx.Response:
        assert dict(request.url.params) == {"status": "failed", "dead_letter": "true", "limit": "5"}
        return httpx.Response(200, json={"jobs": [{"id": "job_1", "status": "failed"}], "next": None})

    with client(fleet) as fleet_client:
        page = fleet_client.list_jobs(status="failed", dead_letter=True, limit=5)
    assert [job.id for job in page.jobs] == ["job_1"]
    assert page.next is None


def test_a_listing_of_several_states_and_its_next_page() -> None:
    def fleet(request: httpx.Request) -> httpx.Response:
        assert request.url.params["status"] == "failed,expired"
        return httpx.Response(200, json={"jobs": [], "next": "job_9"})

    with client(fleet) as fleet_client:
        assert fleet_client.list_jobs(status=["failed", "expired"]).next == "job_9"


@pytest.mark.parametrize("form", ["array", "json"])
def test_a_result_of_a_job_that_has_not_ended_is_a_typed_error(form: str) -> None:
    answer = httpx.Response(202, json={"id": "job_1", "status": "queued"}, headers={"Retry-After": "1"})

    with client(lambda _: answer) as fleet_client, pytest.raises(NotReadyError) as caught:
        fleet_client.result("job_1") if form == "array" else fleet_client.result_json("job_1")

    assert isinstance(caught.value, ConflictError)
    assert (caught.value.code, caught.value.job_status) == ("result_not_ready", "queued")
    assert caught.value.retry_after_s == 1.0
    assert str(caught.value) == "job_1 has not ended yet (queued)"


@pytest.mark.parametrize("inputs", ["abc", b"abc", {"text": "abc"}])
def test_a_single_text_is_not_taken_for_a_list_of_its_characters(inputs: Any) -> None:
    with client(lambda _: httpx.Response(500)) as fleet_client, pytest.raises(TypeError, match="list of items"):
        fleet_client.submit("m", inputs)
    with pytest.raises(TypeError, match="list of items"):
        JobRequest(model="m", inputs=inputs)


def test_an_unknown_job_is_named() -> None:
    with (
        client(lambda _: problem(404, "job_not_found", detail="no such job")) as fleet_client,
        pytest.raises(NotFoundError, match=r"^job_1: no such job$"),
    ):
        fleet_client.cancel("job_1")


def test_an_id_stays_one_segment_of_the_path() -> None:
    seen: list[bytes] = []

    def fleet(request: httpx.Request) -> httpx.Response:
        seen.append(request.url.raw_path)
        return problem(404, "job_not_found")

    with client(fleet) as fleet_client, pytest.raises(NotFoundError):
        fleet_client.get("../models?x#y")

    assert seen == [b"/v1/jobs/..%2Fmodels%3Fx%23y"]


@pytest.mark.parametrize(
    "ask",
    [lambda c: c.get("j"), lambda c: c.models(), lambda c: c.result("j"), lambda c: c.wait_many(["j"])],
    ids=["get", "models", "result", "wait_many"],
)
def test_an_answer_of_something_else_is_no_fleet(ask: Callable[[Client], Any]) -> None:
    with (
        client(lambda _: httpx.Response(200, text="<html>It works!</html>")) as fleet_client,
        pytest.raises(ConnectionFailedError, match="is no fleet"),
    ):
        ask(fleet_client)


@pytest.mark.parametrize("url", ["foo", "ftp://host", "http://", "http://[", "http://host:port", "http://host?x=1"])
def test_a_bad_url_is_refused_at_once(url: str) -> None:
    with pytest.raises(ClientConfigError, match="no URL of a fleet"):
        Client(url)


def test_a_key_that_no_header_can_hold_is_refused() -> None:
    with pytest.raises(ClientConfigError, match="API key"):
        Client("http://fleet", api_key="k\n")


def test_a_job_shows_what_http_shows_and_leaves_out_what_does_not_apply() -> None:
    body = {
        "id": "job_1",
        "status": "queued",
        "model": "m",
        "item_count": 1,
        "attempts": 0,
        "submitted_at": "2026-12-01T03:28:23.938524Z",
        "result_url": "/v1/jobs/job_1/result",
    }
    with client(lambda _: httpx.Response(200, json=body)) as fleet_client:
        assert msgspec.to_builtins(fleet_client.get("job_1")) == body


def test_the_client_has_the_members_that_the_api_shows() -> None:
    assert set(JobView.__struct_fields__) == set(Job.__struct_fields__)


def npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


class TestLinks:
    """A large result is fetched from where a link leads: another server, which must not learn the API key."""

    LINK = "http://s3/bucket/key?X-Amz-Signature=hunter2"

    def client(
        self, at_the_link: httpx.Response | Exception, location: str = LINK
    ) -> tuple[Client, list[httpx.Request]]:
        seen: list[httpx.Request] = []

        def fleet(request: httpx.Request) -> httpx.Response:
            seen.append(request)
            if request.url.host == "fleet":
                direct = request.url.params.get("redirect") == "false"
                content = npy(np.zeros(3))
                return (
                    httpx.Response(200, content=content)
                    if direct
                    else httpx.Response(303, headers={"Location": location})
                )
            if isinstance(at_the_link, Exception):
                raise at_the_link
            return at_the_link

        transport = httpx.MockTransport(fleet)
        return Client("http://fleet", "the-key", policy=AT_ONCE, transport=transport), seen

    def test_the_key_stays_here(self) -> None:
        client, seen = self.client(httpx.Response(200, content=npy(np.ones(3))))

        np.testing.assert_array_equal(client.result("job_1"), np.ones(3))

        assert [request.url.host for request in seen] == ["fleet", "s3"]
        assert seen[0].headers["Authorization"] == "Bearer the-key"
        assert "Authorization" not in seen[1].headers
        assert b"the-key" not in b"".join(part for pair in seen[1].headers.raw for part in pair)

    @pytest.mark.parametrize(
        "at_the_link",
        [
            httpx.Response(403),
            httpx.Response(503),
            httpx.Response(302),
            httpx.ConnectError("no"),
            httpx.ReadTimeout(""),
        ],
        ids=["expired", "busy", "elsewhere", "out of reach", "too slow"],
    )
    def test_a_link_of_no_use_makes_the_fleet_hand_it_out_itself(self, at_the_link: httpx.Response | Exception) -> None:
        client, seen = self.client(at_the_link)

        np.testing.assert_array_equal(client.result("job_1"), np.zeros(3))

        assert [request.url.host for request in seen] == ["fleet", "s3", "fleet"]

    @pytest.mark.parametrize("location", ["", "file:///etc/passwd", "ftp://x", "/relative"])
    def test_a_link_that_is_none_is_not_followed(self, location: str) -> None:
        client, seen = self.client(AssertionError("followed"), location)

        np.testing.assert_array_equal(client.result("job_1"), np.zeros(3))

        assert [request.url.host for request in seen] == ["fleet", "fleet"]


def test_a_redirect_is_not_followed() -> None:
    """What was submitted, and the key, would go to whoever is named."""
    calls: list[httpx.Request] = []

    def fleet(request: httpx.Request) -> httpx.Response:
        calls.append(request)
        return httpx.Response(308, headers={"Location": "https://fleet/v1/jobs?x"})

    with (
        client(fleet) as fleet_client,
        pytest.raises(ConnectionFailedError, match="redirects to https://fleet/v1/jobs:"),
    ):
        fleet_client.submit("m", ["a"])
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, InvalidError),
        (401, UnauthenticatedError),
        (403, ForbiddenError),
        (404, NotFoundError),
        (405, InvalidError),
        (406, InvalidError),
        (409, ConflictError),
        (410, GoneError),
        (413, TooLargeError),
        (415, InvalidError),
        (421, InvalidError),
        (422, InvalidError),
        (429, OverloadedError),
        (500, InternalError),
        (502, UnavailableError),
        (503, UnavailableError),
        (504, UnavailableError),
        (418, ApiError),
    ],
)
def test_every_status_has_its_error(status: int, error: type[ApiError]) -> None:
    answer = problem(status, "some_code", detail="told", field="inputs[1]", request_id="r1")

    with client(lambda _: answer) as fleet_client, pytest.raises(ApiError) as caught:
        fleet_client.models()

    assert type(caught.value) is error
    assert (caught.value.status, caught.value.code, caught.value.field) == (status, "some_code", "inputs[1]")
    assert caught.value.request_id == "r1"


@pytest.mark.parametrize("code", TABLE)
def test_every_code_of_the_api_has_an_error_of_its_own(code: str) -> None:
    with (
        client(lambda _: problem(TABLE[code].status, code)) as fleet_client,
        pytest.raises(ApiError) as caught,
    ):
        fleet_client.models()
    assert type(caught.value) is not ApiError


def test_a_proxys_answer_has_a_code_and_the_request_id_of_its_header() -> None:
    answer = httpx.Response(502, text="Bad Gateway", headers={"X-Request-Id": "r9"})

    with client(lambda _: answer) as fleet_client, pytest.raises(UnavailableError, match="Bad Gateway") as caught:
        fleet_client.models()

    assert (caught.value.code, caught.value.request_id) == ("http_502", "r9")


def test_a_lost_answer_to_a_deletion_is_no_missing_job() -> None:
    calls: list[str] = []

    def fleet(request: httpx.Request) -> httpx.Response:
        calls.append(request.method)
        if len(calls) == 1:
            raise httpx.ReadTimeout("no answer")
        return problem(404, "job_not_found")

    with client(fleet) as fleet_client:
        fleet_client.delete("job_1")
        with pytest.raises(NotFoundError):
            fleet_client.delete("job_1")

    assert calls == ["DELETE"] * 3


def test_all_tries_together_are_bounded() -> None:
    now = [0.0]
    calls: list[float] = []

    def fleet(request: httpx.Request) -> httpx.Response:
        calls.append(now[0])
        now[0] += 1.0
        return problem(503, "store_unavailable")

    transport = Transport(
        "http://fleet",
        api_key=None,
        timeout_s=30,
        policy=RetryPolicy(retries=1_000, first_s=1.0, max_s=2.0, total_s=30.0),
        transport=httpx.MockTransport(fleet),
        sleep=lambda delay_s: now.__setitem__(0, now[0] + delay_s),
        clock=lambda: now[0],
    )
    with pytest.raises(UnavailableError):
        transport.send("GET", "/v1/models")
    transport.close()

    assert len(calls) > 5
    assert calls[-1] <= 30.0


def test_an_overload_is_borne_as_long_as_was_said() -> None:
    now = [0.0]

    def fleet(request: httpx.Request) -> httpx.Response:
        if now[0] > 100.0:
            return httpx.Response(202, json={"jobs": []})
        answer = problem(429, "overloaded")
        answer.headers["Retry-After"] = "3"
        return answer

    transport = Transport(
        "http://fleet",
        api_key=None,
        timeout_s=30,
        policy=RetryPolicy(),
        transport=httpx.MockTransport(fleet),
        sleep=lambda delay_s: now.__setitem__(0, now[0] + delay_s),
        clock=lambda: now[0],
    )
    assert transport.send("GET", "/", patience_s=200.0).status_code == 202
    now[0] = 0.0
    with pytest.raises(OverloadedError):
        transport.send("GET", "/", patience_s=50.0)
    transport.close()


def test_the_servers_wish_is_respected_and_bounded() -> None:
    policy = RetryPolicy(first_s=0.1, max_s=5.0)

    assert policy.delay_s(0, 3.0) == 3.0
    assert policy.delay_s(0, 60.0) == 5.0
    assert 0.05 <= policy.delay_s(0, None) <= 0.1
    assert policy.delay_s(10_000, None) == 5.0


def test_inputs_of_an_object_or_of_the_request_but_not_both() -> None:
    with pytest.raises(ValueError, match="either inputs or input_uri"):
        JobRequest(model="m")
    with pytest.raises(ValueError, match="either inputs or input_uri"):
        JobRequest(model="m", inputs=["a"], input_uri="s3://bucket/key")
    with pytest.raises(ValueError, match="no time zone"):
        JobRequest(model="m", inputs=["a"], run_at=datetime(2026, 1, 1))  # noqa: DTZ001


def test_arrays_among_the_inputs_are_sent_as_numbers() -> None:
    bodies: list[Any] = []

    def fleet(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        return httpx.Response(202, json={"id": "job_1", "status": "queued"})

    with client(fleet) as fleet_client:
        fleet_client.submit("m", [np.eye(2, dtype=np.float32), np.int64(3)], callback_url="https://x/y")
        with pytest.raises(NotImplementedError, match="a complex has no JSON form"):
            fleet_client.submit("m", [1j])

    assert bodies == [{"model": "m", "inputs": [[[1.0, 0.0], [0.0, 1.0]], 3], "callback_url": "https://x/y"}]


def test_an_answer_that_forgets_a_job_is_told() -> None:
    answer = httpx.Response(202, json={"jobs": [{"index": 1, "id": "job_1", "status": "queued"}]})

    with client(lambda _: answer) as fleet_client:
        missing, taken = fleet_client.submit_many([JobRequest(model="m", inputs=["a"])] * 2)

    assert (missing.index, missing.id, taken.id) == (0, None, "job_1")
    assert missing.error is not None


def test_an_error_in_the_middle_says_how_far_it_came() -> None:
    calls: list[int] = []

    def fleet(request: httpx.Request) -> httpx.Response:
        calls.append(1)
        if len(calls) > 1:
            return problem(403, "forbidden")
        return httpx.Response(202, json={"jobs": [{"index": 0, "id": "job_1", "status": "queued"}]})

    with client(fleet) as fleet_client, pytest.raises(ForbiddenError) as caught:
        fleet_client.submit_many([JobRequest(model="m", inputs=["a"])] * 3, chunk=1)

    assert caught.value.__notes__ == ["1 jobs of this call had been answered before"]


def test_the_password_of_a_url_shows_nowhere() -> None:
    def fleet(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    made = Client("http://user:hunter2@fleet", policy=AT_ONCE, transport=httpx.MockTransport(fleet))
    with made, pytest.raises(ConnectionFailedError) as caught:
        made.models()
    with pytest.raises(ClientConfigError) as refused:
        Client("ftp://user:hunter2@fleet")

    assert "hunter2" not in repr(made) + str(caught.value) + str(refused.value)


def test_webhooks_are_signed_and_verified_by_the_same_code() -> None:
    secret, body = new_secret(), b'{"type": "job.succeeded"}'
    headers = signature_headers([secret], "msg_1", 1_000, body)

    assert verify_webhook(secret, headers, body, now=1_010.0) == "msg_1"
    with pytest.raises(WebhookVerificationError):
        verify_webhook(secret, headers, body + b" ", now=1_010.0)

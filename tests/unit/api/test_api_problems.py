"""One table from code to status, and nothing of our insides in an answer."""

import logging
from typing import Any

import pytest
from litestar import Litestar, get
from litestar.exceptions import HTTPException
from litestar.testing import TestClient

import batchfleet.results.blobs
import batchfleet.results.codec  # noqa: F401 - its errors must be known
from api.problems import TABLE, JobHasNoResultError, code_of, handle, problem_of
from batchfleet import errors
from batchfleet.access.keys import new_key
from batchfleet.errors import BatchfleetError, InvalidRequestError, OverloadedError
from batchfleet.jobs.states import JobState
from tests.support.apiserver import job_record


def _family(kind: type[BatchfleetError]) -> list[type[BatchfleetError]]:
    return [kind, *(each for child in kind.__subclasses__() for each in _family(child))]


CORE = [
    kind for kind in _family(BatchfleetError) if kind.__module__.startswith(("batchfleet.errors", "batchfleet.results"))
]


@pytest.mark.parametrize("kind", CORE, ids=lambda kind: kind.__name__)
def test_every_error_of_the_core_has_a_row_of_its_own(kind: type[BatchfleetError]) -> None:
    assert kind.code in TABLE
    assert problem_of(kind("why")).code == kind.code


def test_a_key_that_was_put_into_a_path_is_not_echoed() -> None:
    key = new_key().text

    told = problem_of(errors.ModelNotFoundError(f"no model {key!r} in the repository")).detail

    assert key not in told
    assert told.startswith("no model 'bf_")


def test_a_kind_that_is_not_in_the_table_has_its_parents_row() -> None:
    class Later(errors.StoreUnavailableError):
        code = "later"

    assert problem_of(Later("why")).status == 503


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "invalid_request"), (404, "not_found"), (405, "method_not_allowed"), (413, "too_large"),
        (415, "unsupported_media_type"), (418, "invalid_request"), (500, "internal_error"), (503, "unavailable"),
    ],
)  # fmt: skip
def test_what_the_framework_refuses_gets_a_code(status: int, code: str) -> None:
    assert code_of(HTTPException(status_code=status)) == code


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED])
def test_each_end_without_a_result_has_a_row(state: JobState) -> None:
    problem = problem_of(JobHasNoResultError(job_record("0" * 32, state=state)))

    assert (problem.code, problem.status) == (f"job_{state}", 409)


@pytest.mark.parametrize("code", TABLE)
def test_each_row_is_answered_as_it_says(code: str) -> None:
    """Every row of the table, through the framework."""

    class RaisedError(BatchfleetError):
        pass

    RaisedError.code = code

    with _client(RaisedError("the reason")) as client:
        answer = client.get("/")

    problem = answer.json()
    assert answer.status_code == problem["status"] == TABLE[code].status
    assert answer.headers["content-type"] == "application/problem+json"
    assert (problem["code"], problem["title"], problem["detail"]) == (code, TABLE[code].title, "the reason")
    assert problem["type"] == f"urn:batchfleet:error:{code}"
    assert ("retry-after" in answer.headers) is (answer.status_code == 503)


def test_an_unexpected_error_says_nothing_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR), _client(RuntimeError("password=hunter2")) as client:
        answer = client.get("/")

    assert answer.status_code == 500
    assert "hunter2" not in answer.text
    assert "hunter2" in caplog.text


def test_overload_says_when_to_come_back() -> None:
    with _client(OverloadedError("full", retry_after_s=7.4)) as client:
        answer = client.get("/")

    assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")


def test_a_field_is_named() -> None:
    assert problem_of(InvalidRequestError("wrong", field="inputs[4].text")).field == "inputs[4].text"


def _client(exc: Exception) -> TestClient[Any]:
    @get("/")
    async def raising() -> None:
        raise exc

    app = Litestar([raising], exception_handlers={Exception: handle}, openapi_config=None, logging_config=None)
    return TestClient(app, raise_server_exceptions=False)

"""Health, metrics, documents and the framework's own refusals, over a socket."""

from pathlib import Path
from typing import Any

import pytest

from api.operations import OPERATIONS, Operation
from batchfleet.database.trouble import NO_SCHEMA
from migrations.run import upgrade
from tests.support.apiserver import RunningApi, publish_model, running_api


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with running_api(tmp_path_factory.mktemp("health")) as running:
        yield running


def test_a_process_that_turns_is_alive(api: RunningApi) -> None:
    answer = api.client.get("/healthz")

    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_head_is_get_without_a_body(api: RunningApi) -> None:
    answer = api.client.head("/healthz")

    assert (answer.status_code, answer.content) == (200, b"")


def test_ready_with_everything_up(api: RunningApi) -> None:
    answer = api.client.get("/readyz")

    assert answer.status_code == 200
    assert answer.json() == {"status": "ready", "parts": {"database": "ok", "broker": "ok"}}


def test_without_the_broker_it_is_degraded_but_ready(tmp_path: Path) -> None:
    with running_api(tmp_path) as api:
        api.hub.down = True
        answer = api.client.get("/readyz")

        assert answer.status_code == 200
        assert answer.json()["status"] == "degraded"
        assert answer.json()["parts"] == {"database": "ok", "broker": "the hub is down"}


def test_without_the_database_it_is_unavailable(tmp_path: Path) -> None:
    with running_api(tmp_path) as api:
        api.store.down = True
        answer = api.client.get("/readyz")

        assert answer.status_code == 503
        assert answer.json()["parts"] == {"database": "the database is away", "broker": "ok"}
        assert api.client.get("/healthz").status_code == 200


def test_without_a_schema_it_is_unavailable_and_says_what_to_do(tmp_path: Path) -> None:
    """In words for anybody: of the statement, only the log has a word."""
    publish_model(tmp_path / "models")  # as if migrated: nothing is upgraded then
    with running_api(tmp_path) as api:
        ready, listed = api.client.get("/readyz"), api.client.get("/v1/jobs")

        assert (ready.status_code, ready.json()["parts"]["database"]) == (503, NO_SCHEMA)
        assert (listed.status_code, listed.json()["detail"]) == (503, NO_SCHEMA)

        upgrade(f"sqlite:///{tmp_path}/batchfleet.db")
        assert api.client.get("/readyz").status_code == 200


def test_metrics_tell_of_submissions_and_of_the_queue(tmp_path: Path) -> None:
    with running_api(tmp_path) as api:
        api.submit()
        api.client.post("/v1/jobs/bulk", json=[{"model": "tiny", "inputs": ["a"]}] * 3)
        answer = api.client.get("/metrics")

        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert 'batchfleet_jobs_submitted_total{lane="bulk",model="tiny"} 3.0' in answer.text
        assert 'batchfleet_jobs_submitted_total{lane="standard",model="tiny"} 1.0' in answer.text
        assert 'batchfleet_queue_jobs{lane="bulk",model="tiny",state="queued"} 3.0' in answer.text


def test_metrics_survive_the_loss_of_the_database(tmp_path: Path) -> None:
    with running_api(tmp_path) as api:
        api.store.down = True
        api.client.get("/metrics")  # the failure itself is counted, and shown from the next scrape on

        assert "batchfleet_scrape_failures_total 1.0" in api.client.get("/metrics").text


def test_the_document_and_the_page_are_served_from_here(api: RunningApi) -> None:
    document = api.client.get("/openapi.json").json()
    page = api.client.get("/docs")

    assert document["openapi"] == "3.1.0"
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "http" not in page.text.replace("/openapi.json", "")  # nothing is loaded from elsewhere
    assert all(operation.path in page.text for operation in OPERATIONS)


@pytest.mark.parametrize("path", ["/", "/v1", "/v2/jobs", "/v1/jobs/a/b/c", "/%2e%2e/etc", "/v1/models/a%2Fb"])
def test_unknown_paths_are_problems(api: RunningApi, path: str) -> None:
    answer = api.client.get(path)

    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] in {"not_found", "model_not_found"}
    assert answer.json()["code"] == "model_not_found" or "/docs" in answer.json()["detail"]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_unknown_query_parameters_are_refused_by_the_resources_and_by_nothing_else(
    api: RunningApi, operation: Operation
) -> None:
    path = operation.path.format(job_id="job_" + "0" * 32, delivery_id="msg_" + "0" * 32, name="tiny")
    answer = api.client.request(operation.method, path, params={"x": "1"})

    if path.startswith("/v1/"):
        assert (answer.status_code, answer.json()["field"]) == (400, "x")
        assert "invalid_request" in operation.problems
    else:
        assert answer.status_code == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [("PUT", "/v1/jobs"), ("DELETE", "/v1/models"), ("POST", "/healthz"), ("GET", "/v1/jobs/bulk/x")],
)
def test_wrong_methods_are_problems(api: RunningApi, method: str, path: str) -> None:
    answer = api.client.request(method, path)

    assert answer.status_code in {404, 405}
    assert answer.headers["content-type"] == "application/problem+json"
    if answer.status_code == 405:
        assert answer.json()["code"] == "method_not_allowed"
        assert answer.headers["allow"]


@pytest.mark.parametrize(
    ("sent", "echoed"), [("abc-123:x/y", True), ("a b", False), ("x" * 129, False), ("<script>", False), ("", False)]
)
def test_a_harmless_request_id_is_echoed(api: RunningApi, sent: str, echoed: bool) -> None:
    answer = api.client.get("/nope", headers={"X-Request-Id": sent})

    assert (answer.headers["x-request-id"] == sent) is echoed
    assert answer.json()["request_id"] == answer.headers["x-request-id"]
    assert len(answer.headers["x-request-id"]) >= 8

"""Every operation of the surface, with every kind of caller: a new one that is not in the table fails here.

What is stated for each: what its owner is answered, and what somebody else's key is. A key that opens nothing must be
answered alike in all cases, before anything else of the request is looked at.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from api.openapi import document
from api.operations import OPERATIONS, Operation
from batchfleet.access.keys import Role, new_key
from batchfleet.jobs.states import JobState
from batchfleet.outbox.delivery import DeliveryFilter
from tests.support.apiserver import MODEL, RunningApi, running_api

JOB = {"model": MODEL, "inputs": ["a text"], "callback_url": "https://hooks.example/jobs"}
NOBODYS = "0" * 32
OWNER, STRANGER = "owner", "stranger"

Ask = Callable[[str], dict[str, Any]]
"""Arguments of a request about a job."""


@dataclass(frozen=True)
class Row:
    """What one operation answers.

    Attributes:
        ask: The request, about a job of the owner's.
        owners: Status for the owner.
        strangers: Status for another tenant's key.
        state: State of the job.
    """

    ask: Ask
    owners: int
    strangers: int
    state: JobState = JobState.QUEUED


TABLE: dict[str, Row] = {
    "submit_job": Row(lambda _: {"json": JOB}, 202, 202),
    "submit_bulk": Row(lambda _: {"json": [JOB]}, 202, 202),
    "list_jobs": Row(lambda _: {}, 200, 200),
    "look_up_jobs": Row(lambda job: {"json": {"ids": [job]}}, 200, 200),
    "get_job": Row(lambda _: {"params": {"wait": 0}}, 200, 404),
    "delete_job": Row(lambda _: {}, 204, 404, JobState.SUCCEEDED),
    "get_result": Row(lambda _: {}, 200, 404, JobState.SUCCEEDED),
    "cancel_job": Row(lambda _: {}, 200, 404),
    "list_deliveries": Row(lambda _: {}, 200, 200),
    "get_delivery": Row(lambda _: {}, 200, 404, JobState.SUCCEEDED),
    "replay_delivery": Row(lambda _: {}, 202, 404, JobState.SUCCEEDED),
    "list_webhook_secrets": Row(lambda _: {}, 200, 200),
    "rotate_webhook_secret": Row(lambda _: {"json": {}}, 200, 200),
    "list_models": Row(lambda _: {}, 200, 200),
    "get_model": Row(lambda _: {}, 200, 200),
    "healthz": Row(lambda _: {}, 200, 200),
    "readyz": Row(lambda _: {}, 200, 200),
    "metrics": Row(lambda _: {}, 200, 200),
    "openapi": Row(lambda _: {}, 200, 200),
    "docs": Row(lambda _: {}, 200, 200),
}
KEYED = [operation for operation in OPERATIONS if operation.role is not None]
OPEN = [operation for operation in OPERATIONS if operation.role is None]


def _id(operation: Operation) -> str:
    return operation.name


@dataclass
class House:
    """One API that requires keys, with a tenant who has jobs and another one."""

    api: RunningApi
    keys: dict[str, str]

    def make_job(self, state: JobState = JobState.QUEUED) -> str:
        """Makes a job of the owner's."""
        answer = self.api.client.post("/v1/jobs", json=JOB, headers=_bearer(self.keys[OWNER]))
        job_id: str = answer.json()["id"]
        if state is JobState.SUCCEEDED:
            self.api.worker.succeed(job_id)
        return job_id

    def send(self, operation: Operation, job_id: str, headers: dict[str, str]) -> httpx.Response:
        """Sends the operation's request about a job."""
        path = operation.path.replace("{job_id}", job_id).replace("{name}", MODEL)
        path = path.replace("{delivery_id}", f"msg_{self.delivery_of(job_id)}")
        return self.api.client.request(
            operation.method.upper(), path, headers=headers, **TABLE[operation.name].ask(job_id)
        )

    def delivery_of(self, job_id: str) -> str:
        """Returns the id of what a job owes, once it has ended."""
        found = self.api.parts.outbox.list_deliveries(DeliveryFilter(job_id=job_id.removeprefix("job_")))
        return found[0].id if found else NOBODYS

    def status_of(self, job_id: str) -> str:
        """Returns how the owner sees a job now."""
        answer = self.api.client.get(f"/v1/jobs/{job_id}", headers=_bearer(self.keys[OWNER]))
        assert answer.status_code == 200
        return str(answer.json()["status"])


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with running_api(tmp_path_factory.mktemp("access"), require_keys=True) as api:
        everything = frozenset(Role)
        yield House(api, {tenant: api.key(tenant, everything) for tenant in (OWNER, STRANGER)})


def test_the_table_has_each_operation_of_the_document_and_no_other() -> None:
    described = {each["operationId"] for methods in document("1")["paths"].values() for each in methods.values()}

    assert set(TABLE) == described


@pytest.mark.parametrize("operation", KEYED, ids=_id)
def test_a_key_that_opens_nothing_is_401_and_tells_nothing(house: House, operation: Operation) -> None:
    job_id = house.make_job(TABLE[operation.name].state)
    revoked, expired = house.api.key(OWNER, set(Role)), house.api.key(OWNER, set(Role), ttl_s=1e-9)
    house.api.parts.access.revoke_key(revoked.split("_")[1])
    own = house.keys[OWNER]
    wrong: list[dict[str, str]] = [
        {}, _bearer(new_key().text), _bearer(own[:-1] + ("A" if own[-1] != "A" else "B")), _bearer(revoked),
        _bearer(expired), {"Authorization": "Bearer"}, _bearer("bf_"), {"X-API-Key": "nonsense"},
        {"Authorization": f"Basic {own}"}, {**_bearer(own), "X-API-Key": house.keys[STRANGER]},
    ]  # fmt: skip

    answers = [house.send(operation, job_id, headers) for headers in wrong]

    assert {answer.status_code for answer in answers} == {401}
    assert {answer.headers["www-authenticate"] for answer in answers} == {"Bearer"}
    assert {answer.headers["content-type"] for answer in answers} == {"application/problem+json"}
    told = [{name: value for name, value in answer.json().items() if name != "request_id"} for answer in answers]
    assert all(problem == told[0] for problem in told)
    assert told[0]["code"] == "unauthenticated"
    assert house.status_of(job_id) == TABLE[operation.name].state


@pytest.mark.parametrize("operation", KEYED, ids=_id)
def test_a_key_without_the_role_is_403_and_is_told_which(house: House, operation: Operation) -> None:
    job_id = house.make_job(TABLE[operation.name].state)
    lesser = [role for role in Role if role not in {operation.role, Role.ADMIN}]

    answers = [house.send(operation, job_id, _bearer(house.api.key(OWNER, {role}))) for role in lesser]

    assert [answer.status_code for answer in answers] == [403] * len(lesser)
    assert {answer.json()["code"] for answer in answers} == {"forbidden"}
    assert all(f"'{operation.role}'" in answer.json()["detail"] for answer in answers)
    assert house.status_of(job_id) == TABLE[operation.name].state


@pytest.mark.parametrize("operation", KEYED, ids=_id)
def test_another_tenants_key_learns_and_changes_nothing(house: House, operation: Operation) -> None:
    row = TABLE[operation.name]
    job_id = house.make_job(row.state)
    nobodys = "job_" + NOBODYS

    answer = house.send(operation, job_id, _bearer(house.keys[STRANGER]))
    of_nobodys = house.send(operation, nobodys, _bearer(house.keys[STRANGER]))

    assert answer.status_code == of_nobodys.status_code == row.strangers
    # What is another's is answered as what is nobody's.
    if row.strangers == 404:
        code = "not_found" if "{delivery_id}" in operation.path else "job_not_found"
        assert [each.json()["code"] for each in (answer, of_nobodys)] == [code] * 2
        told = answer.json()["detail"].replace(job_id, nobodys).replace(house.delivery_of(job_id), NOBODYS)
        assert told == of_nobodys.json()["detail"]
    if operation.name == "list_deliveries":
        assert answer.json() == {"deliveries": [], "next": None}
    if operation.name in {"list_jobs", "look_up_jobs"}:
        assert job_id not in [job["id"] for job in answer.json()["jobs"] if job["status"] != "unknown"]
    assert house.status_of(job_id) == row.state


@pytest.mark.parametrize("header", ["Authorization", "X-API-Key"])
@pytest.mark.parametrize("operation", KEYED, ids=_id)
def test_the_role_itself_is_enough(house: House, operation: Operation, header: str) -> None:
    assert operation.role is not None
    job_id = house.make_job(TABLE[operation.name].state)
    key = house.api.key(OWNER, {operation.role})

    answer = house.send(operation, job_id, {header: key if header == "X-API-Key" else f"bearer {key}"})

    assert answer.status_code == TABLE[operation.name].owners


@pytest.mark.parametrize("operation", OPEN, ids=_id)
def test_what_is_open_asks_for_no_key_and_minds_none(house: House, operation: Operation) -> None:
    answers = [house.send(operation, "", headers) for headers in ({}, _bearer("nonsense"))]

    assert [answer.status_code for answer in answers] == [200, 200]


def test_strangers_are_told_that_something_is_down_and_not_what(house: House) -> None:
    house.api.store.down = True
    try:
        answer = house.api.client.get("/readyz")
    finally:
        house.api.store.down = False

    assert (answer.status_code, answer.json()["status"]) == (503, "unavailable")
    assert answer.json()["parts"]["database"] == "down"


def test_webhook_secrets_of_tenants_are_apart(house: House) -> None:
    def secrets(tenant: str) -> list[dict[str, Any]]:
        answer = house.api.client.get("/v1/webhooks/secrets", headers=_bearer(house.keys[tenant]))
        return list(answer.json()["secrets"])

    before = secrets(OWNER)
    rotated = house.api.client.post("/v1/webhooks/secrets/rotate", headers=_bearer(house.keys[STRANGER]))

    assert rotated.status_code == 200
    assert secrets(OWNER) == before
    assert not {each["secret"] for each in before} & {each["secret"] for each in secrets(STRANGER)}


def test_a_long_poll_for_anothers_job_is_answered_at_once(house: House) -> None:
    """It would be told by how long it takes that there is something to wait for."""
    job_id = house.make_job()

    answer = house.api.client.get(f"/v1/jobs/{job_id}?wait=60", headers=_bearer(house.keys[STRANGER]))

    assert answer.status_code == 404
    assert not house.api.waiting.is_set()


def test_idempotency_keys_of_tenants_are_apart(house: House) -> None:
    def submit(tenant: str) -> httpx.Response:
        headers = {**_bearer(house.keys[tenant]), "Idempotency-Key": "monday"}
        return house.api.client.post("/v1/jobs", json=JOB, headers=headers)

    first, again, others = submit(OWNER), submit(OWNER), submit(STRANGER)

    assert first.json()["id"] == again.json()["id"] != others.json()["id"]
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in others.headers


def test_a_list_goes_on_after_anothers_job_without_showing_it(house: House) -> None:
    mine = house.make_job()
    theirs = house.api.client.post("/v1/jobs", json=JOB, headers=_bearer(house.keys[STRANGER])).json()["id"]

    page = house.api.client.get(f"/v1/jobs?after={theirs}&limit=1000", headers=_bearer(house.keys[OWNER])).json()

    assert mine in [job["id"] for job in page["jobs"]]
    assert theirs not in [job["id"] for job in page["jobs"]]


def test_with_keys_any_host_and_any_page_may_ask_but_no_page_may_read(house: House) -> None:
    headers = {**_bearer(house.keys[OWNER]), "Host": "fleet.example", "Origin": "https://elsewhere.example"}

    answer = house.api.client.post("/v1/jobs", json=JOB, headers=headers)

    assert answer.status_code == 202
    assert not [name for name in answer.headers if name.startswith("access-control-")]
    asked_before = house.api.client.options("/v1/jobs", headers=headers)
    assert not [name for name in asked_before.headers if name.startswith("access-control-")]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApi]:
    """One that requires none."""
    with running_api(tmp_path_factory.mktemp("open")) as api:
        yield api


class TestWithoutKeysRequired:
    def test_nobody_is_the_default_tenant_with_all_roles(self, api: RunningApi) -> None:
        job_id = api.submit()

        listed = api.client.get("/v1/jobs", headers=_bearer(api.key("default", {Role.READ}))).json()

        assert job_id in [job["id"] for job in listed["jobs"]]
        assert api.client.post(f"/v1/jobs/{job_id}/cancel").status_code == 200

    def test_a_key_that_is_sent_counts(self, api: RunningApi) -> None:
        job_id = api.submit()
        reader = _bearer(api.key("other", {Role.READ}))

        assert api.client.get(f"/v1/jobs/{job_id}", headers=reader).status_code == 404
        assert api.client.post("/v1/jobs", json=JOB, headers=reader).status_code == 403
        assert api.client.get("/v1/jobs", headers=_bearer(new_key().text)).status_code == 401
        assert api.client.get("/v1/jobs", headers={"Authorization": "Basic dTpw"}).status_code == 200

    def test_a_page_of_another_site_is_refused_unless_it_has_a_key(self, api: RunningApi) -> None:
        job_id = api.submit()
        page = {"Origin": "https://evil.example"}

        for method, path, body in (
            ("POST", "/v1/jobs", JOB),
            ("POST", "/v1/jobs/bulk", [JOB]),
            ("POST", "/v1/jobs/lookup", {"ids": [job_id]}),
            ("POST", f"/v1/jobs/{job_id}/cancel", None),
            ("DELETE", f"/v1/jobs/{job_id}", None),
        ):
            answer = api.client.request(method, path, json=body, headers=page)
            assert (answer.status_code, answer.json()["code"]) == (403, "cross_origin"), path
        with_key = {**page, **_bearer(api.key("other", set(Role)))}
        assert api.client.post("/v1/jobs", json=JOB, headers=with_key).status_code == 202

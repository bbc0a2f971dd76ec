"""`/v1/webhooks/…` over a socket: listing, replay and secrets, each for its tenant only."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchfleet.access.keys import Role
from batchfleet.outbox.delivery import Outcome
from batchfleet.outbox.signature import new_secret
from tests.support.apiserver import RunningApi, running_api

URL = "https://hooks.example/jobs"
KEY = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApi]:
    with running_api(tmp_path_factory.mktemp("webhooks"), secret_key=KEY) as running:
        yield running


def ended(api: RunningApi) -> str:
    """Returns a job that owes a webhook."""
    job_id = api.submit(callback_url=URL)
    assert api.client.post(f"/v1/jobs/{job_id}/cancel").status_code == 200
    return job_id


def only(api: RunningApi, **query: str) -> dict[str, Any]:
    answer = api.client.get("/v1/webhooks/deliveries", params=query)
    assert answer.status_code == 200, answer.text
    (found,) = answer.json()["deliveries"]
    shown: dict[str, Any] = found
    return shown


def attempt(api: RunningApi, delivery_id: str, outcome: Outcome, retry_in_s: float | None = None) -> None:
    outbox = api.parts.outbox
    begun = outbox.begin(delivery_id.removeprefix("msg_"), lease_s=60)
    assert begun is not None
    assert outbox.finish(begun.id, begun.epoch, outcome, retry_in_s=retry_in_s)


def test_what_a_job_owes_is_listed(api: RunningApi) -> None:
    job_id = ended(api)

    shown = only(api, job_id=job_id)

    assert shown["id"].startswith("msg_")
    assert {name: shown[name] for name in ("kind", "job_id", "event", "target", "state", "attempts")} == {
        "kind": "webhook",
        "job_id": job_id,
        "event": "job.cancelled",
        "target": URL,
        "state": "pending",
        "attempts": 0,
    }
    assert shown["due_at"] == shown["created_at"]
    assert "log" not in shown


def test_a_delivery_is_shown_with_its_attempts(api: RunningApi) -> None:
    delivery_id = only(api, job_id=ended(api))["id"]
    attempt(api, delivery_id, Outcome(duration_s=0.25, status=500, error="answered 500"), retry_in_s=0.0)
    attempt(api, delivery_id, Outcome(duration_s=0.5, status=204))

    shown = api.client.get(f"/v1/webhooks/deliveries/{delivery_id}").json()

    assert (shown["state"], shown["attempts"], shown["last_status"]) == ("delivered", 2, 204)
    assert "due_at" not in shown
    assert [(each["number"], each.get("status"), each.get("error"), each["duration_s"]) for each in shown["log"]] == [
        (1, 500, "answered 500", 0.25),
        (2, 204, None, 0.5),
    ]


def test_an_attempt_under_way_is_shown_without_an_end(api: RunningApi) -> None:
    delivery_id = only(api, job_id=ended(api))["id"]
    api.parts.outbox.begin(delivery_id.removeprefix("msg_"), lease_s=60)

    (entry,) = api.client.get(f"/v1/webhooks/deliveries/{delivery_id}").json()["log"]

    assert set(entry) == {"number", "began_at"}


def test_a_replay_makes_it_pending_again_and_rings(api: RunningApi) -> None:
    job_id = ended(api)
    delivery_id = only(api, job_id=job_id)["id"]
    attempt(api, delivery_id, Outcome(duration_s=0.25, status=410, error="answered 410"))
    assert only(api, job_id=job_id)["state"] == "failed"

    answer = api.client.post(f"/v1/webhooks/deliveries/{delivery_id}/replay")

    assert answer.status_code == 202
    assert answer.json()["id"] == delivery_id
    assert answer.json()["state"] == "pending"
    assert only(api, job_id=job_id, state="pending")["id"] == delivery_id
    assert api.parts.outbox.next_due_s() == 0.0


@pytest.mark.parametrize(("roles", "shown"), [({Role.SUBMIT}, False), ({Role.SUBMIT, Role.READ}, True)])
def test_a_replay_shows_where_it_goes_to_who_may_read_only(api: RunningApi, roles: set[Role], shown: bool) -> None:
    delivery_id = only(api, job_id=ended(api))["id"]
    attempt(api, delivery_id, Outcome(duration_s=0.25, status=410, error="answered 410"))
    headers = {"Authorization": f"Bearer {api.key('default', roles)}"}

    answer = api.client.post(f"/v1/webhooks/deliveries/{delivery_id}/replay", headers=headers)

    assert answer.status_code == 202
    assert answer.json()["state"] == "pending"
    assert {"target", "last_status", "last_error"} & set(answer.json()) == (
        {"target", "last_status", "last_error"} if shown else set()
    )


def test_pages_go_on_where_the_last_one_ended(api: RunningApi) -> None:
    for _ in range(3):
        ended(api)
    whole = api.client.get("/v1/webhooks/deliveries?limit=1000").json()["deliveries"]

    seen, after = [], None
    while True:
        query = {"limit": "2"} | ({"after": after} if after else {})
        page = api.client.get("/v1/webhooks/deliveries", params=query).json()
        seen += page["deliveries"]
        after = page["next"]
        if after is None:
            break

    assert seen == whole
    assert [each["id"] for each in whole] == sorted((each["id"] for each in whole), reverse=True)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("state=gone", "state"),
        ("state=", "state"),
        ("kind=letter", "kind"),
        ("job_id=1", "job_id"),
        ("after=job_00000000000000000000000000000000", "after"),
        ("limit=0", "limit"),
        ("status=pending", "status"),
    ],
)
def test_a_wrong_query_is_refused_by_name(api: RunningApi, query: str, field: str) -> None:
    answer = api.client.get(f"/v1/webhooks/deliveries?{query}")

    assert (answer.status_code, answer.json()["field"]) == (400, field)


@pytest.mark.parametrize("delivery_id", ["msg_" + "0" * 32, "msg_1", "x", "job_" + "0" * 32])
def test_a_delivery_that_is_not_there_is_404(api: RunningApi, delivery_id: str) -> None:
    for method, path in (("GET", ""), ("POST", "/replay")):
        answer = api.client.request(method, f"/v1/webhooks/deliveries/{delivery_id}{path}")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_secrets_are_made_shown_and_rotated(api: RunningApi) -> None:
    answer = api.client.get("/v1/webhooks/secrets")
    (first,) = answer.json()["secrets"]
    assert first["secret"].startswith("whsec_")
    assert "expires_at" not in first
    assert answer.headers["cache-control"] == "no-store"

    made = api.client.post("/v1/webhooks/secrets/rotate", json={"keep_old_s": 100}).json()
    newest, old = api.client.get("/v1/webhooks/secrets").json()["secrets"]

    assert newest == made
    assert (old["id"], old["secret"]) == (first["id"], first["secret"])
    assert old["expires_at"] > old["created_at"]


def test_a_rotation_without_a_body_keeps_old_secrets_for_a_day(api: RunningApi) -> None:
    made = api.client.post("/v1/webhooks/secrets/rotate")

    assert made.status_code == 200
    assert api.client.get("/v1/webhooks/secrets").json()["secrets"][0] == made.json()


@pytest.mark.parametrize("body", [{"keep_old_s": -1}, {"keep_old_s": 1e9}, {"keep_old_s": "1"}, {"keep": 1}, []])
def test_a_wrong_rotation_is_refused(api: RunningApi, body: object) -> None:
    assert api.client.post("/v1/webhooks/secrets/rotate", json=body).status_code == 400


def test_secrets_that_cannot_be_opened_are_503_and_say_why(api: RunningApi, tmp_path: Path) -> None:
    folder = Path(api.parts.settings.database_url.removeprefix("sqlite:///")).parent
    with running_api(folder) as without_key:
        answer = without_key.client.get("/v1/webhooks/secrets")

    assert answer.status_code == 503
    assert "BATCHFLEET_SECRET_KEY" in answer.json()["detail"]


def test_tenants_have_secrets_of_their_own(api: RunningApi) -> None:
    def secrets(tenant: str) -> list[str]:
        key = {"Authorization": f"Bearer {api.key(tenant, {Role.ADMIN})}"}
        return [each["secret"] for each in api.client.get("/v1/webhooks/secrets", headers=key).json()["secrets"]]

    assert secrets("one") == secrets("one")
    assert not set(secrets("one")) & set(secrets("two"))
    assert new_secret() not in secrets("one")


def test_what_is_owed_is_measured(api: RunningApi) -> None:
    ended(api)

    text = api.client.get("/metrics").text

    assert 'batchfleet_outbox_pending{kind="webhook"}' in text
    assert 'batchfleet_outbox_oldest_age_seconds{kind="webhook"}' in text

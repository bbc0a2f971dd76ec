"""Deliveries and signing secrets through the client and the command line, against a real API."""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from api.deliveries import AttemptView, DeliveryView, SecretView
from batchfleet.access.keys import ROLES
from batchfleet.cli.main import main
from batchfleet.client import Client, Delivery, DeliveryAttempt, ForbiddenError, NotFoundError, SigningSecret
from batchfleet.embedded.exits import Exit
from batchfleet.outbox.delivery import Outcome
from batchfleet.outbox.signature import signature_headers, verify_webhook
from tests.support.apiserver import MODEL, RunningApi, running_api

URL = "https://hooks.example/jobs"
KEY = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningApi]:
    with running_api(tmp_path, secret_key=KEY) as api:
        monkeypatch.setenv("BATCHFLEET_URL", api.url)
        yield api


@pytest.fixture
def client(running: RunningApi) -> Iterator[Client]:
    with Client(running.url, running.key(roles=ROLES)) as found:
        yield found


def owed(client: Client) -> Delivery:
    """Returns what a job owes that was cancelled."""
    job = client.submit(MODEL, ["a"], callback_url=URL)
    client.cancel(job.id)
    (delivery,) = client.webhooks.deliveries(job_id=job.id)
    return delivery


def give_up(running: RunningApi, delivery: Delivery) -> None:
    outbox = running.parts.outbox
    begun = outbox.begin(delivery.id.removeprefix("msg_"), lease_s=60)
    assert begun is not None
    outcome = Outcome(duration_s=0.25, status=500, error="the receiver answered 500")
    assert outbox.finish(begun.id, begun.epoch, outcome, retry_in_s=None)


def test_a_delivery_from_its_making_to_its_replay(running: RunningApi, client: Client) -> None:
    delivery = owed(client)
    assert (delivery.kind, delivery.state, delivery.event, delivery.target) == (
        "webhook",
        "pending",
        "job.cancelled",
        URL,
    )
    assert delivery.due_at is not None

    give_up(running, delivery)

    failed = client.webhooks.delivery(delivery.id)
    assert (failed.state, failed.attempts, failed.last_status) == ("failed", 1, 500)
    assert [(attempt.number, attempt.duration_s, attempt.status) for attempt in failed.log] == [(1, 0.25, 500)]
    assert [found.id for found in client.webhooks.deliveries(state=["failed", "delivered"])] == [delivery.id]

    replayed = client.webhooks.replay(delivery.id)
    assert (replayed.id, replayed.state, replayed.attempts) == (delivery.id, "pending", 0)
    with pytest.raises(NotFoundError):
        client.webhooks.replay("msg_" + "0" * 32)


def test_all_pages_of_deliveries(client: Client) -> None:
    ids = [owed(client).id for _ in range(3)]

    assert [delivery.id for delivery in client.webhooks.deliveries(page=2)] == ids[::-1]
    assert client.webhooks.list_deliveries(limit=1).next == ids[2]
    assert client.webhooks.list_deliveries(kind="output").deliveries == []


def test_a_rotated_secret_signs_beside_the_old_one(client: Client) -> None:
    (first,) = client.webhooks.secrets()
    made = client.webhooks.rotate_secret(keep_old_s=60)
    secrets = client.webhooks.secrets()

    assert [secret.secret for secret in secrets] == [made.secret, first.secret]
    assert (secrets[0].expires_at is None, secrets[1].expires_at is None) == (True, False)
    assert first.secret not in repr(secrets)
    headers = signature_headers([secret.secret for secret in secrets], "msg_1", 1_000, b"{}")
    assert verify_webhook(first.secret, headers, b"{}", now=1_000.0) == "msg_1"


def test_secrets_are_for_admins(running: RunningApi) -> None:
    with Client(running.url, running.key()) as client:
        with pytest.raises(ForbiddenError):
            client.webhooks.secrets()
        assert list(client.webhooks.deliveries()) == []


def test_the_commands(running: RunningApi, client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    with Client(running.url) as anybody:
        delivery = owed(anybody)
    give_up(running, delivery)

    def run(*arguments: str, code: Exit = Exit.OK) -> str:
        capsys.readouterr()
        assert main(["webhooks", *arguments]) == code
        return capsys.readouterr().out

    assert f"{delivery.id}  webhook  failed" in run("list", "--state", "failed")
    assert run("list", "--state", "pending") == "no deliveries\n"
    (listed,) = json.loads(run("list", "--job-id", delivery.job_id, "--json"))["deliveries"]
    assert listed["last_error"] == "the receiver answered 500"
    assert "0.250 s  500     the receiver answered 500" in run("show", delivery.id)
    assert run("replay", delivery.id) == f"{delivery.id} pending\n"
    assert run("show", "msg_nobody", code=Exit.NOT_FOUND) == ""

    secret = run("rotate", "--keep-old", "60").strip()
    assert secret.startswith("whsec_")
    assert secret not in run("secrets")
    assert secret in run("secrets", "--reveal")
    (hidden,) = json.loads(run("secrets", "--json"))["secrets"]
    assert hidden["secret"] == "whsec_***"


@pytest.mark.parametrize(
    ("theirs", "ours"), [(DeliveryView, Delivery), (AttemptView, DeliveryAttempt), (SecretView, SigningSecret)]
)
def test_the_client_has_the_members_that_the_api_shows(
    theirs: type[msgspec.Struct], ours: type[msgspec.Struct]
) -> None:
    assert set(theirs.__struct_fields__) == set(ours.__struct_fields__)

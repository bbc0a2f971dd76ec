"""Links of jobs over a socket: what may be stated, where it may lie, and how it is shown."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchfleet.jobs.job import JobLinks, parse_job_id
from tests.support.apiserver import MODEL, RunningApi, running_api

INPUT = {"model": MODEL, "input_uri": "s3://inputs/team/a.jsonl"}
INPUTS = {"model": MODEL, "inputs": ["a"]}
ALLOWED: dict[str, Any] = {"input_prefixes": ("s3://inputs/team",), "output_prefixes": ("s3://outputs/",)}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApi]:
    with running_api(tmp_path_factory.mktemp("links"), **ALLOWED) as api:
        yield api


@pytest.mark.parametrize("bulk", [False, True])
def test_what_is_stated_reaches_the_store_and_is_shown(shared: RunningApi, bulk: bool) -> None:
    links = {"output_uri": "s3://outputs/b", "callback_url": "https://hooks.example/x?y=1"}
    body = {**INPUT, **links}
    if bulk:
        (entry,) = shared.client.post("/v1/jobs/bulk", json=[body]).json()["jobs"]
    else:
        entry = shared.client.post("/v1/jobs", json=body).json()
        assert "item_count" not in entry

    (record,) = shared.store.look_up([parse_job_id(entry["id"])])
    shown = shared.client.get(f"/v1/jobs/{entry['id']}").json()
    claimed = shared.worker.claim(entry["id"])

    assert record.links == JobLinks(input_uri=INPUT["input_uri"], **links)
    assert {name: shown[name] for name in ("input_uri", *links)} == {"input_uri": INPUT["input_uri"], **links}
    assert "item_count" not in shown
    assert (claimed.input_uri, claimed.inputs, claimed.item_count) == (INPUT["input_uri"], b"[]", 1)


def test_a_job_without_links_shows_none(shared: RunningApi) -> None:
    shown = shared.client.get(f"/v1/jobs/{shared.submit()}").json()

    assert not {"input_uri", "output_uri", "callback_url", "result_gone"} & set(shown)
    assert shown["item_count"] == 1


@pytest.mark.parametrize(
    ("body", "status", "code", "field"),
    [
        ({**INPUT, "inputs": ["a"]}, 400, "invalid_request", "inputs"),
        ({**INPUT, "inputs": []}, 400, "invalid_request", "inputs"),
        ({"model": MODEL}, 400, "invalid_request", "inputs"),
        ({**INPUT, "input_uri": "s3://inputs/teams/a"}, 403, "uri_forbidden", "input_uri"),
        ({**INPUT, "input_uri": "s3://inputs/a"}, 403, "uri_forbidden", "input_uri"),
        ({**INPUT, "input_uri": "s3://other/team/a"}, 403, "uri_forbidden", "input_uri"),
        ({**INPUTS, "output_uri": "s3://inputs/team/a"}, 403, "uri_forbidden", "output_uri"),
        ({**INPUT, "input_uri": "s3://inputs/team/../secret"}, 400, "invalid_request", "input_uri"),
        ({**INPUT, "input_uri": "s3://inputs/team/"}, 400, "invalid_request", "input_uri"),
        ({**INPUT, "input_uri": "file:///etc/passwd"}, 400, "invalid_request", "input_uri"),
        ({**INPUT, "input_uri": "https://inputs/team/a"}, 400, "invalid_request", "input_uri"),
        ({**INPUT, "input_uri": ""}, 400, "invalid_request", "input_uri"),
        ({**INPUT, "input_uri": 5}, 400, "invalid_request", "input_uri"),
        ({**INPUTS, "output_uri": "file:///tmp/x"}, 400, "invalid_request", "output_uri"),
        ({**INPUTS, "callback_url": "ftp://hooks.example/"}, 400, "invalid_request", "callback_url"),
        ({**INPUTS, "callback_url": "http://127.0.0.1:9000/"}, 400, "invalid_request", "callback_url"),
        ({**INPUTS, "callback_url": "http://169.254.169.254/"}, 400, "invalid_request", "callback_url"),
        ({**INPUTS, "callback_url": "https://user:secret@hooks.example/"}, 400, "invalid_request", "callback_url"),
        ({**INPUTS, "callback_url": "h" * 2049}, 400, "invalid_request", "callback_url"),
    ],
)
@pytest.mark.parametrize("bulk", [False, True])
def test_what_is_wrong_is_named(
    shared: RunningApi, body: dict[str, Any], status: int, code: str, field: str, bulk: bool
) -> None:
    if bulk:
        answer = shared.client.post("/v1/jobs/bulk", json=[body, INPUTS]).json()["jobs"]
        assert (answer[0]["error"]["code"], answer[0]["error"]["field"]) == (code, field)
        assert answer[1]["status"] == "queued"
        return
    refused = shared.client.post("/v1/jobs", json=body)

    assert (refused.status_code, refused.json()["code"], refused.json()["field"]) == (status, code, field)
    assert "secret" not in refused.text


def test_a_file_is_refused_in_a_clear_sentence(shared: RunningApi) -> None:
    refused = shared.client.post("/v1/jobs", json={**INPUT, "input_uri": "file:///etc/passwd"}).json()

    assert refused["detail"] == "must be s3://bucket/key: files of this machine are not read"


def test_a_tenant_may_use_its_own_prefixes_and_no_others(tmp_path: Path) -> None:
    with running_api(tmp_path, require_keys=True, key_cache_s=3600.0, **ALLOWED) as api:
        api.parts.access.put_tenant("acme", input_prefixes=["s3://acme-data/"])
        acme, default = ({"X-API-Key": api.key(tenant)} for tenant in ("acme", "default"))
        own = {**INPUT, "input_uri": "s3://acme-data/x"}

        assert api.client.post("/v1/jobs", json=own, headers=acme).status_code == 202
        assert api.client.post("/v1/jobs", json=own, headers=default).status_code == 403
        assert api.client.post("/v1/jobs", json=INPUT, headers=acme).status_code == 403
        assert api.client.post("/v1/jobs", json=INPUT, headers=default).status_code == 202


def test_a_tenants_row_takes_the_place_of_the_settings(tmp_path: Path) -> None:
    with running_api(tmp_path, **ALLOWED) as api:
        api.parts.access.put_tenant("default", input_prefixes=["s3://elsewhere/"])

        assert api.client.post("/v1/jobs", json=INPUT).status_code == 403
        assert api.client.post("/v1/jobs", json={**INPUT, "input_uri": "s3://elsewhere/a"}).status_code == 202
        assert api.client.post("/v1/jobs", json={**INPUTS, "output_uri": "s3://outputs/b"}).status_code == 202


def test_a_fleet_without_prefixes_reads_and_writes_nowhere(tmp_path: Path) -> None:
    with running_api(tmp_path) as api:
        for body in (INPUT, {**INPUTS, "output_uri": "s3://outputs/b"}):
            assert api.client.post("/v1/jobs", json=body).json()["code"] == "uri_forbidden"


def test_callbacks_can_be_switched_off_and_networks_allowed(tmp_path: Path) -> None:
    local = {**INPUTS, "callback_url": "http://10.1.2.3/x"}
    with running_api(tmp_path / "off", callbacks=False) as api:
        refused = api.client.post("/v1/jobs", json=local)
        assert (refused.status_code, refused.json()["code"]) == (400, "unsupported_field")
    with running_api(tmp_path / "on", webhook_networks=("10.0.0.0/8",)) as api:
        assert api.client.post("/v1/jobs", json=local).status_code == 202


def test_links_belong_to_what_an_idempotency_key_stands_for(shared: RunningApi) -> None:
    def submit(**links: str) -> int:
        headers = {"Idempotency-Key": "links"}
        return shared.client.post("/v1/jobs", json={**INPUTS, **links}, headers=headers).status_code

    assert submit(output_uri="s3://outputs/a") == 202
    assert submit(output_uri="s3://outputs/a") == 202
    assert submit(output_uri="s3://outputs/b") == 422
    assert submit() == 422


def test_a_database_that_is_away_refuses_only_what_needs_the_tenant(tmp_path: Path) -> None:
    with running_api(tmp_path, **ALLOWED) as api:
        api.parts.access.close()
        (tmp_path / "batchfleet.db").rename(tmp_path / "away.db")
        (tmp_path / "batchfleet.db").mkdir()

        answer = api.client.post("/v1/jobs", json=INPUT)

        assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")

"""A page on the web that points its own name at this machine gets nothing (DNS rebinding)."""

from pathlib import Path

import httpx
import pytest

from tests.support.apiserver import running_api


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil", ""])
def test_a_foreign_host_is_refused_whatever_is_asked(tmp_path: Path, host: str) -> None:
    with running_api(tmp_path) as api:
        for method, path in (("GET", "/v1/jobs"), ("POST", "/v1/jobs"), ("GET", "/metrics"), ("GET", "/nowhere")):
            answer = httpx.request(method, api.url + path, headers={"Host": host, "Origin": f"http://{host}"})
            assert answer.status_code == 421, (method, path)
            assert answer.json()["code"] == "unknown_host"
            assert answer.json()["field"] == "Host"


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:9", "[::1]:8080", "[::1]"])
def test_the_names_of_this_machine_are_known(tmp_path: Path, host: str) -> None:
    with running_api(tmp_path) as api:
        assert httpx.get(api.url + "/healthz", headers={"Host": host}).status_code == 200


def test_behind_a_proxy_its_names_can_be_set(tmp_path: Path) -> None:
    with running_api(tmp_path, api_hosts=("fleet.example",)) as api:
        assert httpx.get(api.url + "/healthz", headers={"Host": "fleet.example"}).status_code == 200
        assert httpx.get(api.url + "/healthz", headers={"Host": "localhost"}).status_code == 421
    with running_api(tmp_path / "keys", api_hosts=("fleet.example",), require_keys=True) as api:
        assert httpx.get(api.url + "/healthz", headers={"Host": "whoever"}).status_code == 421
    with running_api(tmp_path / "any", api_hosts=("*",)) as api:
        assert httpx.get(api.url + "/healthz", headers={"Host": "whoever"}).status_code == 200

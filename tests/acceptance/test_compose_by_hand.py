"""What docker-compose.yml runs, run by hand: its commands, its environment and its health checks, without containers.

The places that compose makes (host names, volumes, secrets) are replaced by servers and folders on this machine, and
nothing else is: the same settings, the same files for secrets, the same order.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest

from batchfleet.build.demo_model import DEMO_MODEL
from tests.support.deployfiles import ROOT, compose, seconds
from tests.support.models import build_tiny_encoder
from tests.support.postgres import PostgresServer
from tests.support.s3servers import NanioServer
from tests.support.servers import ValkeyServer, free_port
from tests.support.upstack import eventually

BIN = Path(sys.executable).parent
LONG_RUNNING = ("api", "worker", "scheduler")


class ComposeS3(NanioServer):
    """An S3 server with the key pair that the secrets name."""

    def __init__(self, identities: Path) -> None:
        super().__init__()
        self._pair = json.loads(identities.read_text())["identities"][0]["credentials"][0]

    def environ(self) -> dict[str, str]:
        return {
            **super().environ(),
            "NANIO_ACCESS_KEY": self._pair["accessKey"],
            "NANIO_SECRET_KEY": self._pair["secretKey"],
        }


class Fleet:
    """The compose file's services as processes of this machine."""

    def __init__(self, folder: Path, places: Mapping[str, str]) -> None:
        self._folder = folder
        self._places = places
        self._ports = {service: str(free_port()) for service in LONG_RUNNING}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def environment(self, service: str) -> dict[str, str]:
        found: dict[str, str] = compose()["services"][service]["environment"]
        ours = {name: self._here(value) for name, value in found.items()}
        if "BATCHFLEET_METRICS_PORT" in ours:  # each container has its own network, these processes share one
            ours["BATCHFLEET_METRICS_PORT"] = self._ports[service]
        # Of the container, the same; of this machine, nothing else.
        return {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "HOME": str(self._folder), **ours}

    def run(self, service: str, *words: str) -> "subprocess.CompletedProcess[str]":
        """`docker compose run` or `exec`: a command in a service's environment."""
        return subprocess.run(
            words,
            env=self.environment(service),
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def one_shot(self, service: str) -> None:
        """Runs a service that ends by itself."""
        definition = compose()["services"][service]
        ended = self.run(service, *definition.get("entrypoint", ["batchfleet"]), *definition["command"])
        assert ended.returncode == 0, ended.stderr

    def start(self, service: str) -> None:
        """Starts a service that goes on."""
        with (self._folder / f"{service}.log").open("wb") as log:
            self._processes[service] = subprocess.Popen(
                ["batchfleet", *compose()["services"][service]["command"]],
                env=self.environment(service),
                cwd=self._folder,
                stdout=log,
                stderr=log,
                executable=BIN / "batchfleet",
            )

    def healthy(self, service: str) -> bool:
        """Asks as the engine would."""
        _cmd, *words = compose()["services"][service]["healthcheck"]["test"]
        return self.run(service, *words).returncode == 0

    def becomes_healthy(self, service: str) -> None:
        def look() -> bool | None:
            assert self._processes[service].poll() is None, self.log(service)
            return True if self.healthy(service) else None

        eventually(look, f"{service} is healthy", 90)

    def log(self, service: str) -> str:
        return (self._folder / f"{service}.log").read_text(errors="replace")

    def stop(self, service: str) -> int:
        """`docker compose stop`: SIGTERM, and the grace that the file gives."""
        process = self._processes.pop(service)
        process.send_signal(signal.SIGTERM)
        return process.wait(seconds(compose()["services"][service]["stop_grace_period"]))

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def _here(self, text: str) -> str:
        for shown, real in self._places.items():
            text = text.replace(shown, real)
        return text


@pytest.fixture
def fleet(tmp_path: Path, own_postgres: PostgresServer, valkey: ValkeyServer) -> Iterator[Fleet]:
    secrets = tmp_path / "secrets"
    subprocess.run(["sh", str(ROOT / "deploy" / "make-secrets"), str(secrets)], check=True, capture_output=True)
    own_postgres.execute("CREATE ROLE batchfleet LOGIN")
    own_postgres.execute("CREATE DATABASE batchfleet OWNER batchfleet")
    s3 = ComposeS3(secrets / "s3_identities")
    s3.start()
    (tmp_path / "lib" / "state").mkdir(parents=True)
    build_tiny_encoder(tmp_path / "lib" / "models", name=DEMO_MODEL.name)
    places = {
        "@postgres:5432/": f"@127.0.0.1:{own_postgres.port}/",
        "redis://valkey:6379/0": valkey.url,
        "http://s3:8333": s3.url,
        "/run/secrets": str(secrets),
        "/var/lib/batchfleet": str(tmp_path / "lib"),
        "0.0.0.0": "127.0.0.1",  # noqa: S104 - it is replaced
        "8080": str(free_port()),
    }
    running = Fleet(tmp_path, places)
    try:
        yield running
    finally:
        running.close()
        s3.close()


def test_the_services_start_in_order_become_healthy_work_and_stop(fleet: Fleet) -> None:
    for service in ("bucket", "migrate", "bucket", "migrate"):  # again at every `docker compose up`
        fleet.one_shot(service)
    for service in LONG_RUNNING:
        assert not fleet.healthy(service)
        fleet.start(service)
    for service in LONG_RUNNING:
        fleet.becomes_healthy(service)

    port = fleet.environment("api")["BATCHFLEET_API_PORT"]
    url = f"http://localhost:{port}"
    refused = fleet.run("api", "batchfleet", "submit", DEMO_MODEL.name, "no key", "--url", url)
    key = fleet.run("api", "batchfleet", "keys", "create", "--name", "first")
    submit = ["env", f"BATCHFLEET_API_KEY={key.stdout.strip()}", "batchfleet", "submit", DEMO_MODEL.name, "hello"]
    done = fleet.run("api", *submit, "--url", url, "--wait", "30")

    for service in ("worker", "scheduler"):
        address = f"http://127.0.0.1:{fleet.environment(service)['BATCHFLEET_METRICS_PORT']}/metrics"
        assert "batchfleet_" in httpx.get(address).text
    assert refused.returncode == 11, refused.stderr
    assert key.returncode == 0, key.stderr
    assert "succeeded" in done.stdout, done.stderr
    for service in ("worker", "scheduler", "api"):
        assert fleet.stop(service) == 0, fleet.log(service)
        assert not fleet.healthy(service)
    secret = (Path(fleet.environment("api")["BATCHFLEET_SECRETS_DIR"]) / "batchfleet_database_password").read_text()
    assert not any(secret in fleet.log(service) for service in LONG_RUNNING)

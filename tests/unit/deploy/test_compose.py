"""docker-compose.yml, read and not run (no engine is at hand): valid, and all that it names exists.

`tests/acceptance/test_compose_by_hand.py` runs its commands with its environment.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from batchfleet.cli.variables import settings_variables
from batchfleet.settings import read_settings
from tests.support.commands import check_command, use_environment
from tests.support.deployfiles import ROOT, compose, dockerfile, ours, seconds

OURS = tuple(ours())
SERVICES = tuple(compose()["services"])
ONE_SHOT = {"migrate", "bucket", "demo-model"}


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The secrets as the project's own script makes them."""
    folder = tmp_path_factory.mktemp("deploy") / "secrets"
    subprocess.run(["sh", str(ROOT / "deploy" / "make-secrets"), str(folder)], check=True, capture_output=True)
    return folder


def environment_of(name: str, secrets: Path) -> dict[str, str]:
    """Returns a service's environment, its secrets where they are here."""
    environment: dict[str, str] = compose()["services"][name].get("environment", {})
    return {key: value.replace("/run/secrets", str(secrets)) for key, value in environment.items()}


def sources(mounts: list[Any]) -> set[str]:
    return {mount.split(":")[0] for mount in mounts}


def test_it_is_valid_by_the_schema_of_compose_files() -> None:
    checked = subprocess.run(
        [
            sys.executable,
            "-W",
            "error::SyntaxWarning",
            "-m",
            "check_jsonschema",
            "--builtin-schema",
            "vendor.compose-spec",
            str(ROOT / "docker-compose.yml"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("name", OURS)
def test_every_command_is_one_that_our_program_takes(name: str, secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = ours()[name]
    use_environment(monkeypatch, environment_of(name, secrets))

    if "entrypoint" in service:
        (program, option), (code,) = service["entrypoint"], service["command"]
        assert (program, option) == ("python", "-c")
        compile(code, name, "exec")
    else:
        check_command(service["command"])
    if "healthcheck" in service:
        kind, program, *words = service["healthcheck"]["test"]
        assert (kind, program) == ("CMD", "batchfleet")
        check_command(words)


@pytest.mark.parametrize("name", OURS)
def test_every_setting_exists_and_all_together_are_accepted(
    name: str, secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = environment_of(name, secrets)
    use_environment(monkeypatch, environment)

    settings = read_settings()

    assert {key for key in environment if key.startswith("BATCHFLEET_")} <= settings_variables()
    others = {key for key in environment if not key.startswith("BATCHFLEET_")}
    assert others <= {"AWS_SHARED_CREDENTIALS_FILE", "AWS_REGION", "XDG_CACHE_HOME"}
    if "batchfleet_database_password" in service_secrets(name):
        password = (secrets / "batchfleet_database_password").read_text()
        assert f":{password}@postgres:5432" in settings.database_url


def service_secrets(name: str) -> set[str]:
    return set(compose()["services"][name].get("secrets", ()))


@pytest.mark.parametrize("name", SERVICES)
def test_nothing_secret_is_in_an_environment(name: str) -> None:
    environment = compose()["services"][name].get("environment", {})

    assert [key for key in environment if re.search(r"PASSWORD$|SECRET$|TOKEN|_KEY(_ID)?$", key)] == []
    assert not any(re.search(r"://[^/]*:[^/]*@", value) for value in environment.values())


def test_secrets_are_those_that_the_script_makes_and_all_are_used(secrets: Path) -> None:
    declared = compose()["secrets"]

    assert set(declared) == {path.name for path in secrets.iterdir()}
    assert {entry["file"] for entry in declared.values()} == {f"deploy/secrets/{name}" for name in declared}
    assert set(declared) == set().union(*(service_secrets(name) for name in SERVICES))
    fields = {name.lower() for name in settings_variables()}
    assert {name for name in declared if name.startswith("batchfleet_")} <= fields


def test_secrets_stay_out_of_the_repository_and_of_the_image() -> None:
    assert "deploy/secrets/" in (ROOT / ".gitignore").read_text().split()
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert "*" in ignored
    assert not any(line.startswith("!deploy") for line in ignored)


def test_volumes_and_networks_are_declared_and_used() -> None:
    services = compose()["services"].values()

    assert set().union(*(sources(service.get("volumes", [])) for service in services)) == set(compose()["volumes"])
    assert set().union(*(set(service["networks"]) for service in services)) == set(compose()["networks"])


@pytest.mark.parametrize("name", OURS)
def test_a_volume_lies_over_a_folder_that_the_image_gives_to_its_user(name: str) -> None:
    """An empty volume takes the owner of the folder that it covers."""
    target = ours()[name]["build"]["target"]
    made = " ".join(instruction.rest for instruction in dockerfile().effective(target, "RUN"))

    for mount in ours()[name].get("volumes", []):
        folder = mount.split(":")[1]
        assert folder in made.split(), folder


@pytest.mark.parametrize("name", OURS)
def test_our_containers_are_hardened(name: str) -> None:
    service = ours()[name]

    assert service["read_only"] is True
    assert service["init"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service
    assert "user" not in service, "the image has its own"


@pytest.mark.parametrize("name", sorted(set(SERVICES) - ONE_SHOT))
def test_what_keeps_running_has_limits_a_health_check_and_comes_back(name: str) -> None:
    service = compose()["services"][name]

    assert service["restart"] == "unless-stopped"
    assert service["healthcheck"]["test"][0] in {"CMD", "CMD-SHELL"}
    assert service["deploy"]["resources"]["limits"].keys() == {"cpus", "memory"}
    assert "stop_grace_period" in service
    assert service["logging"]["options"]["max-size"]


def test_nobody_waits_for_what_cannot_come() -> None:
    for name, service in compose()["services"].items():
        for other, how in service.get("depends_on", {}).items():
            needed = compose()["services"][other]
            assert set(needed.get("profiles", ())) <= set(service.get("profiles", ())), (name, other)
            if how["condition"] == "service_healthy":
                assert "healthcheck" in needed, (name, other)
            else:
                assert how["condition"] == "service_completed_successfully"
                assert other in ONE_SHOT, (name, other)


@pytest.mark.parametrize("name", ["worker", "worker-gpu"])
def test_workers_are_given_more_time_than_a_drain_takes(name: str) -> None:
    service = ours()[name]

    assert seconds(service["stop_grace_period"]) >= float(service["environment"]["BATCHFLEET_DRAIN_S"]) + 10


def test_the_api_is_given_more_time_than_its_stop_takes() -> None:
    from api.server import STOP_S

    assert seconds(ours()["api"]["stop_grace_period"]) > STOP_S


def test_images_are_built_or_pinned_and_name_no_host() -> None:
    for name, service in compose()["services"].items():
        image, _, tag = service["image"].partition(":")
        assert tag not in {"", "latest"}, name
        assert "." not in image.split("/")[0], name
        if "build" in service:
            assert service["image"] == f"batchfleet:{service['build']['target']}"
            assert service["build"]["context"] == "."


def test_only_the_api_is_reached_and_from_this_machine_only() -> None:
    ports = {name: service["ports"] for name, service in compose()["services"].items() if "ports" in service}

    assert list(ports) == ["api"]
    assert all(port.startswith("127.0.0.1:") for port in ports["api"])
    assert compose()["networks"]["inside"]["internal"] is True
    assert "outside" not in compose()["services"]["worker"]["networks"]


def test_the_gpu_worker_asks_for_one_and_only_its_profile_starts_it() -> None:
    service = ours()["worker-gpu"]
    (device,) = service["deploy"]["resources"]["reservations"]["devices"]

    assert service["profiles"] == ["gpu"]
    assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}
    variables = " ".join(instruction.rest for instruction in dockerfile().effective("gpu", "ENV"))
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in variables

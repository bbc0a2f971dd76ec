"""The Kubernetes example, read and not run: valid, and its commands, settings, probes and times are right."""

import copy
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from api.server import STOP_S
from batchfleet.settings import read_settings
from tests.support.commands import check_command, use_environment
from tests.support.deployfiles import ROOT, dockerfile, strict_yaml

FOLDER = ROOT / "deploy" / "kubernetes"
ITEMS: list[dict[str, Any]] = strict_yaml((FOLDER / "batchfleet.yaml").read_text())["items"]
MODELS_POD: dict[str, Any] = strict_yaml((FOLDER / "models-pod.yaml").read_text())
SETTINGS: dict[str, str] = next(item["data"] for item in ITEMS if item["kind"] == "ConfigMap")
PODS = {
    item["metadata"]["name"].removeprefix("batchfleet-"): item["spec"]["template"]["spec"]
    for item in ITEMS
    if item["kind"] in {"Deployment", "Job"}
}


def container(part: str) -> dict[str, Any]:
    (found,) = PODS[part]["containers"]
    return dict(found)


@pytest.mark.parametrize("item", [*ITEMS, MODELS_POD], ids=lambda item: f"{item['kind']}-{item['metadata']['name']}")
def test_every_item_is_valid_by_the_schema_of_its_kind(item: dict[str, Any]) -> None:
    kubernetes_validate.validate(copy.deepcopy(item), "1.34", strict=True)


@pytest.mark.parametrize("part", PODS)
def test_commands_settings_and_images_exist(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "batchfleet_database_password").write_text("a")
    found = container(part)
    own = {entry["name"]: entry["value"] for entry in found.get("env", ())}
    everything = {**SETTINGS, **own, "BATCHFLEET_SECRETS_DIR": str(tmp_path)}
    use_environment(monkeypatch, everything)

    check_command(found["args"])
    read_settings()
    image, _, target = found["image"].partition(":")
    assert image == "batchfleet"
    assert target in dockerfile().stages
    assert found["envFrom"] == [{"configMapRef": {"name": "batchfleet-settings"}}]


@pytest.mark.parametrize("part", ["api", "worker", "scheduler"])
def test_probes_ask_what_there_is(part: str) -> None:
    found = container(part)
    probes = [found[name] for name in ("startupProbe", "readinessProbe", "livenessProbe") if name in found]

    assert len(probes) >= 2
    for probe in probes:
        if "exec" in probe:
            program, *words = probe["exec"]["command"]
            assert program == "batchfleet"
            check_command(words)
        else:
            assert probe["httpGet"]["path"] in {"/healthz", "/readyz"}
            # Another name would be refused (421): the kubelet asks by the pod's address.
            (header,) = probe["httpGet"]["httpHeaders"]
            hosts = next(entry["value"] for entry in found["env"] if entry["name"] == "BATCHFLEET_API_HOSTS")
            assert header["value"] in hosts.split(",")


def test_no_liveness_probe_asks_the_database() -> None:
    assert container("api")["livenessProbe"]["httpGet"]["path"] == "/healthz"


def test_pods_are_given_the_time_that_a_stop_takes() -> None:
    program, pause_s = container("api")["lifecycle"]["preStop"]["exec"]["command"]
    api_stop = float(pause_s) + STOP_S

    assert program == "sleep"

    assert PODS["worker"]["terminationGracePeriodSeconds"] >= float(SETTINGS["BATCHFLEET_DRAIN_S"]) + 10
    assert PODS["api"]["terminationGracePeriodSeconds"] > api_stop


@pytest.mark.parametrize("part", PODS)
def test_what_is_mounted_is_there_and_what_is_secret_is_a_secret(part: str) -> None:
    pod, found = PODS[part], container(part)
    volumes = {volume["name"]: volume for volume in pod["volumes"]}

    assert {mount["name"] for mount in found["volumeMounts"]} == set(volumes)
    mounts = {mount["mountPath"]: mount for mount in found["volumeMounts"]}
    assert volumes[mounts[SETTINGS["BATCHFLEET_SECRETS_DIR"]]["name"]]["secret"]["secretName"] == "batchfleet-secrets"
    claims = [
        volume["persistentVolumeClaim"]["claimName"] for volume in volumes.values() if "persistentVolumeClaim" in volume
    ]
    assert set(claims) <= {item["metadata"]["name"] for item in ITEMS if item["kind"] == "PersistentVolumeClaim"}
    if part == "worker":
        assert SETTINGS["BATCHFLEET_STATE_DIR"] in mounts


@pytest.mark.parametrize("part", PODS)
def test_pods_are_hardened(part: str) -> None:
    security, own = PODS[part]["securityContext"], container(part)["securityContext"]

    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] == int(dockerfile().effective("cpu", "USER")[-1].rest.split(":")[0])
    assert own == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert PODS[part]["automountServiceAccountToken"] is False


def test_the_service_finds_the_api() -> None:
    service = next(item["spec"] for item in ITEMS if item["kind"] == "Service")
    (port,) = service["ports"]

    assert service["selector"] == {"app": "batchfleet", "part": "api"}
    assert port["targetPort"] in {entry["name"] for entry in container("api")["ports"]}


def test_models_are_written_by_their_own_pod_alone() -> None:
    (writer,) = MODELS_POD["spec"]["containers"]
    (mount,) = [mount for mount in writer["volumeMounts"] if mount["name"] == "models"]
    claims = {
        volume["name"]: volume.get("persistentVolumeClaim", {}).get("claimName")
        for volume in MODELS_POD["spec"]["volumes"]
    }

    assert not mount.get("readOnly")
    assert f"file://{mount['mountPath']}" == SETTINGS["BATCHFLEET_MODELS_URL"] == writer["env"][0]["value"]
    assert claims["models"] == "batchfleet-models"
    assert MODELS_POD["spec"]["securityContext"] == PODS["worker"]["securityContext"]
    assert writer["securityContext"] == container("worker")["securityContext"]
    assert writer["image"] == container("worker")["image"]
    for part in ("api", "worker"):
        (read,) = [mount for mount in container(part)["volumeMounts"] if mount["name"] == "models"]
        assert read["readOnly"] is True
        assert read["mountPath"] == mount["mountPath"]


def test_nothing_needs_a_newer_cluster_than_the_page_says() -> None:
    for version in ("1.27", "1.34"):
        for item in [*ITEMS, MODELS_POD]:
            kubernetes_validate.validate(copy.deepcopy(item), version, strict=True)

"""Which GPUs a fleet sees, and which worker gets which."""

import os
from pathlib import Path

import pytest

from batchfleet.cli.main import main
from batchfleet.embedded import devices
from batchfleet.embedded.devices import device_for, stated_devices, visible_devices
from batchfleet.embedded.exits import Exit
from batchfleet.models.config import Variant

NOWHERE = Path("/nonexistent/gpus")
NO_SMI = ("/nonexistent/nvidia-smi", "-L")
CUDA = Variant(name="fp16", precision="fp16", runtime="onnx", provider="cuda", file="model.onnx")
CPU = Variant(name="fp32", precision="fp32", runtime="onnx", provider="cpu", file="model.onnx")


def proc_with(folder: Path, count: int) -> Path:
    for bus in range(count):
        (folder / "gpus" / f"0000:{bus:02x}:00.0").mkdir(parents=True)
    return folder / "gpus"


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ("0", ("0",)),
        ("2, 0", ("2", "0")),
        ("GPU-8f2c,MIG-41aa", ("GPU-8f2c", "MIG-41aa")),
        ("MIG-GPU-8f2c/1/0", ("MIG-GPU-8f2c/1/0",)),
        ("1,-1,2", ("1",)),
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
    ],
)
def test_cuda_visible_devices_is_respected_as_cuda_reads_it(tmp_path: Path, value: str, seen: tuple[str, ...]) -> None:
    environ = {"CUDA_VISIBLE_DEVICES": value, "NVIDIA_VISIBLE_DEVICES": "all"}

    assert visible_devices(environ, proc_with(tmp_path, 4), NO_SMI) == seen


def test_ids_given_to_a_container_are_names_that_hold_inside(tmp_path: Path) -> None:
    environ = {"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2"}

    assert visible_devices(environ, proc_with(tmp_path, 8), NO_SMI) == ("GPU-1", "GPU-2")


def test_numbers_given_to_a_container_are_the_hosts_so_it_counts_its_own(tmp_path: Path) -> None:
    assert visible_devices({"NVIDIA_VISIBLE_DEVICES": "5,7"}, proc_with(tmp_path, 2), NO_SMI) == ("0", "1")


@pytest.mark.parametrize("value", ["none", "void"])
def test_a_container_without_gpus_has_none_whatever_the_driver_shows(tmp_path: Path, value: str) -> None:
    assert visible_devices({"NVIDIA_VISIBLE_DEVICES": value}, proc_with(tmp_path, 2), NO_SMI) == ()


def test_nvidia_smi_counts_where_proc_is_silent(tmp_path: Path) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA L4 (UUID: GPU-a)'\necho '  MIG 1g (UUID: MIG-b)'\necho 'GPU 1: x'\n")
    smi.chmod(0o755)

    assert visible_devices({}, NOWHERE, (str(smi), "-L")) == ("0", "1")


def test_a_machine_without_a_gpu_sees_none() -> None:
    assert visible_devices({}, NOWHERE, NO_SMI) == ()


def test_more_workers_than_gpus_share_them_in_turn() -> None:
    assert [device_for(slot, ("0", "GPU-b"))["CUDA_VISIBLE_DEVICES"] for slot in range(5)] == [
        "0",
        "GPU-b",
        "0",
        "GPU-b",
        "0",
    ]


def test_without_gpus_no_variable_is_set() -> None:
    assert device_for(0, ()) == {}


def test_auto_takes_gpus_only_for_models_and_runtimes_that_use_them(monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": "0,1"}
    monkeypatch.setattr(devices, "_has_cuda", lambda: True)

    assert stated_devices("auto", environ, [CPU, CUDA]) == ("0", "1")
    assert stated_devices("auto", environ, [CPU]) == ()
    monkeypatch.setattr(devices, "_has_cuda", lambda: False)
    assert stated_devices("auto", environ, [CPU, CUDA]) == ()


def test_what_is_stated_is_taken_as_it_is() -> None:
    assert stated_devices("3,GPU-b", {}, [CPU]) == ("3", "GPU-b")
    assert stated_devices("none", {"CUDA_VISIBLE_DEVICES": "0"}, [CUDA]) == ()


@pytest.mark.parametrize("value", ["auto,none", "all", "gpu0", "-1"])
def test_the_command_refuses_what_is_no_gpu(capsys: pytest.CaptureFixture[str], value: str) -> None:
    assert main(["up", f"--devices={value}"]) == Exit.USAGE

    assert "--devices" in (told := capsys.readouterr().err)
    assert "is no GPU" in told

"""What passes run on has a name that like machines share."""

from pathlib import Path

import pytest

from batchfleet.inference.machine import Cpu
from workers.device import device_name

XEON = Cpu("x86_64", "Intel(R)  Xeon(R) Processor @ 2.10GHz", frozenset())


@pytest.fixture
def gpus(tmp_path: Path) -> Path:
    """Two devices as Nvidia's driver tells of them."""
    for minor, model in enumerate(("NVIDIA A10", "NVIDIA H100 80GB HBM3")):
        folder = tmp_path / f"0000:0{minor}:00.0"
        folder.mkdir()
        lines = [f"Model: \t\t {model}", "IRQ:   \t\t 18", f"GPU UUID: \t GPU-{minor}", f"Device Minor: \t {minor}"]
        (folder / "information").write_text("\n".join(lines))
    return tmp_path


@pytest.mark.parametrize(
    ("provider", "threads", "name"),
    [
        ("cpu", 1, "cpu/Intel(R) Xeon(R) Processor @ 2.10GHz/1 thread"),
        ("openvino", 4, "openvino/Intel(R) Xeon(R) Processor @ 2.10GHz/4 threads"),
    ],
)
def test_on_a_processor_its_model_and_the_threads_count(provider: str, threads: int, name: str) -> None:
    assert device_name(provider, threads, cpu=XEON) == name


@pytest.mark.parametrize(
    ("visible", "model"),
    [
        (None, "NVIDIA A10"),
        ("0", "NVIDIA A10"),
        ("1", "NVIDIA H100 80GB HBM3"),
        ("GPU-1,GPU-0", "NVIDIA H100 80GB HBM3"),
        ("7", "NVIDIA A10"),
    ],
)
def test_on_a_gpu_the_one_that_may_be_used_counts(gpus: Path, visible: str | None, model: str) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}

    assert device_name("cuda", 1, cpu=XEON, gpus=gpus, environment=environment) == f"cuda/{model}"


def test_a_driver_that_tells_nothing_is_no_error(tmp_path: Path) -> None:
    assert device_name("cuda", 1, gpus=tmp_path, environment={}) == "cuda/unknown"
    (tmp_path / "0000:00:00.0" / "information").mkdir(parents=True)
    assert device_name("cuda", 1, gpus=tmp_path, environment={}) == "cuda/unknown"


def test_a_name_is_never_long() -> None:
    assert len(device_name("cpu", 1, cpu=Cpu("x", "n" * 1_000, frozenset()))) == 200

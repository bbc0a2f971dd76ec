"""The GPUs that workers may use, found without loading anything of CUDA, and which worker gets which.

One process a GPU: each worker sees exactly one (`CUDA_VISIBLE_DEVICES`), so that it is number 0 to it, whatever its
number on the machine, and no worker holds memory on a GPU that is another's.
"""

import subprocess
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from batchfleet.models.config import Variant

VARIABLE = "CUDA_VISIBLE_DEVICES"
_CONTAINER_VARIABLE = "NVIDIA_VISIBLE_DEVICES"
_PROC = Path("/proc/driver/nvidia/gpus")
_SMI = ("nvidia-smi", "-L")
_SMI_S = 10.0
_ALL = frozenset({"", "all", "void", "none"})
"""Values of the container's variable that name no GPU: what the driver shows holds then."""


def visible_devices(environ: Mapping[str, str], proc: Path = _PROC, smi: Sequence[str] = _SMI) -> tuple[str, ...]:
    """Returns the names of the GPUs that a process of this environment sees: numbers, or `GPU-…` and `MIG-…` ids.

    In this order: `CUDA_VISIBLE_DEVICES` as it is, ids that the container was given, what the driver shows in
    `/proc`, what `nvidia-smi -L` counts. Numbers count from 0 inside of a container, whatever the host calls them.
    """
    if VARIABLE in environ:
        return _until_invalid(environ[VARIABLE])
    given = [name.strip() for name in environ.get(_CONTAINER_VARIABLE, "").split(",")]
    if given != [""] and all(name.startswith(("GPU-", "MIG-")) for name in given):
        return tuple(given)
    if environ.get(_CONTAINER_VARIABLE) in _ALL - {"", "all"}:
        return ()
    count = _count_proc(proc) or _count_smi(smi)
    return tuple(str(number) for number in range(count))


def device_for(slot: int, devices: Sequence[str]) -> dict[str, str]:
    """Returns the variables of the worker in this slot: one GPU, in turn where there are more workers; {} without."""
    return {VARIABLE: devices[slot % len(devices)]} if devices else {}


def stated_devices(setting: str, environ: Mapping[str, str], variants: Sequence[Variant]) -> tuple[str, ...]:
    """Returns the GPUs for the workers of a fleet.

    Args:
        setting: `BATCHFLEET_WORKER_DEVICES`.
        environ: Where the process's own GPUs are read.
        variants: The variants that workers may run here; without one for CUDA, `auto` finds none.
    """
    if setting == "none":
        return ()
    if setting != "auto":
        return tuple(setting.split(","))
    if not any(variant.provider == "cuda" for variant in variants) or not _has_cuda():
        return ()
    return visible_devices(environ)


def _until_invalid(value: str) -> tuple[str, ...]:
    """CUDA takes the names up to the first that is none (`-1`, `NoDevFiles`, an empty one)."""
    names = []
    for name in (part.strip() for part in value.split(",")):
        if not (name.isdigit() or name.startswith(("GPU-", "MIG-"))):
            break
        names.append(name)
    return tuple(names)


def _count_proc(proc: Path) -> int:
    try:
        return sum(1 for _ in proc.iterdir())
    except OSError:
        return 0


def _count_smi(smi: Sequence[str]) -> int:
    try:
        told = subprocess.run(smi, capture_output=True, text=True, timeout=_SMI_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(line.startswith("GPU ") for line in told.splitlines())


def _has_cuda() -> bool:
    """Returns whether the installed onnxruntime is the one with CUDA; importing it would cost 45 MB here."""
    try:
        metadata.version("onnxruntime-gpu")
    except metadata.PackageNotFoundError:
        return False
    return True

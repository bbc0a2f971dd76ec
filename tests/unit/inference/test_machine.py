"""What a CPU can do is read from the kernel's description."""

from pathlib import Path

import pytest

from batchfleet.inference.machine import Cpu, read_cpu

X86 = "processor : 0\nmodel name\t: Some CPU\nflags\t\t: fpu avx2 {flags}\n\nprocessor : 1\nflags : other\n"


@pytest.mark.parametrize(
    ("machine", "flags", "saturates", "bf16"),
    [
        ("x86_64", "avx2", True, False),
        ("x86_64", "avx2 avx_vnni", False, False),
        ("x86_64", "avx512_vnni avx512_bf16", False, True),
        ("x86_64", "amx_int8 amx_bf16", False, True),
        ("aarch64", "asimd", False, False),
        ("aarch64", "asimd bf16", False, True),
    ],
)
def test_flags_decide_what_is_exact_and_what_is_worth_it(machine: str, flags: str, saturates: bool, bf16: bool) -> None:
    cpu = Cpu(machine=machine, model="any", flags=frozenset(flags.split()))

    assert (cpu.saturates_int8, cpu.has_bf16) == (saturates, bf16)


def test_the_first_core_speaks_for_all(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(X86.format(flags="avx512_vnni"))

    cpu = read_cpu(tmp_path / "cpuinfo")

    assert cpu.model == "Some CPU"
    assert cpu.flags == {"fpu", "avx2", "avx512_vnni"}


def test_a_machine_that_says_nothing_claims_nothing(tmp_path: Path) -> None:
    cpu = read_cpu(tmp_path / "missing")

    assert cpu.flags == frozenset()
    assert cpu.model == cpu.machine

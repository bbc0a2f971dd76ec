"""Which variants of a model a machine is offered, in words for people."""

from batchfleet.inference.machine import Cpu, read_cpu
from batchfleet.inference.registry import load_runtime
from batchfleet.models.config import Variant

SKIPPED_OPENVINO = "needs an Intel CPU with bf16 instructions: skipped"
"""The variant is for other machines: no package that could be installed here, and no defect."""


def why_skipped(variant: Variant, cpu: Cpu | None = None) -> str | None:
    """Returns why this machine does not run a variant, in a few words, or None where it does.

    Raises:
        ModelConfigError: If the variant names an unknown runtime.
    """
    refusal = load_runtime(variant.runtime).refusal(variant)
    return None if refusal is None else in_words(variant, refusal, cpu)


def in_words(variant: Variant, refusal: str, cpu: Cpu | None = None) -> str:
    """Returns a runtime's refusal as people should read it."""
    cpu = cpu or read_cpu()
    # OpenVINO takes Intel's CPUs only, whatever is installed.
    intel = "intel" in cpu.model.lower()
    if variant.provider == "openvino" and not (intel and cpu.has_bf16):
        return SKIPPED_OPENVINO
    return refusal

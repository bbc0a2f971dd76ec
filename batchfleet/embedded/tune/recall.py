"""What was measured for this machine; light, since every `batchfleet up` asks."""

from pathlib import Path

from batchfleet.embedded.cores import read_cores
from batchfleet.inference.machine import read_cpu
from batchfleet.inference.tuning import Tuning, machine_key, recall, tell_odd, tuning_file

_MOST_A_CPU = 4
"""No split that is measured has more than one thread a CPU; a hand that wrote some more may have meant it."""


def here() -> str:
    """Returns the key of measurements on this machine, with the cores that may be used now."""
    return machine_key(read_cpu(), read_cores().key())


def recall_here(state_dir: Path) -> Tuning | None:
    """Returns what was measured for this machine and these cores, or None; what cannot be is told of and left out."""
    file, cores = tuning_file(state_dir), read_cores()
    tuning = recall(file, machine_key(read_cpu(), cores.key()))
    if tuning is not None and tuning.workers * tuning.threads > _MOST_A_CPU * cores.logical:
        tell_odd(file, f"{tuning.workers} workers of {tuning.threads} threads are too many for {cores.logical} CPUs")
        return None
    return tuning

"""What `batchfleet worker --tune` found best on this machine, remembered in the state folder.

::

    <state_dir>/tuning.json    {"<CPU> | <cores> | <runtimes>": Tuning, ...}

A record holds for the machine, the cores and the runtimes that it was measured with, and for the models that it
names by digest. Anything else was not measured: the usual defaults hold then.
"""

import contextlib
import json
import logging
import os
from collections.abc import Collection
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec

from batchfleet.inference.machine import Cpu
from batchfleet.logs import Action

logger = logging.getLogger(__name__)

_PACKAGES = ("onnxruntime", "onnxruntime-gpu", "onnxruntime-ep-openvino")

_Processes: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=1024)]
"""Of processes or threads: a file that a hand has changed must not start a million."""

_ODD = (ValueError, RecursionError, msgspec.MsgspecError)


class Trial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that was tried.

    Attributes:
        workers: Processes side by side.
        threads: Threads of each one's passes.
        model: Name and version.
        variant: Name of the variant.
        max_batch_tokens: Padded tokens of a pass at most.
        texts_per_s: Items a second, of all processes together.
        doubtful: Whether other work kept the cores busy meanwhile.
    """

    workers: _Processes
    threads: _Processes
    model: str
    variant: str
    max_batch_tokens: Annotated[int, msgspec.Meta(ge=1, le=1 << 30)]
    texts_per_s: Annotated[float, msgspec.Meta(gt=0, lt=1e12)]
    doubtful: bool = False


class Tuning(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The best split of this machine, and how its models run best in it.

    Attributes:
        workers: Worker processes.
        threads: Threads of a pass.
        best: What was fastest for each model, by the model's digest; its figure is the median of its trials.
        tried: All trials, in the order of their measuring.
        measured_at: When, in ISO 8601.
    """

    workers: _Processes
    threads: _Processes
    best: dict[str, Trial]
    tried: tuple[Trial, ...]
    measured_at: str


def tuning_file(state_dir: Path) -> Path:
    """Returns where the measurements of a machine are kept."""
    return state_dir / "tuning.json"


def machine_key(cpu: Cpu, cores: str) -> str:
    """Returns what a measurement holds for: CPU, cores and versions of the runtimes."""
    versions = []
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions.append(f"{package} {metadata.version(package)}")
    return " | ".join((cpu.model, cores, ", ".join(versions)))


def recall(file: Path, key: str) -> Tuning | None:
    """Returns what was measured under this key, or None. What cannot be read or cannot be was not measured."""
    try:
        state = _parse(file)
        return msgspec.convert(state[key], Tuning) if key in state else None
    except _ODD as error:
        tell_odd(file, str(error) or type(error).__name__)
        return None


def tell_odd(file: Path, what: str) -> None:
    """Warns that a measurement is left out, and how to have another."""
    extra = {"action": Action.TUNING_ODD, "file": str(file)}
    logger.warning("what was tuned is ignored: %s; `batchfleet worker --tune` measures anew", what, extra=extra)


def measured_elsewhere(file: Path, key: str) -> bool:
    """Returns whether there are measurements, but none under this key."""
    state = _read(file)
    return bool(state) and key not in state


def unmeasured(tuning: Tuning, digests: Collection[str]) -> list[str]:
    """Returns the digests of models that the measurement does not know."""
    return sorted(set(digests) - tuning.best.keys())


def remember(file: Path, key: str, tuning: Tuning) -> None:
    """Keeps a measurement, beside those of other keys.

    Raises:
        OSError: If the file cannot be written.
    """
    state = {**_read(file), key: msgspec.to_builtins(tuning)}
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
    draft.replace(file)


def _read(file: Path) -> dict[str, Any]:
    try:
        return _parse(file)
    except _ODD:
        return {}


def _parse(file: Path) -> dict[str, Any]:
    """Returns what a file holds; nothing if it cannot be read. Raises one of `_ODD`."""
    try:
        state = json.loads(file.read_bytes())
    except OSError:
        return {}
    if not isinstance(state, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004 - of the file, not of a caller
    return state

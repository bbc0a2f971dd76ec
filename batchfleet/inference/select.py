"""Chooses the variant of a model that is fastest on this machine, by measuring each for about a second.

Which precision and provider win depends on the CPU's instructions, and on nothing that can be looked up
reliably. So every variant that this machine can run is loaded, checked against the float variant on a few
texts (a kernel that saturates gives wrong answers, not errors), and timed on sorted batches of realistic
lengths. The answer is remembered for this model, CPU and runtime; of several processes that ask at once, one
measures, so that all workers of a machine run the same.
"""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from batchfleet.clock import Monotonic
from batchfleet.errors import BatchfleetError, RuntimeUnavailableError
from batchfleet.inference.machine import Cpu, read_cpu
from batchfleet.inference.measure import (
    MOST_WAITED,
    agreement,
    by_length,
    longest_wait,
    pass_items,
    run_batches,
    sample_lengths,
    thread_waits,
)
from batchfleet.inference.registry import LoadedModel, load_executor, load_runtime
from batchfleet.inference.task import Output
from batchfleet.models.accuracy import FLOORS
from batchfleet.models.config import Variant
from batchfleet.models.repository import ModelFiles

_ITEMS = 64  # items of one timed round: enough for full batches, as under backlog
_CHECKED_EVERY = 4  # every fourth sample input is enough to see a kernel that saturates


class Speed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How fast one variant is on this machine.

    Attributes:
        variant: Its name.
        texts_per_s: Items a second in sorted batches, on the threads asked for.
    """

    variant: str
    texts_per_s: float


class Selection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which variant was chosen, and why.

    Attributes:
        chosen: Name of the variant.
        reason: Why, in one sentence.
        speeds: What was measured, fastest first; empty where there was nothing to choose.
        refused: Why each other variant cannot be used here, by name.
    """

    chosen: str
    reason: str
    speeds: tuple[Speed, ...] = ()
    refused: dict[str, str] = {}


@dataclass(slots=True)
class _Candidates:
    """The variants that this machine can run, loaded, and why the others cannot be used."""

    loaded: list[LoadedModel] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)

    def refuse(self, model: LoadedModel, reason: str) -> None:
        self.loaded.remove(model)
        self.refused[model.variant.name] = reason
        model.executor.close()

    def close(self) -> None:
        for model in self.loaded:
            model.executor.close()


def choose_variant(
    files: ModelFiles,
    *,
    threads: int = 1,
    providers: Sequence[str] = (),
    seconds: float = 1.0,
    state_file: Path | None = None,
    cpu: Cpu | None = None,
    clock: Monotonic = time.perf_counter,
) -> Selection:
    """Returns the variant of `files` to load on this machine.

    Args:
        files: The verified model.
        threads: Threads of one pass, as it will be loaded.
        providers: Execution providers that may be used; empty for all.
        seconds: How long to time each variant, loading and checking not included.
        state_file: Where the choice is remembered, a small JSON file; None remembers nothing.
        cpu: This machine's CPU; None reads it.
        clock: Measures the time spent.

    Raises:
        RuntimeUnavailableError: If this machine can run no variant; the message says why for each.
        ModelConfigError: If a variant names an unknown runtime, or the task is unknown.
    """
    key = _state_key(files, cpu or read_cpu(), threads, providers)
    with _alone(state_file):
        remembered = _recall(state_file, key)
        if remembered is not None and _still_possible(files, remembered):
            return remembered
        selection = _measure(files, threads, providers, seconds, clock)
        _remember(state_file, key, selection)
    return selection


def _measure(files: ModelFiles, threads: int, providers: Sequence[str], seconds: float, clock: Monotonic) -> Selection:
    candidates = _load_all(files, threads, providers)
    with contextlib.closing(candidates):
        _check_accuracy(candidates)
        if not candidates.loaded:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in candidates.refused.items())
            raise RuntimeUnavailableError(f"this machine can run no variant of {files.ref}: {reasons}")
        return _fastest(candidates, seconds, clock)


@contextlib.contextmanager
def _alone(state_file: Path | None) -> Iterator[None]:
    """Lets one process measure, and the others of this machine wait for its answer: two might find two answers.

    The lock is on the folder: it leaves no file behind, and the kernel frees it however its holder ends.
    """
    if state_file is None:
        yield
        return
    state_file.parent.mkdir(parents=True, exist_ok=True)
    folder = os.open(state_file.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _load_all(files: ModelFiles, threads: int, providers: Sequence[str]) -> _Candidates:
    candidates = _Candidates()
    for variant in files.config.variants:
        allowed = not providers or variant.provider in providers
        refusal = load_runtime(variant.runtime).refusal(variant) if allowed else "its provider is not allowed here"
        if refusal is None:
            try:
                candidates.loaded.append(load_executor(files, variant.name, threads=threads))
            except BatchfleetError as error:
                refusal = str(error)
        if refusal is not None:
            candidates.refused[variant.name] = refusal
    return candidates


def _check_accuracy(candidates: _Candidates) -> None:
    """Refuses variants that fail, or disagree with the float variant by more than their precision may."""
    outputs = {}
    for model in list(candidates.loaded):
        try:
            outputs[model.variant.name] = _sample_outputs(model)
        except BatchfleetError as error:
            candidates.refuse(model, str(error))
    references = [model for model in candidates.loaded if model.variant.precision == "fp32"]
    if not references:
        return
    expected = outputs[references[0].variant.name]
    for model in list(candidates.loaded):
        floor, exact = FLOORS[model.variant.precision], agreement(outputs[model.variant.name], expected)
        # `not >=` and not `<`: a cosine that is NaN is under every floor.
        if not (exact.mean >= floor.mean and exact.minimum >= floor.minimum):
            reason = f"inexact on this machine: cosine to float {exact.mean:.4f}, worst {exact.minimum:.4f}"
            candidates.refuse(model, reason)


def _sample_outputs(model: LoadedModel) -> Sequence[Output]:
    parameters = model.task.default_parameters()
    inputs = model.task.sample_inputs()[::_CHECKED_EVERY]
    items = pass_items(model.task.prepare(inputs, [parameters] * len(inputs)), parameters)
    return run_batches(model.executor, by_length(items, model.executor.shapes))[0]


def _fastest(candidates: _Candidates, seconds: float, clock: Monotonic) -> Selection:
    seconds *= len(candidates.loaded)
    if len(candidates.loaded) == 1:
        only = candidates.loaded[0].variant.name
        return Selection(only, f"{only} is the only variant that this machine can run.", (), candidates.refused)
    rounds = {model.variant.name: np.inf for model in candidates.loaded}
    for model in candidates.loaded:
        _time_round(model)  # compiles, allocates
    began = clock()
    # Interleaved, and the best round counts: a neighbour's noise then hits all alike.
    while True:
        for model in candidates.loaded:
            name = model.variant.name
            rounds[name] = min(rounds[name], _time_round(model))
        if clock() - began >= seconds:
            break
    speeds = sorted((Speed(name, _ITEMS / spent) for name, spent in rounds.items()), key=lambda s: -s.texts_per_s)
    return Selection(speeds[0].variant, _reason(speeds), tuple(speeds), candidates.refused)


def _time_round(model: LoadedModel) -> float:
    """Returns the seconds of all passes of one round, without those in which other work had the core."""
    parameters = model.task.default_parameters()
    prepared = [model.task.sample(length) for length in sample_lengths(_ITEMS, model.limits.max_item_tokens)]
    batches = by_length(pass_items(prepared, parameters), model.executor.shapes)
    waits = thread_waits()
    seconds = run_batches(model.executor, batches)[1]
    return seconds - min(MOST_WAITED * seconds, longest_wait(waits, thread_waits()))


def _reason(speeds: Sequence[Speed]) -> str:
    best, *others = speeds
    compared = ", ".join(f"{best.texts_per_s / other.texts_per_s:.1f} x {other.variant}" for other in others)
    return f"{best.variant} is the fastest here, {compared} ({best.texts_per_s:.0f} texts/s of 40 tokens on average)."


def _state_key(files: ModelFiles, cpu: Cpu, threads: int, providers: Sequence[str]) -> str:
    runtimes = {variant.runtime for variant in files.config.variants}
    versions = ",".join(f"{name}-{load_runtime(name).version}" for name in sorted(runtimes))
    allowed = ",".join(sorted(providers)) or "all"
    return "|".join((files.digest, cpu.model, versions, f"threads={threads}", f"providers={allowed}"))


def _still_possible(files: ModelFiles, selection: Selection) -> bool:
    variants: Mapping[str, Variant] = {variant.name: variant for variant in files.config.variants}
    chosen = variants.get(selection.chosen)
    return chosen is not None and load_runtime(chosen.runtime).refusal(chosen) is None


def _read_state(state_file: Path) -> dict[str, Any]:
    # A cache: what cannot be read is measured again.
    try:
        state = json.loads(state_file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return state if isinstance(state, dict) else {}


def _recall(state_file: Path | None, key: str) -> Selection | None:
    if state_file is None:
        return None
    try:
        return msgspec.convert(_read_state(state_file)[key], Selection)
    except (KeyError, msgspec.ValidationError):
        return None


def _remember(state_file: Path | None, key: str, selection: Selection) -> None:
    if state_file is None:
        return
    state = {**_read_state(state_file), key: msgspec.to_builtins(selection)}
    scratch = state_file.with_name(f".{state_file.name}.{os.getpid()}")
    scratch.parent.mkdir(parents=True, exist_ok=True)
    scratch.write_text(json.dumps(state, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    scratch.replace(state_file)

"""Wires names in `model.toml` to the classes behind them. Imported where a process is wired, and in tests."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from batchfleet.errors import ModelConfigError
from batchfleet.inference.executor import Executor
from batchfleet.inference.one_shot import OneShotExecutor
from batchfleet.inference.onnx_runtime import OnnxRuntime
from batchfleet.inference.runtime import Runtime, RuntimeOptions
from batchfleet.inference.task import Task
from batchfleet.inference.tasks.embed import EmbedTask
from batchfleet.models.config import Limits, Variant
from batchfleet.models.repository import ModelFiles, ModelRef

T = TypeVar("T")

_TASKS: Mapping[str, Callable[[ModelFiles], Task[Any]]] = {"embed": EmbedTask.load}
_RUNTIMES: Mapping[str, Callable[[], Runtime]] = {"onnx": OnnxRuntime}


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory, ready to be warmed up and to run items.

    Attributes:
        ref: Which version.
        digest: The model digest, for provenance.
        variant: The variant that was loaded.
        provider: The provider really got, for provenance.
        executor: Runs items.
        task: Prepares items; may be used by other threads beside the executor.
        limits: How much may run together with this variant.
    """

    ref: ModelRef
    digest: str
    variant: Variant
    provider: str
    executor: Executor
    task: Task[Any]
    limits: Limits


def load_task(files: ModelFiles) -> Task[Any]:
    """Returns the task of a model, bound to its files.

    Raises:
        ModelConfigError: If the task is unknown or its options are wrong.
    """
    return _named(_TASKS, files.config.task, "task")(files)


def load_runtime(name: str) -> Runtime:
    """Returns the runtime called `name`.

    Raises:
        ModelConfigError: If there is none.
    """
    return _named(_RUNTIMES, name, "runtime")()


def load_executor(
    files: ModelFiles, variant_name: str, *, threads: int = 1, max_batch_tokens: int | None = None
) -> LoadedModel:
    """Loads one variant of a verified model. The caller warms it up before it serves.

    Args:
        files: The version, from `ModelRepository.open`.
        variant_name: Which variant, for example the one that `select.choose_variant` chose.
        threads: Threads of one pass.
        max_batch_tokens: A smaller budget of padded tokens than the model's own; None keeps that.

    Raises:
        ModelConfigError: If the variant, task or runtime does not exist, or an option is wrong.
        RuntimeUnavailableError: If this machine cannot run the variant as stated.
        ModelError: If the graph cannot be loaded.
    """
    variant = files.config.variant(variant_name)
    limits = files.config.limits_of(variant)
    if max_batch_tokens is not None:
        limits = dataclasses.replace(limits, max_batch_tokens=min(limits.max_batch_tokens, max_batch_tokens))
    task = load_task(files)
    session = load_runtime(variant.runtime).load(files.path, variant, RuntimeOptions(threads=threads))
    return LoadedModel(
        ref=files.ref,
        digest=files.digest,
        variant=variant,
        provider=session.provider,
        executor=OneShotExecutor(task, session, limits),
        task=task,
        limits=limits,
    )


def _named(table: Mapping[str, T], name: str, kind: str) -> T:
    try:
        return table[name]
    except KeyError:
        raise ModelConfigError(f"unknown {kind} {name!r} (there are: {', '.join(sorted(table))})") from None

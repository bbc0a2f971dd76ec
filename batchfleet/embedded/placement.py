"""How many workers a fleet on this machine gets, with how many threads, on which GPUs."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from batchfleet.embedded.cores import usable_cores
from batchfleet.embedded.devices import stated_devices
from batchfleet.embedded.tune.recall import recall_here
from batchfleet.inference.tuning import Tuning
from batchfleet.models.config import Variant
from batchfleet.models.repository import ModelRepository
from batchfleet.settings import Settings, folder_of


@dataclass(frozen=True, slots=True)
class Placement:
    """What was decided, and why.

    Attributes:
        workers: Worker processes.
        threads: Threads of a pass, where it is to be stated; None leaves it to the worker.
        devices: GPUs that the workers get, one each in turn.
        reason: Why so many workers, in words.
    """

    workers: int
    threads: int | None
    devices: tuple[str, ...]
    reason: str


def place(settings: Settings, workers: int | None, environ: Mapping[str, str] = os.environ) -> Placement:
    """Decides for `batchfleet up`. What is explicit wins; then come GPUs, then what was tuned, then the cores.

    Args:
        settings: Of the fleet, with its models and its state folder.
        workers: As asked for, or None.
        environ: Where GPUs are found.
    """
    devices = stated_devices(settings.worker_devices, environ, _variants(settings))
    return decide(settings, workers, devices, recall_here(settings.state_dir), usable_cores())


def decide(
    settings: Settings, workers: int | None, devices: tuple[str, ...], tuning: Tuning | None, cores: int
) -> Placement:
    """Returns the placement from what is known: pure."""
    count, reason = cores, "one a core"
    if devices:
        count, reason = len(devices), "one a GPU"
    elif tuning is not None:
        count, reason = tuning.workers, "as tuned"
    if workers is not None:
        count, reason = workers, "as asked"
    threads = None
    if tuning is not None and "worker_threads" not in settings.model_fields_set:
        # Threads were measured together with a number of workers: with another one, they would fight for the cores.
        threads = tuning.threads if count == tuning.workers else settings.worker_threads
    return Placement(count, threads, devices, reason)


def _variants(settings: Settings) -> list[Variant]:
    """Returns the variants that workers may run."""
    repository = ModelRepository(folder_of(settings.models_url))
    allowed, name = settings.worker_providers, settings.worker_variant
    return [
        variant
        for model in settings.worker_models or repository.models()
        if model in repository.models()
        for variant in repository.config(repository.resolve(model)).variants
        if (not allowed or variant.provider in allowed) and name in {"auto", variant.name}
    ]

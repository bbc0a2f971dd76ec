"""The models that this worker serves: loaded once, warmed up before use, found by (name, version).

A model or version that appears in the repository later is served without a restart: its first job loads it.
"""

import logging
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum

from batchfleet.batching.batch import BatchLimits
from batchfleet.batching.buckets import LengthBuckets
from batchfleet.batching.ceilings import Ceilings
from batchfleet.batching.cost import CostModel
from batchfleet.batching.prices import DISPATCH_S
from batchfleet.batching.window import PassGroup
from batchfleet.errors import (
    ModelConfigError,
    ModelError,
    ModelNotFoundError,
    PassFailedError,
    RuntimeUnavailableError,
)
from batchfleet.inference.registry import LoadedModel
from batchfleet.jobs.job import JobId
from batchfleet.logs import Action
from batchfleet.models.repository import ModelFiles, ModelRef, ModelRepository
from batchfleet.profiles.memory import MemoryProfiles
from batchfleet.profiles.port import ProfileKey
from workers.device import device_name
from workers.learn import Learning

logger = logging.getLogger(__name__)

_UNUSABLE = (ModelError, ModelNotFoundError, PassFailedError, OSError)
_NEVER = (ModelConfigError, RuntimeUnavailableError, ModelNotFoundError)
"""What a restart does not mend: a variant, provider, model or option that does not exist here."""


class Loaded(Enum):
    """What came of loading the models at start."""

    SOME = "some"
    """At least one serves (or there is none yet)."""
    NOT_NOW = "not now"
    """None could be loaded; a restart may mend it."""
    NEVER = "never"
    """None can be loaded as the settings are."""


_ON_CORES = frozenset({"cpu", "openvino"})
_DISPATCH_ON_CORES_S = 0.001
"""What claiming, settling and telling of one more pass costs where passes run on the same cores: about a millisecond.

An estimate from single timings of a busy machine (claim 0.5 ms, settle 0.7, ring 0.2 of CPU), not tuned.
"""

LoadModel = Callable[[ModelFiles], LoadedModel]
"""Chooses a variant for this machine and loads it."""

NameDevice = Callable[[LoadedModel], str]
"""Says what a loaded model runs on."""


def one_thread(model: LoadedModel) -> str:
    """Names the device of a model that is loaded as by default: each pass has one thread."""
    return device_name(model.provider, 1)


@dataclass(frozen=True, slots=True)
class PassKey:
    """What items must agree on to share a pass.

    Attributes:
        model: The loaded model's version.
        task_key: What the task itself asks for.
        suspect: The job, where it must run alone.
    """

    model: ModelRef
    task_key: Hashable
    suspect: JobId | None = None


class Serving:
    """Loads models and knows what their passes cost. Thread-safe; a model is loaded by one thread at a time.

    Args:
        repository: Where the models are.
        load: Loads one.
        names: The models to serve; empty for all.
        learning: What is learned of them; by default it stays in this process.
        device: Says what a loaded model runs on.
    """

    def __init__(
        self,
        repository: ModelRepository,
        load: LoadModel,
        names: tuple[str, ...] = (),
        *,
        learning: Learning | None = None,
        device: NameDevice = one_thread,
    ) -> None:
        self._repository = repository
        self._load = load
        self._names = names
        self._learning = Learning(MemoryProfiles()) if learning is None else learning
        self._device = device
        self._loaded: dict[ModelRef, LoadedModel] = {}
        self._loading = threading.Lock()
        self._tried: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def names(self) -> tuple[str, ...]:
        """Returns the names of the models that the worker serves now."""
        return self._names or tuple(self._repository.models())

    def load_all(self) -> Loaded:
        """Loads and warms up the newest version that can be, of each served model.

        One that cannot be loaded is logged and left to its jobs, which then fail by name: the others serve. A
        repository that is empty is no failure: models may be published later.
        """
        names = self.names()
        if not names:
            logger.warning("the model repository is empty", extra={"action": Action.MODEL_UNUSABLE})
        errors = [error for name in names for error in self._load_newest(name)]
        if self._loaded or not names:
            return Loaded.SOME
        return Loaded.NEVER if all(isinstance(error, _NEVER) for error in errors) else Loaded.NOT_NOW

    def serves(self) -> bool:
        """Returns whether a model is loaded. Where none is, what was published since the last look is loaded first.

        What cannot be loaded is tried once, and again when something else is published.
        """
        if self._loaded:
            return True
        offered = tuple((name, tuple(self._repository.versions(name))) for name in self.names())
        if offered and offered != self._tried:
            self._tried = offered
            self.load_all()
        return bool(self._loaded)

    def _load_newest(self, name: str) -> list[Exception]:
        """Loads the newest usable version; returns what was wrong with newer ones, or with all."""
        errors: list[Exception] = []
        versions = self._repository.versions(name)
        if not versions:
            errors.append(ModelNotFoundError(f"no model {name!r} in the repository"))
        for version in reversed(versions):
            try:
                self.get(ModelRef(name, version))
            except _UNUSABLE as error:
                errors.append(error)
            else:
                break
        for wrong in errors:
            extra = {"action": Action.MODEL_UNUSABLE, "model": name, "code": getattr(wrong, "code", "internal_error")}
            logger.error("a model version cannot be served: %s", wrong, extra=extra)
        return errors

    def get(self, ref: ModelRef) -> LoadedModel:
        """Returns a model, loading and warming it up if need be.

        Raises:
            ModelNotFoundError: If the repository has no such version.
            ModelError: If it cannot be loaded or trusted.
            PassFailedError: If its warm-up fails.
        """
        loaded = self._loaded.get(ref)
        if loaded is not None:
            return loaded
        with self._loading:
            if ref not in self._loaded:
                self._loaded[ref] = self._load_and_warm(ref)
            return self._loaded[ref]

    def loaded(self, ref: ModelRef) -> LoadedModel:
        """Returns a model that is loaded already."""
        return self._loaded[ref]

    def observe(self, ref: ModelRef, count: int, length: int, seconds: float) -> CostModel:
        """Learns from one more pass of `count` rows padded to `length`; returns the model of cost after it."""
        return self._learning.observe(ref, count, length, seconds)

    def worked(self, ref: ModelRef, items: int, input_bytes: float, seconds: float) -> None:
        """Notes device-seconds spent on items, and the bytes of the inputs that they came in."""
        self._learning.worked(ref, items, input_bytes, seconds)

    def ran_out(self, ref: ModelRef, count: int, length: int) -> Ceilings:
        """Notes that a pass of `count` rows padded to `length` ran out of memory; returns the ceilings after it."""
        return self._learning.ran_out(ref, count, length)

    def ceilings(self, ref: ModelRef) -> Ceilings:
        """Returns how many rows the device's memory is known to hold, as the fleet has learned it."""
        return self._learning.ceilings(ref)

    def group_for(self, key: Hashable) -> PassGroup:
        """Returns what bounds the passes of a key: the window asks for it."""
        assert isinstance(key, PassKey)  # noqa: S101 - the preparer makes no others
        model = self._loaded[key.model]
        limits = BatchLimits(
            max_items=model.limits.max_batch_items,
            max_tokens=model.limits.max_batch_tokens,
            max_delay_s=model.limits.max_delay_ms / 1e3,
            max_pass_s=model.limits.max_pass_ms / 1e3,
            preferred_items=model.limits.preferred_batch_items,
        )
        shapes = model.executor.shapes
        buckets = LengthBuckets(tuple(shapes.lengths or ()), shapes.shape)
        return PassGroup(
            limits,
            self._learning.cost(key.model),
            buckets,
            alone=key.suspect is not None,
            ceilings=self._learning.ceilings(key.model),
            dispatch_s=_DISPATCH_ON_CORES_S if model.provider in _ON_CORES else DISPATCH_S,
        )

    def probe(self) -> None:
        """Runs the warm-up sample of each loaded model.

        Raises:
            PassFailedError: If one fails.
        """
        for model in self._loaded.values():
            model.executor.probe()

    def close(self) -> None:
        """Frees the models."""
        for model in self._loaded.values():
            model.executor.close()

    def _load_and_warm(self, ref: ModelRef) -> LoadedModel:
        model = self._load(self._repository.open(ref))
        report = model.executor.warm_up()
        device = self._device(model)
        self._learning.begin(ref, ProfileKey(ref.name, ref.version, model.variant.name, device), report)
        logger.info(
            "model is warm",
            extra={
                "action": Action.MODEL_LOADED,
                "model": str(ref),
                "variant": model.variant.name,
                "provider": model.provider,
                "device": device,
                "shapes": len(report.passes),
                "seconds": round(report.seconds, 3),
            },
        )
        return model

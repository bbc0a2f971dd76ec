"""Which models can be asked for: the repository, with what was seen kept for a second.

The repository is a folder (or, later, a bucket): it is read in threads, never on the event loop.
"""

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from batchfleet.clock import Monotonic, monotonic
from batchfleet.errors import ModelConfigError, ModelNotFoundError
from batchfleet.inference.intake import Intake
from batchfleet.models.config import ModelConfig
from batchfleet.models.manifest import MANIFEST_FILE
from batchfleet.models.repository import ModelRef

FRESH_S = 1.0
"""A new version is visible after this long, at the latest."""

MAX_CACHED = 1_024

IntakeFor: TypeAlias = Callable[[str], Intake[Hashable]]


class Repository(Protocol):
    """What the catalog reads; `batchfleet.models.repository.ModelRepository` is one."""

    @property
    def root(self) -> Path:
        """The folder that holds `<name>/<version>/`."""
        ...

    def models(self) -> list[str]:
        """Returns the names of all models."""
        ...

    def versions(self, name: str) -> list[str]:
        """Returns the versions of a model, oldest first."""
        ...

    def resolve(self, name: str, version: str | None = None) -> ModelRef:
        """Returns the version meant; raises `ModelNotFoundError`."""
        ...

    def config(self, ref: ModelRef) -> ModelConfig:
        """Reads a version's `model.toml`."""
        ...


class UnknownModelError(ModelNotFoundError):
    """No such model or version.

    Attributes:
        field: Which member of the request named it.
    """

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class PinnedModel:
    """A version that exists, and how its requests are checked; `created` is when it was published (Unix time)."""

    ref: ModelRef
    created: int
    config: ModelConfig
    intake: Intake[Hashable]


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model with all its versions, oldest first."""

    pinned: PinnedModel
    versions: list[str]


_Wanted: TypeAlias = tuple[str, str | None]


class Catalog:
    """The models that may be named in requests.

    Args:
        repository: Where versions live.
        intake_for: Finds the edge half of a task.
        fresh_s: For how long an answer is kept.
        clock: Measures that.
    """

    def __init__(
        self, repository: Repository, intake_for: IntakeFor, *, fresh_s: float = FRESH_S, clock: Monotonic = monotonic
    ) -> None:
        self._repository = repository
        self._intake_for = intake_for
        self._fresh_s = fresh_s
        self._clock = clock
        self._resolved: dict[_Wanted, tuple[float, PinnedModel]] = {}
        self._versions: dict[ModelRef, PinnedModel] = {}  # a published version never changes
        self._loading: dict[_Wanted, asyncio.Task[PinnedModel]] = {}

    async def pin(self, model: str, version: str | None) -> PinnedModel:
        """Returns the version that a submission of now gets.

        Raises:
            UnknownModelError: If there is no such model or version.
            ModelConfigError: If its `model.toml` is wrong.
        """
        wanted = (model, version)
        known = self._resolved.get(wanted)
        if known is not None and known[0] > self._clock():
            return known[1]
        loading = self._loading.get(wanted)
        if loading is None:
            loading = asyncio.ensure_future(self._load(wanted))
            self._loading[wanted] = loading
            loading.add_done_callback(lambda _: self._loading.pop(wanted, None))
        # Shielded: a caller that goes away must not take the answer from the others.
        return await asyncio.shield(loading)

    async def listing(self) -> list[ListedModel]:
        """Returns all models whose configuration can be read, sorted by name."""
        return await asyncio.to_thread(self._list)

    async def entry(self, model: str) -> ListedModel:
        """Returns one model.

        Raises:
            UnknownModelError: If there is no such model.
            ModelConfigError: If its `model.toml` is wrong.
        """
        pinned = await self.pin(model, None)
        return ListedModel(pinned, await asyncio.to_thread(self._repository.versions, model))

    async def _load(self, wanted: _Wanted) -> PinnedModel:
        pinned = await asyncio.to_thread(self._read, *wanted)
        if len(self._resolved) >= MAX_CACHED:
            self._resolved.clear()
        self._resolved[wanted] = (self._clock() + self._fresh_s, pinned)
        return pinned

    def _read(self, model: str, version: str | None) -> PinnedModel:
        try:
            ref = self._repository.resolve(model, version)
        except ModelNotFoundError as exc:
            known = version is not None and self._repository.versions(model)
            raise UnknownModelError(str(exc), field="version" if known else "model") from exc
        return self._of_version(ref)

    def _of_version(self, ref: ModelRef) -> PinnedModel:
        pinned = self._versions.get(ref)
        if pinned is None:
            config = self._repository.config(ref)
            pinned = PinnedModel(ref, self._created(ref), config, self._intake_for(config.task))
            if len(self._versions) >= MAX_CACHED:
                self._versions.clear()
            self._versions[ref] = pinned
        return pinned

    def _created(self, ref: ModelRef) -> int:
        try:
            return int((self._repository.root / ref.name / ref.version / MANIFEST_FILE).stat().st_mtime)
        except OSError:
            return 0

    def _list(self) -> list[ListedModel]:
        listed = []
        for name in self._repository.models():
            versions = self._repository.versions(name)
            pinned = self._readable(name, versions)
            if pinned is not None:
                listed.append(ListedModel(pinned, versions))
        return listed

    def _readable(self, name: str, versions: list[str]) -> PinnedModel | None:
        """A model whose newest version is broken is left out of the list; asking for it says what is wrong."""
        try:
            return self._of_version(ModelRef(name, versions[-1])) if versions else None
        except (ModelNotFoundError, ModelConfigError):
            return None

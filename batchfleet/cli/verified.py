"""Whether the models of a repository are what was published."""

from collections.abc import Sequence
from dataclasses import dataclass

from batchfleet.errors import ModelError
from batchfleet.models.repository import ModelRef, ModelRepository


@dataclass(frozen=True, slots=True)
class VerifiedModel:
    """One version of a model; `error` says what is wrong with it, None if nothing."""

    name: str
    version: str
    digest: str | None = None
    error: str | None = None

    def shown(self) -> dict[str, str]:
        """Returns it as JSON shows it."""
        members = {"name": self.name, "version": self.version, "digest": self.digest, "error": self.error}
        return {name: value for name, value in members.items() if value is not None}


def verify_models(repository: ModelRepository, names: Sequence[str] = ()) -> list[VerifiedModel]:
    """Reads every file of every version of the models named, or of all.

    Raises:
        ModelNotFoundError: If there is no model of a name.
    """
    for name in names:
        repository.resolve(name, None)
    refs = [ModelRef(name, version) for name in names or repository.models() for version in repository.versions(name)]
    return [_verified(repository, ref) for ref in refs]


def _verified(repository: ModelRepository, ref: ModelRef) -> VerifiedModel:
    try:
        files = repository.open(ref)
    except (ModelError, OSError) as error:
        return VerifiedModel(ref.name, ref.version, error=str(error))
    return VerifiedModel(ref.name, ref.version, digest=files.digest)

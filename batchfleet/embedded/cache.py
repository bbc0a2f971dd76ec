"""The demo model: made where it is missing, kept in the user's cache folder between runs of demo and benchmark."""

import os
from collections.abc import Callable
from pathlib import Path

from batchfleet.errors import ModelError
from batchfleet.models.repository import ModelFiles, ModelRef, ModelRepository


def cache_dir() -> Path:
    """Returns `$XDG_CACHE_HOME/batchfleet`, usually `~/.cache/batchfleet`."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "batchfleet"


def make_demo_model(repository: ModelRepository, work_dir: Path, say: Callable[[str], None]) -> ModelRef:
    """Makes the demo model, unless the repository has it.

    Raises:
        ModelError: If it cannot be made; the message says what to install, if that is why.
    """
    try:
        from batchfleet.build.demo_model import ensure_demo_model  # noqa: PLC0415 - heavy, and in an extra
    except ImportError as error:
        raise ModelError(
            f"making the demo model needs more packages ({error.name}): install batchfleet[demo]"
        ) from error
    return ensure_demo_model(repository, work_dir, say)


def cached_demo_model(say: Callable[[str], None]) -> tuple[ModelRepository, ModelFiles]:
    """Returns the demo model's repository and its verified files; makes them the first time.

    Raises:
        ModelError: If they cannot be had or made.
    """
    repository = ModelRepository(cache_dir() / "models")
    ref = make_demo_model(repository, cache_dir() / "build", say)
    return repository, repository.open(ref)

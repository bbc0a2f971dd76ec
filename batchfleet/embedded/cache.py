"""Where the demo model is kept between runs of demo and benchmark: the user's cache folder."""

import os
from collections.abc import Callable
from pathlib import Path

from batchfleet.build.demo_model import ensure_demo_model
from batchfleet.models.repository import ModelFiles, ModelRepository


def cache_dir() -> Path:
    """Returns `$XDG_CACHE_HOME/batchfleet`, usually `~/.cache/batchfleet`."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "batchfleet"


def cached_demo_model(say: Callable[[str], None]) -> tuple[ModelRepository, ModelFiles]:
    """Returns the demo model's repository and its verified files; makes them the first time.

    Raises:
        ModelError: If they cannot be had or made.
    """
    repository = ModelRepository(cache_dir() / "models")
    ref = ensure_demo_model(repository, cache_dir() / "build", say)
    return repository, repository.open(ref)

"""The demo model: built once a user and builder, kept in the user's cache folder, linked from there.

::

    ~/.cache/batchfleet/
      models-<key>/     a model repository; the key names the code that built it
      build/            weights while a model is being built, then removed
      lock              one build at a time
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from batchfleet.build.key import builder_key
from batchfleet.embedded.telling import words_of
from batchfleet.errors import ModelError
from batchfleet.models.copying import link_tree
from batchfleet.models.repository import ModelFiles, ModelRef, ModelRepository

Say = Callable[[str], None]


def cache_dir() -> Path:
    """Returns `$XDG_CACHE_HOME/batchfleet`, usually `~/.cache/batchfleet`."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "batchfleet"


def cached_repository() -> ModelRepository:
    """Returns the cache's repository of this builder; another version of the builder has another."""
    return ModelRepository(cache_dir() / f"models-{builder_key()}")


def make_demo_model(repository: ModelRepository, say: Say) -> ModelRef:
    """Puts the demo model into a repository, unless it has it: from the cache, which is filled the first time.

    Raises:
        ModelError: If it cannot be made; the message says what to install, if that is why.
    """
    cached, files = cached_demo_model(say)
    ref = files.ref
    if cached.root == repository.root or ref.version in repository.versions(ref.name):
        return ref
    say(f"taking {ref} from {cached.root}")
    try:
        repository.publish(ref, lambda folder: link_tree(files.path, folder))
    except OSError as error:
        raise ModelError(f"the model repository {repository.root} cannot be written: {words_of(error)}") from error
    except ModelError:
        # Two processes may publish at once: the one that comes second finds the work done.
        if ref.version not in repository.versions(ref.name):
            raise
    return ref


def cached_demo_model(say: Say) -> tuple[ModelRepository, ModelFiles]:
    """Returns the demo model's repository and its verified files; builds them the first time.

    Raises:
        ModelError: If they cannot be had or made.
    """
    repository = cached_repository()
    try:
        with _one_builder():
            ref = _build(repository, say)
    except OSError as error:
        raise ModelError(
            f"the cache folder {cache_dir()} cannot be written ({words_of(error)}); XDG_CACHE_HOME names another"
        ) from error
    return repository, repository.open(ref)


def _build(repository: ModelRepository, say: Say) -> ModelRef:
    try:
        from batchfleet.build.demo_model import ensure_demo_model  # noqa: PLC0415 - heavy, and in an extra
    except ImportError as error:
        raise ModelError(
            f"making the demo model needs more packages ({error.name}): install batchfleet[demo]"
        ) from error
    work_dir = cache_dir() / "build"
    try:
        return ensure_demo_model(repository, work_dir, say)
    finally:
        shutil.rmtree(work_dir, ignore_errors=True)


@contextlib.contextmanager
def _one_builder() -> Iterator[None]:
    """Lets one process build and others wait for it; the kernel frees the lock however its holder ends."""
    cache_dir().mkdir(parents=True, exist_ok=True)
    lock = os.open(cache_dir() / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)

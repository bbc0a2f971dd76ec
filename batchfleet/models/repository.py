"""Where model versions live: `<root>/<name>/<version>/` with `model.toml`, graphs and `MANIFEST.json`.

A version appears whole or not at all: it is written to a hidden folder, flushed to disk and renamed. Once
published it never changes; a correction is a new version. Workers open a version by copying nothing and
verifying everything.

Callers see names, versions and, after `open`, a local folder: a repository in an object store fits the same
methods by fetching into a cache before it verifies.
"""

import os
import re
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from batchfleet.errors import ModelConfigError, ModelError, ModelNotFoundError
from batchfleet.models.config import CONFIG_FILE, NAME_PATTERN, ModelConfig, read_config
from batchfleet.models.manifest import MANIFEST_FILE, Manifest, read_manifest, verify_files

_STAGING = ".staging"  # hidden: `NAME_PATTERN` admits no leading dot, so no listing shows it
_NAME = re.compile(NAME_PATTERN)


@dataclass(frozen=True, slots=True, order=True)
class ModelRef:
    """Names one version of one model."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A version whose files were verified.

    Attributes:
        ref: Which version it is.
        path: Local folder that holds its files.
        config: Its `model.toml`.
        manifest: Its `MANIFEST.json`.
        digest: The model digest, 64 hexadecimal digits.
    """

    ref: ModelRef
    path: Path
    config: ModelConfig
    manifest: Manifest
    digest: str


class ModelRepository:
    """A folder of model versions."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def root(self) -> Path:
        """The folder; it need not exist until something is published."""
        return self._root

    def models(self) -> list[str]:
        """Returns the names of all models with at least one version, sorted."""
        return [name for name in _folders(self._root) if self.versions(name)]

    def versions(self, name: str) -> list[str]:
        """Returns the published versions of `name`, oldest first by natural order; none if unknown."""
        if not _NAME.match(name):
            return []
        folder = self._root / name
        published = [version for version in _folders(folder) if (folder / version / MANIFEST_FILE).is_file()]
        return sorted(published, key=natural_order)

    def resolve(self, name: str, version: str | None = None) -> ModelRef:
        """Returns the version meant by `name` and `version`; None means the highest by natural order.

        Raises:
            ModelNotFoundError: If there is no such model or version.
        """
        versions = self.versions(name)
        if not versions:
            raise ModelNotFoundError(f"no model {name!r} in the repository")
        if version is None:
            return ModelRef(name, versions[-1])
        if version not in versions:
            raise ModelNotFoundError(f"model {name!r} has no version {version!r} (it has: {', '.join(versions)})")
        return ModelRef(name, version)

    def config(self, ref: ModelRef) -> ModelConfig:
        """Reads a version's `model.toml` only: cheap, for processes that route to a model without running it.

        Raises:
            ModelNotFoundError: If the version is not there.
            ModelConfigError: If the file is wrong, or names another model or version.
        """
        return _read_config_of(self.resolve(ref.name, ref.version), self._folder(ref))

    def open(self, ref: ModelRef) -> ModelFiles:
        """Verifies the digest of every file of a version and returns it.

        Raises:
            ModelNotFoundError: If the version is not there.
            ModelConfigError: If `model.toml` or `MANIFEST.json` is wrong.
            DigestMismatchError: If a file is missing or differs from the manifest.
        """
        ref = self.resolve(ref.name, ref.version)
        folder = self._folder(ref)
        manifest = read_manifest(folder / MANIFEST_FILE)
        verify_files(folder, manifest.files)
        config = _read_config_of(ref, folder)
        _check_listed(config, manifest, folder)
        return ModelFiles(ref=ref, path=folder, config=config, manifest=manifest, digest=manifest.digest)

    def publish(self, ref: ModelRef, write: Callable[[Path], None]) -> ModelFiles:
        """Publishes a version: `write` fills an empty folder (manifest included), which then appears at once.

        Args:
            ref: The version to publish.
            write: Writes all files into the folder that it is given; what it raises ends the publication.

        Returns:
            The version, opened and verified.

        Raises:
            ModelError: If the version exists already; versions never change.
            ModelConfigError, DigestMismatchError: If what was written is not a valid version.
        """
        _check_name(ref.name)
        _check_name(ref.version)
        target = self._folder(ref)
        staging = self._root / _STAGING / uuid.uuid4().hex
        staging.mkdir(parents=True)
        try:
            write(staging)
            _check_staged(ref, staging)
            _flush_tree(staging)
            _rename_into_place(staging, target)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        return self.open(ref)

    def _folder(self, ref: ModelRef) -> Path:
        return self._root / ref.name / ref.version


def natural_order(version: str) -> tuple[tuple[int, int, str], ...]:
    """Returns a sort key under which numbers inside a version compare as numbers: `1.9` before `1.10`."""
    parts = re.findall(r"\d+|[^\d]+", version)
    return tuple((1, int(part), part) if part.isdigit() else (0, 0, part) for part in parts)


def _folders(path: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in os.scandir(path) if _NAME.match(entry.name) and entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _check_name(name: str) -> None:
    if not _NAME.match(name):
        raise ModelConfigError(f"{name!r} is no name for a model or version: it must match {NAME_PATTERN}")


def _read_config_of(ref: ModelRef, folder: Path) -> ModelConfig:
    config = read_config(folder / CONFIG_FILE)
    if (config.name, config.version) != (ref.name, ref.version):
        raise ModelConfigError(
            f"{folder / CONFIG_FILE}: `name`: says {config.name} {config.version}, but lies in the folder of {ref}"
        )
    return config


def _check_listed(config: ModelConfig, manifest: Manifest, folder: Path) -> None:
    """Refuses files that would be loaded although no digest vouches for them."""
    for name in (CONFIG_FILE, *(variant.file for variant in config.variants)):
        if name not in manifest.files:
            raise ModelConfigError(f"{folder / MANIFEST_FILE}: `files`: {name!r} is not listed")


def _check_staged(ref: ModelRef, staging: Path) -> None:
    manifest = read_manifest(staging / MANIFEST_FILE)
    verify_files(staging, manifest.files)
    _check_listed(_read_config_of(ref, staging), manifest, staging)


def _flush_tree(folder: Path) -> None:
    """Flushes every file and folder to disk, so that the rename never shows what a power cut could empty."""
    for path in sorted(folder.rglob("*"), reverse=True):
        _flush(path)
    _flush(folder)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _rename_into_place(staging: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        # Renaming a folder onto one that is not empty fails: of two publishers one wins, whole.
        staging.rename(target)
    except OSError as error:
        if target.exists():
            raise ModelError(f"{target.parent.name} {target.name} is published already") from error
        raise
    _flush(target.parent)

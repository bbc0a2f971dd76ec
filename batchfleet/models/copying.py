"""A published version with other limits: a new version, whose files are otherwise those of the old one."""

import dataclasses
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from batchfleet.models.config import CONFIG_FILE, Limits, convert, parse_config, render_config
from batchfleet.models.manifest import MANIFEST_FILE, render_manifest, sha256_of
from batchfleet.models.repository import ModelFiles, ModelRef, ModelRepository


def with_limits(limits: Limits, changes: Mapping[str, Any]) -> Limits:
    """Returns limits in which some are others; None stands for the default of those that may have none.

    Raises:
        ModelConfigError: If there is no such limit, or not with that value; the message names it.
    """
    stated = {name: value for name, value in {**dataclasses.asdict(limits), **changes}.items() if value is not None}
    return convert(stated, Limits, source="limits")


def publish_copy(repository: ModelRepository, files: ModelFiles, version: str, limits: Limits) -> ModelFiles:
    """Publishes a version like another one but for its limits; accuracy, source and profile come along.

    Raises:
        ModelError: If there is such a version already.
        ModelConfigError: If the version's name or the limits cannot be.
    """
    config = dataclasses.replace(files.config, version=version, limits=limits)
    text = render_config(config)
    parse_config(text, source="the copy")  # told of the limit, before a file is written

    def write(folder: Path) -> None:
        link_tree(files.path, folder)
        for name in (CONFIG_FILE, MANIFEST_FILE):
            (folder / name).unlink()  # a link: what is written next must not reach the old version's
        (folder / CONFIG_FILE).write_text(text, encoding="utf-8")
        digests = {**files.manifest.files, CONFIG_FILE: sha256_of(folder / CONFIG_FILE)}
        manifest = dataclasses.replace(files.manifest, files=digests)
        (folder / MANIFEST_FILE).write_text(render_manifest(manifest), encoding="utf-8")

    return repository.publish(ModelRef(files.ref.name, version), write)


def next_version(newest: str) -> str:
    """Returns a version that natural order puts right after the newest: `1.9` gives `1.10`, `rc` gives `rc.1`."""
    digits = re.search(r"\d+\Z", newest)
    return f"{newest}.1" if digits is None else f"{newest[: digits.start()]}{int(digits[0]) + 1}"


def link_tree(source: Path, target: Path) -> None:
    """Fills a folder with the files of another, by hard link where both lie on one file system."""
    for path in sorted(source.rglob("*")):
        place = target / path.relative_to(source)
        if path.is_dir():
            place.mkdir(parents=True, exist_ok=True)
            continue
        try:
            os.link(path, place)
        except OSError:
            shutil.copyfile(path, place)

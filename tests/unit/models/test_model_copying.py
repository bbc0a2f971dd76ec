"""Other limits are a new version: the same graphs and what was measured of them."""

import dataclasses
from pathlib import Path

import pytest

from batchfleet.errors import DigestMismatchError, ModelConfigError, ModelError
from batchfleet.models.config import Limits
from batchfleet.models.copying import next_version, publish_copy, with_limits
from batchfleet.models.repository import ModelFiles, ModelRef, ModelRepository, natural_order
from tests.support.models import build_tiny_encoder


@pytest.fixture
def repository(tmp_path: Path) -> ModelRepository:
    return ModelRepository(tmp_path)


@pytest.fixture
def files(repository: ModelRepository) -> ModelFiles:
    return repository.open(build_tiny_encoder(repository.root, hidden=16, positions=128))


def test_all_but_the_limits_comes_along(repository: ModelRepository, files: ModelFiles) -> None:
    limits = with_limits(files.config.limits, {"max_delay_ms": 20, "overlong": "error"})

    made = publish_copy(repository, files, "2", limits)

    assert made.config == dataclasses.replace(files.config, version="2", limits=limits)
    assert (made.config.limits.max_delay_ms, made.config.limits.overlong) == (20.0, "error")
    for kept in ("accuracy", "profile", "source", "build"):
        assert getattr(made.manifest, kept) == getattr(files.manifest, kept), kept
    assert made.manifest.files.keys() == files.manifest.files.keys()
    assert made.digest != files.digest
    assert repository.open(files.ref) == files, "the old version is what it was"
    assert repository.resolve(files.ref.name) == ModelRef(files.ref.name, "2")


def test_a_version_that_is_there_stays(repository: ModelRepository, files: ModelFiles) -> None:
    with pytest.raises(ModelError, match="published already"):
        publish_copy(repository, files, files.ref.version, files.config.limits)


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"max_dely_ms": 20}, "max_dely_ms"), ({"max_batch_items": "many"}, "max_batch_items")],
)
def test_a_limit_that_cannot_be_is_named(changes: dict[str, object], named: str) -> None:
    with pytest.raises(ModelConfigError, match=named):
        with_limits(Limits(), changes)


def test_more_are_preferred_than_may_be(repository: ModelRepository, files: ModelFiles) -> None:
    limits = with_limits(files.config.limits, {"preferred_batch_items": 9, "max_batch_items": 8})

    with pytest.raises(ModelConfigError, match=r"`limits.preferred_batch_items`: 9 is over max_batch_items \(8\)"):
        publish_copy(repository, files, "2", limits)
    assert repository.versions(files.ref.name) == [files.ref.version]
    assert with_limits(limits, {"preferred_batch_items": None}).preferred_batch_items is None


def test_an_edited_version_says_what_to_do_instead(repository: ModelRepository, files: ModelFiles) -> None:
    toml = files.path / "model.toml"
    toml.write_text(toml.read_text().replace("max_delay_ms", "# max_delay_ms"))

    with pytest.raises(DigestMismatchError, match="may not be edited, publish a new one"):
        repository.open(files.ref)


@pytest.mark.parametrize(("newest", "following"), [("1", "2"), ("1.9", "1.10"), ("rc", "rc.1"), ("1-rc", "1-rc.1")])
def test_the_next_version_is_the_newest(newest: str, following: str) -> None:
    assert next_version(newest) == following
    assert natural_order(following) > natural_order(newest)

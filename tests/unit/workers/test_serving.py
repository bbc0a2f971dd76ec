"""Which versions a worker serves, and what it does about those that it cannot."""

from pathlib import Path

import pytest

from batchfleet.errors import ModelError, RuntimeUnavailableError
from batchfleet.inference.registry import LoadedModel, load_executor
from batchfleet.models.repository import ModelFiles, ModelRef, ModelRepository
from tests.support.models import build_tiny_encoder
from workers.serving import Loaded, Serving


def load_fp32(files: ModelFiles) -> LoadedModel:
    return load_executor(files, "fp32")


def serving(root: Path, *names: str) -> Serving:
    return Serving(ModelRepository(root), load_fp32, names)


def test_a_broken_new_version_does_not_take_the_older_ones_down(tmp_path: Path) -> None:
    build_tiny_encoder(tmp_path, version="1")
    build_tiny_encoder(tmp_path, version="2")
    (tmp_path / "tiny" / "2" / "model.fp32.onnx").write_bytes(b"half a copy")
    served = serving(tmp_path)

    assert served.load_all() is Loaded.SOME

    assert served.loaded(ModelRef("tiny", "1")).ref.version == "1"
    with pytest.raises(ModelError):
        served.get(ModelRef("tiny", "2"))


def test_an_empty_repository_may_be_filled_later(tmp_path: Path) -> None:
    served = serving(tmp_path)
    assert served.load_all() is Loaded.SOME

    build_tiny_encoder(tmp_path)

    assert served.names() == ("tiny",)
    assert served.get(ModelRef("tiny", "1")).ref.name == "tiny"


def test_a_worker_serves_once_a_model_was_published_and_loaded(tmp_path: Path) -> None:
    served = serving(tmp_path)
    served.load_all()
    assert not served.serves()
    build_tiny_encoder(tmp_path)
    (tmp_path / "tiny" / "1" / "model.fp32.onnx").write_bytes(b"half a copy")
    assert not served.serves()

    build_tiny_encoder(tmp_path, version="2")

    assert served.serves()
    assert served.loaded(ModelRef("tiny", "2")).ref.version == "2"


def test_what_a_restart_does_not_mend_is_told_apart(tmp_path: Path) -> None:
    build_tiny_encoder(tmp_path)

    def refuse(_files: ModelFiles) -> LoadedModel:
        raise RuntimeUnavailableError("no such provider here")

    def stumble(_files: ModelFiles) -> LoadedModel:
        raise OSError("the share is away")

    assert serving(tmp_path, "unknown").load_all() is Loaded.NEVER
    assert Serving(ModelRepository(tmp_path), refuse).load_all() is Loaded.NEVER
    assert Serving(ModelRepository(tmp_path), stumble).load_all() is Loaded.NOT_NOW


def test_one_model_that_fails_does_not_hinder_another(tmp_path: Path) -> None:
    build_tiny_encoder(tmp_path, name="bad")
    build_tiny_encoder(tmp_path, name="good")
    (tmp_path / "bad" / "1" / "model.fp32.onnx").unlink()

    assert serving(tmp_path).load_all() is Loaded.SOME

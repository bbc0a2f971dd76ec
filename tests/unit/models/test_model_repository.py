"""A version appears whole, never changes, and is opened only if every byte is the published one."""

import dataclasses
import json
from pathlib import Path

import pytest

from batchfleet.errors import DigestMismatchError, ModelConfigError, ModelError, ModelNotFoundError
from batchfleet.models.config import CONFIG_FILE, ModelConfig, Variant, render_config
from batchfleet.models.manifest import MANIFEST_FILE, Accuracy, Manifest, file_digests, read_manifest, render_manifest
from batchfleet.models.repository import ModelFiles, ModelRef, ModelRepository, natural_order


def write_version(folder: Path, ref: ModelRef, graph: bytes = b"graph") -> None:
    variant = Variant(name="fp32", precision="fp32", runtime="onnx", provider="cpu", file="sub/model.onnx")
    config = ModelConfig(name=ref.name, version=ref.version, task="embed", variants=(variant,))
    (folder / "sub").mkdir()
    (folder / "sub/model.onnx").write_bytes(graph)
    (folder / CONFIG_FILE).write_text(render_config(config))
    (folder / MANIFEST_FILE).write_text(render_manifest(Manifest(files=file_digests(folder))))


def publish(repository: ModelRepository, name: str, version: str, graph: bytes = b"graph") -> ModelFiles:
    ref = ModelRef(name, version)
    return repository.publish(ref, lambda folder: write_version(folder, ref, graph))


@pytest.fixture
def repository(tmp_path: Path) -> ModelRepository:
    return ModelRepository(tmp_path / "models")


def test_an_empty_repository_has_no_models(repository: ModelRepository) -> None:
    assert repository.models() == []
    assert repository.versions("m") == []
    with pytest.raises(ModelNotFoundError):
        repository.resolve("m")


def test_the_latest_version_is_the_highest_by_number_not_by_letter(repository: ModelRepository) -> None:
    for version in ("2", "10", "9"):
        publish(repository, "m", version)

    assert repository.versions("m") == ["2", "9", "10"]
    assert repository.resolve("m") == ModelRef("m", "10")
    assert repository.resolve("m", "9") == ModelRef("m", "9")
    with pytest.raises(ModelNotFoundError, match="it has: 2, 9, 10"):
        repository.resolve("m", "11")


def test_natural_order_compares_numbers_inside_versions() -> None:
    versions = ["1.10", "1.9", "v2", "1", "1.9-rc1", "1a"]

    assert sorted(versions, key=natural_order) == ["v2", "1", "1.9", "1.9-rc1", "1.10", "1a"]


def test_opening_gives_config_manifest_and_digest(repository: ModelRepository) -> None:
    published = publish(repository, "m", "1")

    opened = repository.open(ModelRef("m", "1"))

    assert opened == published
    assert opened.config.variants[0].file == "sub/model.onnx"
    assert opened.digest == opened.manifest.digest
    assert len(opened.digest) == 64


def test_the_digest_names_the_bytes(repository: ModelRepository) -> None:
    one, same, other = (
        publish(repository, "m", "1"),
        Manifest(files=publish(repository, "m", "2").manifest.files),
        publish(repository, "m", "3", graph=b"other"),
    )

    assert same.digest != one.digest  # `model.toml` names the version, and is part of it
    assert other.digest != same.digest
    assert Manifest(files=dict(reversed(list(one.manifest.files.items())))).digest == one.digest


@pytest.mark.parametrize("name", ["sub/model.onnx", CONFIG_FILE])
def test_a_changed_file_is_refused(repository: ModelRepository, name: str) -> None:
    path = publish(repository, "m", "1").path / name
    path.write_bytes(path.read_bytes() + b" ")

    with pytest.raises(DigestMismatchError, match=name):
        repository.open(ModelRef("m", "1"))


def test_a_missing_file_is_refused(repository: ModelRepository) -> None:
    (publish(repository, "m", "1").path / "sub/model.onnx").unlink()

    with pytest.raises(DigestMismatchError, match="cannot be read"):
        repository.open(ModelRef("m", "1"))


def test_a_graph_that_no_digest_vouches_for_is_refused(repository: ModelRepository) -> None:
    folder = publish(repository, "m", "1").path
    manifest = read_manifest(folder / MANIFEST_FILE)
    files = {name: digest for name, digest in manifest.files.items() if name == CONFIG_FILE}
    (folder / MANIFEST_FILE).write_text(render_manifest(dataclasses.replace(manifest, files=files)))

    with pytest.raises(ModelConfigError, match="not listed"):
        repository.open(ModelRef("m", "1"))


def test_a_half_published_version_is_invisible(repository: ModelRepository) -> None:
    publish(repository, "m", "1")
    half = repository.root / "m" / "2"
    half.mkdir()
    (half / CONFIG_FILE).write_text("")

    assert repository.versions("m") == ["1"]
    assert repository.resolve("m") == ModelRef("m", "1")


def test_a_publication_that_fails_leaves_nothing(repository: ModelRepository) -> None:
    def fail(folder: Path) -> None:
        write_version(folder, ModelRef("m", "1"))
        raise RuntimeError("disk on fire")

    with pytest.raises(RuntimeError, match="disk on fire"):
        repository.publish(ModelRef("m", "1"), fail)

    assert repository.models() == []
    assert list(repository.root.rglob("model.onnx")) == []


def test_a_publication_that_is_no_valid_version_never_appears(repository: ModelRepository) -> None:
    with pytest.raises(ModelConfigError, match="lies in the folder of m@1"):
        repository.publish(ModelRef("m", "1"), lambda folder: write_version(folder, ModelRef("m", "2")))

    assert repository.models() == []


def test_a_published_version_never_changes(repository: ModelRepository) -> None:
    before = publish(repository, "m", "1")

    with pytest.raises(ModelError, match="published already"):
        publish(repository, "m", "1", graph=b"other")

    assert repository.open(ModelRef("m", "1")) == before


@pytest.mark.parametrize("name", ["..", ".staging", "a/b", "A", ""])
def test_a_name_that_is_no_plain_folder_is_refused(repository: ModelRepository, name: str) -> None:
    assert repository.versions(name) == []
    with pytest.raises(ModelNotFoundError):
        repository.resolve(name)
    with pytest.raises(ModelConfigError, match="no name"):
        publish(repository, name, "1")


def test_the_config_can_be_read_without_hashing_graphs(repository: ModelRepository) -> None:
    folder = publish(repository, "m", "1").path
    (folder / "sub/model.onnx").write_bytes(b"changed")

    assert repository.config(ModelRef("m", "1")).task == "embed"


def test_a_manifest_reads_back_as_written(tmp_path: Path) -> None:
    accuracy = Accuracy(variant="a", mean_cosine=0.5, min_cosine=0.25, company_min_cosine=1.0, texts=3)
    manifest = Manifest(files={"a": "0" * 64}, source={"package": "p"}, build={"bits": 8}, accuracy=(accuracy,))
    (tmp_path / MANIFEST_FILE).write_text(render_manifest(manifest))

    assert read_manifest(tmp_path / MANIFEST_FILE) == manifest


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"format": 2}, "`format`"),
        ({"files": {"a": "xyz"}}, "`files"),
        ({"files": {"../a": "0" * 64}}, "not a path inside"),
        ({"extra": 1}, "`extra`"),
    ],
)
def test_a_wrong_manifest_is_refused_by_field(tmp_path: Path, change: dict[str, object], field: str) -> None:
    path = tmp_path / MANIFEST_FILE
    path.write_text(json.dumps({"format": 1, "files": {"a": "0" * 64}, **change}))

    with pytest.raises(ModelConfigError, match=field):
        read_manifest(path)


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_a_manifest_that_is_no_json_object_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST_FILE).write_text(text)

    with pytest.raises(ModelConfigError):
        read_manifest(tmp_path / MANIFEST_FILE)

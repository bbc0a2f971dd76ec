"""The fastest variant that is exact here is chosen by measuring, and remembered for this model and machine."""

import dataclasses
import fcntl
import os
import shutil
from pathlib import Path

import pytest

from batchfleet.build.graph import GraphWriter
from batchfleet.errors import ModelConfigError, RuntimeUnavailableError
from batchfleet.inference import select
from batchfleet.inference.machine import Cpu
from batchfleet.inference.registry import LoadedModel, load_executor
from batchfleet.inference.select import choose_variant
from batchfleet.models.config import Variant
from batchfleet.models.manifest import file_digests
from batchfleet.models.repository import ModelFiles, ModelRepository
from tests.support.models import INTEGER, build_tiny_encoder

OTHER_CPU = Cpu(machine="x86_64", model="another", flags=frozenset({"avx512_vnni"}))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    root = tmp_path_factory.mktemp("models")
    opened = ModelRepository(root).open(build_tiny_encoder(root, hidden=16, positions=128))
    # The third variant depends on the machine that runs these tests; the others run everywhere.
    return with_variants(opened, *opened.config.variants[:2])


def with_variants(files: ModelFiles, *variants: Variant) -> ModelFiles:
    return dataclasses.replace(files, config=dataclasses.replace(files.config, variants=variants))


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Makes `INTEGER` ten times as fast as `fp32` by decree; returns which variants were timed."""
    timed: list[str] = []

    def time_round(model: LoadedModel) -> float:
        timed.append(model.variant.name)
        return 1.0 if model.variant.name == "fp32" else 0.1

    monkeypatch.setattr(select, "_time_round", time_round)
    return timed


def test_the_fastest_is_chosen_and_the_reason_says_by_how_much(files: ModelFiles, rounds: list[str]) -> None:
    selection = choose_variant(files, seconds=0)

    assert selection.chosen == INTEGER
    assert selection.reason == f"{INTEGER} is the fastest here, 10.0 x fp32 (640 texts/s of 40 tokens on average)."
    assert [speed.variant for speed in selection.speeds] == [INTEGER, "fp32"]
    assert selection.refused == {}


def test_timing_runs_real_passes(files: ModelFiles) -> None:
    selection = choose_variant(files, seconds=0)

    assert {speed.variant for speed in selection.speeds} == {"fp32", INTEGER}
    assert all(speed.texts_per_s > 0 for speed in selection.speeds)


def test_a_choice_is_remembered_for_this_model_and_cpu(files: ModelFiles, rounds: list[str], tmp_path: Path) -> None:
    state = tmp_path / "deep" / "choices.json"
    first = choose_variant(files, seconds=0, state_file=state)
    timed = len(rounds)

    assert choose_variant(files, seconds=0, state_file=state) == first
    assert len(rounds) == timed
    choose_variant(files, seconds=0, state_file=state, cpu=OTHER_CPU)
    assert len(rounds) > timed
    assert [path.name for path in state.parent.iterdir()] == ["choices.json"]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"key": 1}'])
def test_a_state_file_that_cannot_be_read_is_measured_over(
    files: ModelFiles, rounds: list[str], tmp_path: Path, text: str
) -> None:
    state = tmp_path / "choices.json"
    state.write_text(text)

    assert choose_variant(files, seconds=0, state_file=state).chosen == INTEGER
    timed = len(rounds)
    assert choose_variant(files, seconds=0, state_file=state).chosen == INTEGER
    assert len(rounds) == timed


def test_a_variant_that_cannot_be_had_is_refused_with_its_reason(files: ModelFiles) -> None:
    absent = Variant(name="cuda", precision="fp16", runtime="onnx", provider="tpu", file="model.fp32.onnx")

    selection = choose_variant(with_variants(files, files.config.variants[0], absent), seconds=0)

    assert selection.chosen == "fp32"
    assert "only variant" in selection.reason
    assert "tpu" in selection.refused["cuda"]


def test_a_provider_that_is_not_allowed_is_not_tried(files: ModelFiles, tmp_path: Path) -> None:
    other = dataclasses.replace(files.config.variants[1], name="gpu", provider="cuda")
    state = tmp_path / "choices.json"

    selection = choose_variant(
        with_variants(files, files.config.variants[0], other), seconds=0, providers=["cpu"], state_file=state
    )

    assert selection.chosen == "fp32"
    assert selection.refused == {"gpu": "its provider is not allowed here"}


def test_a_machine_that_can_run_nothing_says_why(files: ModelFiles) -> None:
    absent = dataclasses.replace(files.config.variants[0], provider="tpu")

    with pytest.raises(RuntimeUnavailableError, match="'tpu' is not known"):
        choose_variant(with_variants(files, absent), seconds=0)


def test_an_unknown_runtime_is_a_configuration_error(files: ModelFiles) -> None:
    unknown = dataclasses.replace(files.config.variants[0], runtime="abacus")

    with pytest.raises(ModelConfigError, match="abacus"):
        choose_variant(with_variants(files, unknown), seconds=0)
    with pytest.raises(ModelConfigError, match="no variant 'missing'"):
        load_executor(files, "missing")


def test_a_variant_that_is_wrong_on_this_machine_is_not_chosen_however_fast(
    files: ModelFiles, rounds: list[str], tmp_path: Path
) -> None:
    """A kernel that saturates gives wrong numbers and no error."""
    folder = tmp_path / "version"
    shutil.copytree(files.path, folder)
    wrong = GraphWriter()
    ids = wrong.input("input_ids", ["batch", "seq"])
    mask = wrong.input("attention_mask", ["batch", "seq"])
    both = wrong.node("Cast", wrong.node("Concat", ids, mask, axis=1), to=1)
    summed = wrong.node("ReduceSum", both, wrong.integers(1), keepdims=1)
    wrong.output(wrong.node("Expand", summed, wrong.integers(1, 16)), "sentence_embedding", ["batch", 16])
    wrong.save(folder / f"model.{INTEGER}.onnx", "wrong")
    manifest = dataclasses.replace(files.manifest, files=file_digests(folder))

    selection = choose_variant(dataclasses.replace(files, path=folder, manifest=manifest), seconds=0)

    assert selection.chosen == "fp32"
    assert "inexact on this machine" in selection.refused[INTEGER]


def test_others_wait_while_one_measures(files: ModelFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers that measured side by side found two answers, and one machine ran two precisions."""
    locked: list[bool] = []

    def time_round(_model: LoadedModel) -> float:
        folder = os.open(tmp_path, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked.append(False)
        except BlockingIOError:
            locked.append(True)
        finally:
            os.close(folder)
        return 1.0

    monkeypatch.setattr(select, "_time_round", time_round)

    choose_variant(files, seconds=0, state_file=tmp_path / "choices.json")

    assert locked
    assert all(locked)
    choose_variant(files, seconds=0, state_file=tmp_path / "choices.json", threads=2)  # it was let go

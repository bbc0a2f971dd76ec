"""A model is loaded as the machine was tuned for; what is set explicitly always wins."""

import dataclasses
import logging
from pathlib import Path

import pytest

from batchfleet.embedded.tune.recall import here
from batchfleet.inference.tuning import Trial, Tuning, remember, tuning_file
from batchfleet.models.repository import ModelFiles, ModelRepository
from batchfleet.profiles.memory import MemoryProfiles
from batchfleet.settings import Settings
from tests.support.models import INTEGER, build_tiny_encoder
from workers.learn import Learning
from workers.load import ModelLoader
from workers.main import _serving


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    root = tmp_path_factory.mktemp("models")
    opened = ModelRepository(root).open(build_tiny_encoder(root, hidden=16, positions=128))
    portable = dataclasses.replace(opened.config, variants=opened.config.variants[:2])  # both run everywhere
    return dataclasses.replace(opened, config=portable)


def tuned(files: ModelFiles, state_dir: Path, trial: Trial) -> None:
    tuning = Tuning(trial.workers, trial.threads, {files.digest: trial}, (trial,), "2026-01-01T00:00:00+00:00")
    remember(tuning_file(state_dir), here(), tuning)


def trial_of(variant: str = INTEGER, threads: int = 2) -> Trial:
    return Trial(1, threads, "tiny@1", variant, 512, 100.0)


def test_threads_variant_and_budget_are_those_that_were_fastest(files: ModelFiles, tmp_path: Path) -> None:
    tuned(files, tmp_path, trial_of())

    loader = ModelLoader(Settings(state_dir=tmp_path))
    model = loader(files)

    assert loader.threads == 2
    assert (model.variant.name, model.limits.max_batch_tokens) == (INTEGER, 512)
    assert not (tmp_path / "variants.json").exists()  # nothing was measured again


@pytest.mark.parametrize("variant", ["fp32", INTEGER])
def test_what_is_set_wins(files: ModelFiles, tmp_path: Path, variant: str) -> None:
    tuned(files, tmp_path, trial_of())

    loader = ModelLoader(Settings(state_dir=tmp_path, worker_threads=1, worker_variant=variant))
    model = loader(files)

    assert loader.threads == 1
    assert (model.variant.name, model.limits.max_batch_tokens) == (variant, 4096)


@pytest.mark.parametrize(
    ("variant", "told", "budget"),
    [
        ("fp32", f"fp32, as set (tuning found {INTEGER} faster).", 4096),
        (INTEGER, f"{INTEGER}, as set.", 512),
        ("auto", f"{INTEGER} was the fastest here when this machine was tuned (100 texts/s).", 512),
    ],
)
def test_the_log_says_what_is_loaded_and_why(
    files: ModelFiles, tmp_path: Path, variant: str, told: str, budget: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "workers.load")
    tuned(files, tmp_path, trial_of(threads=1))

    model = ModelLoader(Settings(state_dir=tmp_path, worker_variant=variant))(files)

    assert caplog.messages == [told]
    assert model.limits.max_batch_tokens == budget


def test_a_tuning_for_a_variant_that_is_gone_says_nothing(files: ModelFiles, tmp_path: Path) -> None:
    tuned(files, tmp_path, trial_of("gone"))

    model = ModelLoader(Settings(state_dir=tmp_path))(files)

    assert model.variant.name in {"fp32", INTEGER}
    assert model.limits.max_batch_tokens == 4096
    assert (tmp_path / "variants.json").exists()


def test_without_a_tuning_one_thread_runs_a_pass(tmp_path: Path) -> None:
    assert ModelLoader(Settings(state_dir=tmp_path)).threads == 1


def test_costs_of_other_threads_are_kept_apart(files: ModelFiles, tmp_path: Path) -> None:
    """A tuned machine runs two threads a pass though the setting says one: its figures are those of two."""
    tuned(files, tmp_path, trial_of())
    root = files.path.parent.parent
    names: list[str] = []
    for settings in (
        Settings(state_dir=tmp_path, models_url=root.as_uri()),
        Settings(state_dir=tmp_path, models_url=root.as_uri(), worker_threads=1),
    ):
        profiles = MemoryProfiles()
        learning = Learning(profiles)
        serving = _serving(settings, learning)
        serving.load_all()
        learning.exchange()
        serving.close()
        names += [known.key.device for known in profiles.rates()]

    assert [name.rpartition("/")[2] for name in names] == ["2 threads", "1 thread"]

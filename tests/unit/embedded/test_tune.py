"""Tuning: the split, variant and budget that are taken, and the real processes that are measured."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchfleet.cli.main import main
from batchfleet.embedded.cores import Cores
from batchfleet.embedded.exits import Exit
from batchfleet.embedded.tune import run
from batchfleet.embedded.tune.choose import Subject, Tuner, typical
from batchfleet.embedded.tune.passes import Candidate, Speed, cut
from batchfleet.embedded.tune.pool import Pool
from batchfleet.embedded.tune.recall import recall_here
from batchfleet.embedded.tune.report import as_json, as_text
from batchfleet.embedded.tune.run import Measured
from batchfleet.errors import ModelNotFoundError, RuntimeUnavailableError
from batchfleet.inference.measure import pass_items, sample_lengths
from batchfleet.inference.registry import load_executor
from batchfleet.inference.tuning import Trial
from batchfleet.models.repository import ModelFiles, ModelRepository
from batchfleet.settings import Settings
from tests.support.models import INTEGER, build_tiny_encoder

Figures = dict[tuple[int, int, str], float]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    root = tmp_path_factory.mktemp("models")
    return ModelRepository(root).open(build_tiny_encoder(root, hidden=16, positions=128))


class PlayedPool:
    """Stands for processes whose speeds are known, so that the decision can be told right or wrong."""

    def __init__(self, speed: float, smaller: float) -> None:
        self._speed, self._smaller = speed, smaller

    def speed(self, budget: int, seconds: float) -> Speed:
        return Speed(self._speed * (1.0 if budget == 4096 else self._smaller), 0.0)


def tuner(files: ModelFiles, figures: Figures, *, smaller: float = 0.9, variants: tuple[str, ...] = ("fp32",)) -> Tuner:
    @contextlib.contextmanager
    def open_pool(candidate: Candidate, processes: int) -> Iterator[PlayedPool]:
        speed = figures.get((processes, candidate.threads, candidate.variant))
        if speed is None:
            raise RuntimeUnavailableError("out of memory")
        yield PlayedPool(speed, smaller)

    return Tuner([Subject(files, variants)], open_pool, lambda _text: None, seconds=0)


def test_the_fastest_split_and_variant_are_taken(files: ModelFiles) -> None:
    figures = {(2, 1, "fp32"): 100.0, (1, 2, "fp32"): 90.0, (2, 1, INTEGER): 150.0, (1, 2, INTEGER): 120.0}

    tuning = tuner(files, figures, variants=("fp32", INTEGER)).tune(Cores(2, 2))

    assert (tuning.workers, tuning.threads) == (2, 1)
    best = tuning.best[files.digest]
    assert (best.variant, best.max_batch_tokens, best.texts_per_s) == (INTEGER, 4096, 150.0)


def test_more_processes_must_be_clearly_faster(files: ModelFiles) -> None:
    tuning = tuner(files, {(2, 1, "fp32"): 101.0, (1, 2, "fp32"): 100.0}).tune(Cores(2, 2))

    assert (tuning.workers, tuning.threads) == (1, 2)


@pytest.mark.parametrize(("smaller", "budget"), [(1.5, 2048), (1.02, 4096), (0.5, 4096)])
def test_a_smaller_budget_is_taken_where_it_pays(files: ModelFiles, smaller: float, budget: int) -> None:
    tuning = tuner(files, {(1, 1, "fp32"): 100.0}, smaller=smaller).tune(Cores(1, 1))

    assert tuning.best[files.digest].max_batch_tokens == budget


def test_a_split_that_does_not_fit_is_left_out(files: ModelFiles) -> None:
    tuning = tuner(files, {(1, 2, "fp32"): 50.0}).tune(Cores(2, 2))

    assert (tuning.workers, tuning.threads) == (1, 2)
    with pytest.raises(RuntimeUnavailableError, match="no split"):
        tuner(files, {}).tune(Cores(2, 2))


def test_batches_keep_within_the_budget_and_lose_nothing(files: ModelFiles) -> None:
    model = load_executor(files, "fp32")
    prepared = [model.task.sample(length) for length in sample_lengths(50, model.limits.max_item_tokens)]
    items = pass_items(prepared, model.task.default_parameters())

    batches = cut(items, model.executor.shapes, 256)

    assert {item.key for batch in batches for item in batch} == set(range(50))
    assert sum(map(len, batches)) == 50
    assert all(len(batch) * batch[0].item.length <= 256 for batch in batches)


def test_the_whole_measures_real_processes_and_is_remembered(
    files: ModelFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "read_cores", lambda: Cores(1, 1))
    settings = Settings(
        models_url=f"file://{files.path.parent.parent}", state_dir=tmp_path / "state", worker_variant="fp32"
    )
    told: list[str] = []

    measured = run.measure(settings, told.append, seconds=0.01)

    assert (measured.tuning.workers, measured.tuning.threads) == (1, 1)
    assert all(trial.texts_per_s > 0 for trial in measured.tuning.tried)
    assert recall_here(settings.state_dir) == measured.tuning
    assert len(told) == 1 + len(measured.tuning.tried)
    assert "taken (*): 1 worker(s)" in as_text(measured)
    assert json.loads(json.dumps(as_json(measured)))["models"][0]["variant"] == "fp32"


def test_a_variant_that_cannot_be_loaded_is_told(files: ModelFiles) -> None:
    candidate = Candidate(files.path.parent.parent, files.ref, "nonsense", 1)

    with pytest.raises(RuntimeUnavailableError, match="no variant 'nonsense'"), Pool(candidate, 1):
        pass


def test_an_empty_repository_cannot_be_tuned(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="no model"):
        run.measure(Settings(models_url=f"file://{tmp_path}", state_dir=tmp_path), lambda _text: None)


def test_the_command_says_why_it_cannot_measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BATCHFLEET_MODELS_URL", f"file://{tmp_path}/models")
    monkeypatch.setenv("BATCHFLEET_STATE_DIR", f"{tmp_path}/state")

    assert main(["worker", "--tune", "--json"]) == Exit.FAILED

    told = capsys.readouterr()
    assert told.out == ""
    assert "there is no model in" in told.err


def trials(*figures: tuple[float, bool]) -> list[Trial]:
    return [Trial(2, 1, "tiny@1", "fp32", 512, speed, doubtful) for speed, doubtful in figures]


@pytest.mark.parametrize(
    ("figures", "speed", "doubtful"),
    [
        ([(1217.0, True), (232.0, False), (462.0, False)], 347.0, False),
        ([(1217.0, False), (232.0, False), (462.0, False)], 462.0, False),
        ([(1217.0, True), (232.0, True)], 232.0, True),
    ],
)
def test_one_lucky_figure_decides_nothing(figures: list[tuple[float, bool]], speed: float, doubtful: bool) -> None:
    (found,) = typical(trials(*figures))

    assert (found.texts_per_s, found.doubtful) == (speed, doubtful)


def test_an_outlier_beside_other_work_does_not_win(files: ModelFiles) -> None:
    """The first look at one split was five times too fast, while other work ran; a second look told."""
    spoilt = iter([Speed(1217.0, 0.5)])

    class Spoilt(PlayedPool):
        def speed(self, budget: int, seconds: float) -> Speed:
            return next(spoilt, super().speed(budget, seconds))

    @contextlib.contextmanager
    def open_pool(candidate: Candidate, processes: int) -> Iterator[PlayedPool]:
        del candidate
        yield Spoilt(300.0, 0.9) if processes == 2 else PlayedPool(400.0, 0.9)

    tuning = Tuner([Subject(files, ("fp32",))], open_pool, lambda _text: None, seconds=0).tune(Cores(2, 2))

    assert (tuning.workers, tuning.best[files.digest].texts_per_s) == (1, 400.0)
    assert [trial.doubtful for trial in tuning.tried].count(True) == 1
    table = as_text(Measured(tuning, Path("tuning.json"), "here"))
    assert "doubtful" not in table, "sound figures of the same split stand beside it"

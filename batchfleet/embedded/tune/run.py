"""The measurement as a whole: which models and variants, and where the answer is kept."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from batchfleet.embedded.cores import read_cores
from batchfleet.embedded.tune.choose import SECONDS, Subject, Tuner
from batchfleet.embedded.tune.pool import Pool
from batchfleet.embedded.tune.recall import here
from batchfleet.errors import ModelNotFoundError
from batchfleet.inference.select import choose_variant
from batchfleet.inference.tuning import Tuning, remember, tuning_file
from batchfleet.models.repository import ModelFiles, ModelRepository
from batchfleet.settings import Settings, folder_of

_CLOSE = 0.8
"""A variant with less than this share of the fastest one's speed on one thread is not tried in the splits."""
_VARIANTS = 2


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of a measurement, and where it is kept."""

    tuning: Tuning
    file: Path
    key: str


def measure(settings: Settings, say: Callable[[str], None], seconds: float = SECONDS) -> Measured:
    """Measures this machine with the models that its workers would serve, and remembers the answer.

    Args:
        settings: Name the models, and what of them may run.
        say: Told of the progress.
        seconds: How long each figure is measured.

    Raises:
        ModelNotFoundError: If the repository is empty, or has not a model that the settings name.
        RuntimeUnavailableError: If nothing could be measured.
        ModelError: If a model cannot be trusted.
        OSError: If the state folder cannot be written.
    """
    cores, key = read_cores(), here()
    say(f"tuning for {key}")
    subjects = [_subject(files, settings) for files in _served(settings)]
    tuning = Tuner(subjects, Pool, say, seconds).tune(cores)
    file = tuning_file(settings.state_dir)
    remember(file, key, tuning)
    return Measured(tuning, file, key)


def _served(settings: Settings) -> list[ModelFiles]:
    repository = ModelRepository(folder_of(settings.models_url))
    names = settings.worker_models or tuple(repository.models())
    if not names:
        raise ModelNotFoundError(f"there is no model in {repository.root} to measure with")
    return [repository.open(repository.resolve(name)) for name in names]


def _subject(files: ModelFiles, settings: Settings) -> Subject:
    """Chooses the variants that may win: the one that is set, or the fastest on one thread and those close to it."""
    if settings.worker_variant != "auto":
        return Subject(files, (files.config.variant(settings.worker_variant).name,))
    state_file = settings.state_dir / "variants.json"
    chosen = choose_variant(files, providers=settings.worker_providers, state_file=state_file)
    close = [speed.variant for speed in chosen.speeds if speed.texts_per_s >= _CLOSE * chosen.speeds[0].texts_per_s]
    return Subject(files, tuple(close[:_VARIANTS]) or (chosen.chosen,))

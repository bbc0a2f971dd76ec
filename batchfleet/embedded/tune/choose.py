"""What is tried, in which order, and what is taken in the end."""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

import msgspec

from batchfleet.embedded.cores import Cores
from batchfleet.embedded.tune.passes import Candidate, Speed
from batchfleet.errors import BatchfleetError, RuntimeUnavailableError
from batchfleet.inference.tuning import Trial, Tuning
from batchfleet.models.repository import ModelFiles

Split = tuple[int, int]

SECONDS = 1.2
"""Of one figure. A visit of a split takes two or three seconds more, in which its processes load."""
_REAL_GAIN = 1.03
"""More processes, or a smaller budget, must be faster by this much: they cost memory, and latency of a long batch."""
_SHARES = (1, 2, 1)
"""Parts of a model's token budget that are tried; the whole twice, before and after."""
_BUSY = 0.2
"""Share of the time that other work kept a core busy, over which a figure is doubtful."""


class MeasuringPool(Protocol):
    """Processes that are loaded; see `pool.Pool`."""

    def speed(self, budget: int, seconds: float) -> Speed:
        """Returns what they get done together."""
        ...


OpenPool = Callable[[Candidate, int], AbstractContextManager[MeasuringPool]]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Subject:
    """A model to be measured, and the variants that may win."""

    files: ModelFiles
    variants: tuple[str, ...]

    def budget(self, variant: str) -> int:
        """Returns the padded tokens that the model allows a pass."""
        config = self.files.config
        return config.limits_of(config.variant(variant)).max_batch_tokens


class Tuner:
    """Measures splits of the cores. Each model counts alike: by the geometric mean of their speeds."""

    def __init__(self, subjects: Sequence[Subject], open_pool: OpenPool, say: Say, seconds: float = SECONDS) -> None:
        self._subjects = subjects
        self._open_pool = open_pool
        self._say = say
        self._seconds = seconds
        self._trials: list[Trial] = []

    def tune(self, cores: Cores) -> Tuning:
        """Tries all splits, the two best once more in turned order, then a smaller budget in the best.

        Raises:
            RuntimeUnavailableError: If nothing could be measured.
        """
        for split in cores.splits():
            for subject in self._subjects:
                for variant in subject.variants:
                    self._measure(subject, split, variant, (subject.budget(variant),))
        for split in reversed(self._ranking()[:2]):
            for subject in self._subjects:
                best = self._best(subject, split)
                self._measure(subject, split, best.variant, (best.max_batch_tokens,))
        workers, threads = self._simplest()
        for subject in self._subjects:
            self._sweep_budgets(subject, (workers, threads))
        return Tuning(
            workers=workers,
            threads=threads,
            best={subject.files.digest: self._best(subject, (workers, threads)) for subject in self._subjects},
            tried=tuple(self._trials),
            measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def _sweep_budgets(self, subject: Subject, split: Split) -> None:
        variant = self._best(subject, split).variant
        whole = subject.budget(variant)
        self._measure(subject, split, variant, tuple(max(1, whole // share) for share in _SHARES))

    def _measure(self, subject: Subject, split: Split, variant: str, budgets: Sequence[int]) -> None:
        workers, threads = split
        files = subject.files
        root = files.path.parent.parent
        try:
            with self._open_pool(Candidate(root, files.ref, variant, threads), workers) as pool:
                for budget in budgets:
                    speed = pool.speed(budget, self._seconds)
                    texts_per_s = round(speed.texts_per_s, 1)
                    doubtful = speed.waited > _BUSY
                    self._trials.append(Trial(workers, threads, str(files.ref), variant, budget, texts_per_s, doubtful))
                    self._say(f"  {_of(workers, threads)}, {variant}, {budget} tokens a pass: {_told(speed)}")
        except BatchfleetError as error:
            self._say(f"  {_of(workers, threads)}, {variant}: {error}")

    def _speeds(self, subject: Subject) -> Mapping[Split, float]:
        speeds: dict[Split, float] = {}
        for trial in self._of_model(subject):
            split = (trial.workers, trial.threads)
            speeds[split] = max(trial.texts_per_s, speeds.get(split, 0.0))
        return speeds

    def _scores(self) -> dict[Split, float]:
        """Returns the geometric mean over the models, of the splits that all of them ran in."""
        of_models = [self._speeds(subject) for subject in self._subjects]
        common = set.intersection(*(set(speeds) for speeds in of_models))
        if not common:
            raise RuntimeUnavailableError("no split of the cores could be measured")
        return {
            split: math.exp(sum(math.log(max(speeds[split], 1e-9)) for speeds in of_models) / len(of_models))
            for split in common
        }

    def _ranking(self) -> list[Split]:
        scores = self._scores()
        return sorted(scores, key=lambda split: -scores[split])

    def _simplest(self) -> Split:
        """Returns the split of fewest processes that is as good as the best."""
        scores = self._scores()
        best = max(scores.values())
        return min(split for split, score in scores.items() if score * _REAL_GAIN >= best)

    def _best(self, subject: Subject, split: Split) -> Trial:
        """Returns how a model is fastest in a split; a smaller budget must win clearly."""
        trials = [trial for trial in self._of_model(subject) if (trial.workers, trial.threads) == split]
        whole = max(
            (trial for trial in trials if trial.max_batch_tokens == subject.budget(trial.variant)),
            key=lambda trial: trial.texts_per_s,
        )
        best = max(trials, key=lambda trial: trial.texts_per_s)
        return best if best.texts_per_s > whole.texts_per_s * _REAL_GAIN else whole

    def _of_model(self, subject: Subject) -> Iterator[Trial]:
        return (trial for trial in typical(self._trials) if trial.model == str(subject.files.ref))


def typical(trials: Iterable[Trial]) -> list[Trial]:
    """Returns one trial for each thing that was tried, with the median of its figures.

    One lucky figure decides nothing. Doubtful ones count only where there are no others, and then the lower of the
    middle ones: what neighbours do is taken out of the time by an estimate, which may take out too much.
    """
    alike: dict[tuple[object, ...], list[Trial]] = {}
    for trial in trials:
        what = (trial.model, trial.workers, trial.threads, trial.variant, trial.max_batch_tokens)
        alike.setdefault(what, []).append(trial)
    return [_median(group) for group in alike.values()]


def _median(trials: Sequence[Trial]) -> Trial:
    sound = [trial.texts_per_s for trial in trials if not trial.doubtful]
    speed = statistics.median(sound) if sound else statistics.median_low(trial.texts_per_s for trial in trials)
    return msgspec.structs.replace(trials[0], texts_per_s=round(speed, 1), doubtful=not sound)


def _of(workers: int, threads: int) -> str:
    return f"{workers} worker{'s' if workers > 1 else ''} x {threads} thread{'s' if threads > 1 else ''}"


def _told(speed: Speed) -> str:
    busy = f" (doubtful: other work took {speed.waited:.0%} of a core)" if speed.waited > _BUSY else ""
    return f"{speed.texts_per_s:.0f} texts/s{busy}"

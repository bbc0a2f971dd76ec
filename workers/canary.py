"""The canary: runs a few items a second time, alone, to see whether their company changed the answer.

A result is never changed by it, nor held up: an item is looked at again only after its job has left this worker's
hands, between two passes, and only while nothing waits that somebody may be asking for: bulk at most, and then one
item between two batches. A pass of it is journaled as any other. If the process
dies in it, the journal names a job that has ended or is somebody else's, so that nobody is charged for what only
we wanted to know; and an item that fails here fails nothing.
"""

import logging
import math
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from batchfleet.clock import Monotonic
from batchfleet.errors import PassFailedError
from batchfleet.foreign import describe, ends_the_process
from batchfleet.inference.executor import Outcome, PassItem
from batchfleet.inference.registry import LoadedModel
from batchfleet.inference.task import ItemFault, Output
from batchfleet.jobs.job import format_job_id
from batchfleet.logs import Action
from batchfleet.models.accuracy import least_in_company
from batchfleet.telemetry import Metrics
from workers.active import ActiveJob, ActiveJobs
from workers.journal import Journal

logger = logging.getLogger(__name__)

_HELD: Final = 64
"""Items that wait to be looked at, at most; the oldest goes first, unseen."""
_ALARM_EVERY_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Witness:
    """One item and how it answered in company.

    Attributes:
        job: The job whose item it is.
        item: The item.
        answer: Its answer.
        batch: Id of the batch that it ran in.
        count: Items of the pass that gave the answer.
    """

    job: ActiveJob
    item: PassItem
    answer: Output
    batch: str
    count: int


class Canary:
    """Chooses items, runs them alone, counts and alarms. Used by the thread that owns the device.

    Args:
        share: Share of the items that are looked at.
        chosen: Returns that many different numbers below a bound; which ones is chance.
    """

    def __init__(
        self,
        share: float,
        active: ActiveJobs,
        journal: Journal,
        metrics: Metrics,
        clock: Monotonic = time.monotonic,
        chosen: Callable[[range, int], Sequence[int]] = random.sample,
    ) -> None:
        self._share = share
        self._active = active
        self._journal = journal
        self._metrics = metrics
        self._clock = clock
        self._chosen = chosen
        self._due = 0.0
        self._waiting: deque[tuple[LoadedModel, Witness]] = deque(maxlen=_HELD)
        self._alarms: dict[str, _Alarm] = {}

    def picks(self, count: int, of: int) -> Sequence[int]:
        """Returns which of `count` answered items are to be remembered, by place; nearly always none.

        Args:
            count: Items that have an answer.
            of: Items of the pass that gave them.
        """
        if of < 2:  # no company
            return ()
        self._due += self._share * count
        whole = min(int(self._due), count)
        self._due -= whole
        return self._chosen(range(count), whole) if whole else ()

    def remember(self, model: LoadedModel, witness: Witness) -> None:
        """Keeps an item until it can be run again."""
        self._waiting.append((model, witness))

    def run(self, may_run: Callable[[], bool], idle: Callable[[], bool]) -> None:
        """Runs again what can be by now: one item, or several while the device has nothing else to do.

        Args:
            may_run: Whether the device may be taken for one pass.
            idle: Whether it may be taken for one more; asked before each.
        """
        for _ in range(len(self._waiting)):
            model, witness = self._waiting.popleft()
            if self._active.get(witness.job.id) is not None:
                self._waiting.append((model, witness))  # not settled yet: a crash here would be charged to it
            elif may_run():
                self._look(model, witness)
                may_run = idle
            else:
                self._waiting.appendleft((model, witness))
                return

    def _look(self, model: LoadedModel, witness: Witness) -> None:
        self._journal.begin_pass((witness.job.id,))
        alone = _alone(model, witness.item)
        self._journal.end_pass()
        name = model.ref.name
        figure, least = (math.nan, math.nan) if alone is None else _agreement(model, alone, witness.answer)
        if math.isnan(least):
            self._metrics.canary_runs.labels(name, "failed").inc()
            return
        drifted = not figure >= least
        self._metrics.canary_runs.labels(name, "drifted" if drifted else "agreed").inc()
        if drifted:
            self._alarms.setdefault(name, _Alarm()).raise_for(model, witness, figure, least, self._clock())


def _alone(model: LoadedModel, item: PassItem) -> Outcome | None:
    """Returns the item's outcome in a pass of its own, or None if the pass raised."""
    try:
        model.executor.admit((item,))
        return model.executor.step().finished[item.key]
    except PassFailedError as error:
        extra = {"action": Action.CANARY_FAILED, "model": str(model.ref)}
        logger.warning("an item that ran in company fails alone: %s", error, extra=extra)
        return None


def _agreement(model: LoadedModel, alone: Outcome, in_company: Output) -> tuple[float, float]:
    """Returns how well two answers agree, and how well they must at the variant's precision."""
    try:
        least = least_in_company(model.task.least_agreement, model.variant.precision)
        # No answer where there was one in company is the greatest difference that there can be.
        return (0.0 if isinstance(alone, ItemFault) else model.task.agreement(alone, in_company)), least
    except BaseException as error:  # task code is anybody's
        if ends_the_process(error):
            raise
        extra = {"action": Action.CANARY_FAILED, "model": str(model.ref)}
        logger.warning("two answers cannot be compared: %s", describe(error), extra=extra)
        return math.nan, math.nan


class _Alarm:
    """Tells of one model's drift at once, and then of the worst of each minute."""

    def __init__(self) -> None:
        self._worst = 1.0
        self._untold = 0
        self._told_at = float("-inf")

    def raise_for(self, model: LoadedModel, witness: Witness, figure: float, least: float, now: float) -> None:
        self._worst = min(self._worst, figure)
        self._untold += 1
        if now - self._told_at < _ALARM_EVERY_S:
            return
        extra = {
            "action": Action.CANARY_DRIFTED,
            "model": str(model.ref),
            "variant": model.variant.name,
            "provider": model.provider,
            "batch": witness.batch,
            "batch_items": witness.count,
            "job": format_job_id(witness.job.id),
            "agreement": round(self._worst, 6),
            "least": round(least, 6),
            "drifted": self._untold,
        }
        logger.error("an answer depends on its company", extra=extra)
        self._worst, self._untold, self._told_at = 1.0, 0, now

"""Learn: what passes cost and what memory holds, measured here and shared with the fleet.

The device's thread only notes things in memory. A thread of its own tells the database what is new and takes over what
others learned: every half minute (sooner at first), at once after a model's first work and when memory ran out, and
once more at the drain. While the database is away what was noted is kept, and the worker goes on with what it knows.
"""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from batchfleet.batching.ceilings import Ceilings
from batchfleet.batching.cost import CostModel, Sample, ShapeCost, learned
from batchfleet.clock import Monotonic, Wall
from batchfleet.errors import StoreUnavailableError
from batchfleet.inference.executor import WarmUpReport
from batchfleet.logs import Action, OutageLog
from batchfleet.models.repository import ModelRef
from batchfleet.profiles.notes import Notes
from batchfleet.profiles.port import Profile, ProfileKey, ProfileStore, Rate

logger = logging.getLogger(__name__)

EXCHANGE_S: Final = 30.0
"""Seconds between two exchanges with the fleet."""
FIRST_EXCHANGE_S: Final = 1.0
"""The first pause, which doubles from then on: a fleet that is young learns soon what its work costs."""
IN_USE_S: Final = 86_400.0
"""A model that is loaded and has no work is told of so often: its profile is in use."""
_RECENT: Final = 64
"""Own passes that are remembered, to bring what others tell to the speed of this machine."""


@dataclass(slots=True)
class _Model:
    """One loaded model.

    Attributes:
        ceilings: What is known of memory, here and in the fleet.
        recent: Its last passes.
        told_at: When the fleet was last told of it.
        worked: Whether it has run anything but its warm-up.
        faulty: Whether it was logged that exchanging it fails.
    """

    key: ProfileKey
    cost: CostModel
    ceilings: Ceilings
    recent: deque[Sample]
    notes: Notes = field(default_factory=Notes)
    told_at: float = -math.inf
    worked: bool = False
    faulty: bool = False


class Learning:
    """What is known of the loaded models. Thread-safe; `run` is its thread.

    Args:
        store: What the fleet has learned.
        exchange_s: Seconds between two exchanges.
    """

    def __init__(
        self,
        store: ProfileStore,
        *,
        exchange_s: float = EXCHANGE_S,
        clock: Monotonic = time.monotonic,
        wall: Wall = time.time,
    ) -> None:
        self._store = store
        self._exchange_s = exchange_s
        self._clock = clock
        # Ceilings have the database's times; until it tells, this machine's will do.
        self._ahead = wall() - clock()
        self._models: dict[ModelRef, _Model] = {}
        self._lock = threading.Lock()
        self._due = threading.Event()

    def begin(self, ref: ModelRef, key: ProfileKey, warm: WarmUpReport) -> None:
        """Takes in a model that was just warmed up: what the fleet knows of it, and what the warm-up measured."""
        measured = [Sample(one.shape.rows, one.shape.length, one.seconds) for one in warm.passes]
        known = self._load(key)
        notes = Notes()
        for sample in measured:
            notes.ran(sample.count, sample.length, sample.seconds)
        for shape in warm.too_large:
            notes.ceilings = notes.ceilings.lowered(shape.length, shape.rows, self._now())
        ceilings = Ceilings() if known is None else known.ceilings
        cost = self._first_guess(key, () if known is None else known.costs, measured)
        model = _Model(key, cost, ceilings.merged(notes.ceilings), deque(measured, _RECENT), notes)
        with self._lock:
            self._models[ref] = model
        if notes.ceilings.known:
            self._due.set()

    def cost(self, ref: ModelRef) -> CostModel:
        """Returns what passes of a model cost, as far as is known."""
        with self._lock:
            return self._models[ref].cost

    def ceilings(self, ref: ModelRef) -> Ceilings:
        """Returns what memory holds at present, as far as is known."""
        with self._lock:
            known = self._models[ref].ceilings
        return known.regrown(self._now()) if known.known else known

    def observe(self, ref: ModelRef, count: int, length: int, seconds: float) -> CostModel:
        """Learns from one more pass of `count` rows padded to `length`; returns the model of cost after it."""
        with self._lock:
            model = self._models[ref]
            model.cost = model.cost.observed(count, length, seconds)
            model.recent.append(Sample(count, length, seconds))
            model.notes.ran(count, length, seconds)
            return model.cost

    def worked(self, ref: ModelRef, items: int, input_bytes: float, seconds: float) -> None:
        """Notes device-seconds spent on items, and the bytes of the inputs that they came in."""
        with self._lock:
            model = self._models[ref]
            model.notes.worked(Rate(items, input_bytes, seconds))
            first, model.worked = not model.worked, True
        if first:
            self._due.set()

    def ran_out(self, ref: ModelRef, count: int, length: int) -> Ceilings:
        """Notes that a pass of `count` rows padded to `length` did not fit into memory; the fleet is told at once.

        Returns:
            The ceilings after it.
        """
        at = self._now()
        with self._lock:
            model = self._models[ref]
            model.notes.ceilings = model.notes.ceilings.lowered(length, count, at)
            model.ceilings = model.ceilings.regrown(at).lowered(length, count, at)
            ceilings = model.ceilings
        self._due.set()
        return ceilings

    def run(self, stopping: threading.Event) -> None:
        """Exchanges until told to stop, and once more then: the body of the thread."""
        outage = OutageLog(logger, "the database, to tell what was learned", Action.STORE_UNAVAILABLE, self._clock)
        last, pause_s = False, FIRST_EXCHANGE_S
        while not last:
            self._due.wait(pause_s)
            pause_s = min(self._exchange_s, 2 * pause_s)
            self._due.clear()
            last = stopping.is_set()
            try:
                self.exchange()
            except StoreUnavailableError as error:
                outage.failed(error)
            else:
                outage.worked()

    def wake(self) -> None:
        """Has `run` exchange now; after a stop, a last time."""
        self._due.set()

    def exchange(self) -> None:
        """Tells the fleet what is new, and takes over what others learned.

        Whatever else goes wrong with a model is logged once: what is learned is a help, and a worker can do without.

        Raises:
            StoreUnavailableError: If the database is away; nothing that was noted is lost.
        """
        with self._lock:
            models = list(self._models.values())
        for model in models:
            try:
                self._tell(model)
                self._take_over(model, self._store.load(model.key))
            except StoreUnavailableError:
                raise
            except Exception:
                if not model.faulty:
                    model.faulty = True
                    extra = {"action": Action.LEARNING_FAILED, "model": model.key.model}
                    logger.exception("what was learned can be neither told nor taken over", extra=extra)

    def _tell(self, model: _Model) -> None:
        with self._lock:
            taken, model.notes, cost = model.notes, Notes(), model.cost
        if not taken and self._clock() - model.told_at < IN_USE_S:
            return
        try:
            self._store.tell(model.key, taken.lesson(cost))
        except StoreUnavailableError:
            with self._lock:
                taken.add(model.notes)
                model.notes = taken
            raise
        model.told_at = self._clock()

    def _take_over(self, model: _Model, known: Profile) -> None:
        self._ahead = known.now - self._clock()
        with self._lock:
            model.ceilings = model.ceilings.merged(known.ceilings)
            cost, recent = model.cost, tuple(model.recent)
        own = {(shape.count, shape.length) for shape in cost.known()}
        if any((shape.count, shape.length) not in own for shape in known.costs):
            # Others ran shapes that this worker has not met: their figures, at the speed of this machine. What passes
            # of this very moment tell is lost, rather than that the device waits.
            cost = learned(known.costs, recent)
            with self._lock:
                model.cost = cost

    def _load(self, key: ProfileKey) -> Profile | None:
        try:
            known = self._store.load(key)
        except StoreUnavailableError as error:
            extra = {"action": Action.STORE_UNAVAILABLE, "model": key.model}
            logger.warning("cannot ask what the fleet has learned: %s", error, extra=extra)
            return None
        except Exception:
            extra = {"action": Action.LEARNING_FAILED, "model": key.model}
            logger.exception("what the fleet has learned cannot be read; starting without", extra=extra)
            return None
        self._ahead = known.now - self._clock()
        return known

    @staticmethod
    def _first_guess(key: ProfileKey, known: Sequence[ShapeCost], measured: Sequence[Sample]) -> CostModel:
        try:
            return learned(known, measured)
        except Exception:  # a model serves however wrong its figures are
            extra = {"action": Action.LEARNING_FAILED, "model": key.model}
            logger.exception("what passes cost cannot be told; starting with a guess", extra=extra)
            return CostModel()

    def _now(self) -> float:
        """Returns the database's time, about."""
        return self._clock() + self._ahead

"""Runs one batch so that no item pays for another.

A pass that raises is bisected in place. The search for *one* culprit costs little, and everything that is not
on its path runs together once it is found::

    [1 2 3 4 5 6 7 8]     failed                        8 items, the 5th is bad
    [1 2 3 4]             fine: it is among 5 to 8      (they need not run together to know that)
    [5 6]                 failed: 7 and 8 wait
    [5]                   failed, alone: suspect        probe: the device is well
    [6 7 8]               fine                          all that waited, in one pass

Extra passes over items: at most 2⌈log2 n⌉ for one culprit (⌈log2 n⌉ + 2 from four items on); at most 2n passes
in all, however many culprits. Probes and second tries of non-finite items come on top, and are few.

*Memory.* A pass that does not fit accuses nobody: what is left of the batch is halved, no pass of it is tried at that
size again, and the caller is told what did not fit, so that the next batches start smaller. Only an item that does
not fit alone, twice, has an error, of its own.

*Convicting.* An item is convicted only when the device is known to be well after the item failed alone. The
first suspect is probed for at once, so that a sick device costs a handful of passes and not 2n; later ones
share one probe at the end.
"""

from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from typing import TypeAlias

from batchfleet.errors import OutOfMemoryError, PassFailedError
from batchfleet.inference.executor import Executor, Outcome, OutputMismatchError, PassItem
from batchfleet.inference.task import ItemFault
from batchfleet.inference.tries import Batch, IsolatedRun, PassTry, SickDeviceError, Tried
from batchfleet.jobs.job import JobErrorCode

BeforePass: TypeAlias = Callable[[Sequence[PassItem]], None]
"""Told which items are about to run; the worker writes its crash journal there."""


def run_isolated(executor: Executor, items: Sequence[PassItem], before_pass: BeforePass | None = None) -> IsolatedRun:
    """Runs a batch to the end and gives every item its own outcome.

    Args:
        executor: An executor that finishes every item in one step, with nothing admitted.
        items: The batch: within the model's limits, one pass key, unique keys.
        before_pass: Called with the items of each pass before it runs; what it raises ends the run.

    Raises:
        SickDeviceError: If the warm-up sample fails after an item failed alone.
        ValueError: If the items may not share a pass.
    """
    run = _Run(executor, before_pass)
    if items:
        run.isolate(tuple(items))
        run.retry_non_finite()
        run.convict()
    return run.so_far()


class _Run:
    """The state of one isolation: what is known of each item so far."""

    def __init__(self, executor: Executor, before_pass: BeforePass | None) -> None:
        self._executor = executor
        self._before_pass = before_pass
        self._outcomes: dict[Hashable, Outcome] = {}
        self._tries: list[PassTry] = []
        self._probes = 0
        self._non_finite: dict[Hashable, PassItem] = {}
        self._non_finite_seen = 0
        self._suspects: dict[Hashable, ItemFault] = {}  # failed alone; the device not yet known to be well
        self._tried_again: set[Hashable] = set()  # did not fit alone, once
        self._too_large: list[tuple[int, int]] = []  # items and longest length that did not fit together

    def so_far(self) -> IsolatedRun:
        """Returns what is known by now."""
        return IsolatedRun(self._outcomes, tuple(self._tries), self._probes, self._non_finite_seen)

    def isolate(self, batch: Batch) -> None:
        """Runs `batch` in parts that fit into memory; of each that fails, finds the culprits."""
        rest = batch
        if self._may_fit(batch):
            with suppress(OutOfMemoryError):
                self._isolate(batch)
            rest = self._open(batch)
        for part in _halves(rest):
            if part:
                self.isolate(part)

    def retry_non_finite(self) -> None:
        """Gives each item whose output was not finite one try alone before its fault stands."""
        retried, self._non_finite = list(self._non_finite.values()), {}
        for item in retried:
            self._succeeds((item,))
            if self._non_finite:  # alone as well
                self._non_finite.clear()
                fault = ItemFault(JobErrorCode.NON_FINITE_OUTPUT, "the output holds NaN or infinity, alone as well")
                self._suspect(item, fault)

    def convict(self) -> None:
        """Lets the faults of all suspects stand, once the device is known to be well."""
        if not self._suspects:
            return
        self._probes += 1
        try:
            self._executor.probe()
        except PassFailedError as error:
            raise SickDeviceError(f"the device is sick: {error}", self.so_far()) from error
        self._outcomes.update(self._suspects)
        self._suspects = {}

    def _isolate(self, batch: Batch) -> None:
        """Runs `batch`; if that fails, finds one culprit, then runs all that waited together."""
        if self._succeeds(batch):
            return
        waiting = self._narrow(batch)
        # One culprit is the rule, so its bystanders get one pass between them. If that fails too, they are
        # taken group by group as bisecting left them, which is what bounds the total to 2n.
        if len(waiting) > 1 and self._succeeds(tuple(item for group in waiting for item in group)):
            return
        for group in waiting:
            self._bisect(group)

    def _narrow(self, failed: Batch) -> list[Batch]:
        """Finds one culprit in a batch that failed; returns the groups passed over, none of them run since."""
        waiting: list[Batch] = []
        ran = True
        while len(failed) > 1:
            left, right = _halves(failed)
            if self._succeeds(left):
                failed, ran = right, False  # it must be on the right, which need not fail again to show it
            else:
                failed, ran = left, True
                waiting.append(right)
        if not ran:
            self._succeeds(failed)  # nobody is accused without having failed alone
        return waiting

    def _bisect(self, group: Batch) -> None:
        if not self._succeeds(group) and len(group) > 1:
            for half in _halves(group):
                self._bisect(half)

    def _succeeds(self, batch: Batch) -> bool:
        """Runs one pass and notes its outcomes; a single item that fails becomes a suspect.

        Raises:
            OutOfMemoryError: If several items do not fit into memory together.
        """
        try:
            self._pass(batch)
        except OutOfMemoryError as error:
            if len(batch) > 1:
                raise
            fault = ItemFault(JobErrorCode.OUT_OF_MEMORY, str(error))
        except PassFailedError as error:
            if len(batch) > 1:
                return False
            fault = ItemFault(JobErrorCode.PASS_FAILED, str(error))
        else:
            return True
        if fault.code is JobErrorCode.OUT_OF_MEMORY and batch[0].key not in self._tried_again:
            self._tried_again.add(batch[0].key)
            return self._succeeds(batch)  # what was cached has been given back since: it may fit now
        self._suspect(batch[0], fault)
        return False

    def _pass(self, batch: Batch) -> None:
        if self._before_pass is not None:
            self._before_pass(batch)
        try:
            self._executor.admit(batch)
            result = self._executor.step()
        except PassFailedError as error:
            self._note_failure(batch, error)
            raise
        if result.stats is not None:
            self._tries.append(PassTry(batch, result.stats.padded_length, Tried.RAN, result.stats))
        for key, outcome in result.finished.items():
            if isinstance(outcome, ItemFault) and outcome.code is JobErrorCode.NON_FINITE_OUTPUT:
                self._non_finite_seen += key not in self._non_finite
                self._non_finite[key] = next(item for item in batch if item.key == key)
            else:
                self._outcomes[key] = outcome

    def _note_failure(self, batch: Batch, error: PassFailedError) -> None:
        longest = max(item.item.length for item in batch)
        tried = Tried.RAISED
        if isinstance(error, OutOfMemoryError):
            tried = Tried.TOO_LARGE
            self._too_large.append((len(batch), longest))
        elif isinstance(error, OutputMismatchError):
            tried = Tried.MISMATCHED
        padded = self._executor.shapes.shape(len(batch), longest).length
        self._tries.append(PassTry(batch, padded, tried))

    def _may_fit(self, batch: Batch) -> bool:
        if len(batch) == 1 or not self._too_large:
            return True
        longest = max(item.item.length for item in batch)
        return not any(len(batch) >= count and longest >= length for count, length in self._too_large)

    def _open(self, batch: Batch) -> Batch:
        """Returns the items of which nothing is known yet."""
        known = (self._outcomes, self._suspects, self._non_finite)
        return tuple(item for item in batch if not any(item.key in some for some in known))

    def _suspect(self, item: PassItem, fault: ItemFault) -> None:
        self._suspects[item.key] = fault
        if not self._probes:
            self.convict()


def _halves(batch: Batch) -> tuple[Batch, Batch]:
    middle = (len(batch) + 1) // 2
    return batch[:middle], batch[middle:]

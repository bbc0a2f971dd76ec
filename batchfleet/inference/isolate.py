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

*Convicting.* An item is convicted only when the device is known to be well after the item failed alone. The
first suspect is probed for at once, so that a sick device costs a handful of passes and not 2n; later ones
share one probe at the end.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from batchfleet.errors import BatchfleetError, PassFailedError
from batchfleet.inference.executor import Executor, Outcome, PassItem, PassStats
from batchfleet.inference.task import ItemFault
from batchfleet.jobs.job import JobErrorCode

BeforePass: TypeAlias = Callable[[Sequence[PassItem]], None]
"""Told which items are about to run; the worker writes its crash journal there."""

Batch: TypeAlias = tuple[PassItem, ...]


class SickDeviceError(BatchfleetError):
    """A pass failed and so did the warm-up sample: the device is at fault, not the items.

    Attributes:
        outcomes: What finished before the device was found sick, by key. All other items are to be handed
            back free of charge.
    """

    code = "sick_device"

    def __init__(self, message: str, outcomes: Mapping[Hashable, Outcome]) -> None:
        super().__init__(message)
        self.outcomes = outcomes


@dataclass(frozen=True, slots=True)
class IsolatedRun:
    """What became of one batch.

    Attributes:
        outcomes: Output or fault of every item, by key.
        passes: The passes that succeeded, in order.
        failed_passes: Number of passes that raised.
        probes: Number of times that the warm-up sample ran.
    """

    outcomes: Mapping[Hashable, Outcome]
    passes: tuple[PassStats, ...]
    failed_passes: int
    probes: int


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
    return IsolatedRun(run.outcomes, tuple(run.passes), run.failed_passes, run.probes)


class _Run:
    """The state of one isolation: what is known of each item so far."""

    def __init__(self, executor: Executor, before_pass: BeforePass | None) -> None:
        self._executor = executor
        self._before_pass = before_pass
        self.outcomes: dict[Hashable, Outcome] = {}
        self.passes: list[PassStats] = []
        self.failed_passes = 0
        self.probes = 0
        self._non_finite: list[PassItem] = []
        self._suspects: dict[Hashable, ItemFault] = {}  # failed alone; the device not yet known to be well

    def isolate(self, batch: Batch) -> None:
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

    def retry_non_finite(self) -> None:
        """Gives each item whose output was not finite one try alone before its fault stands."""
        retried, self._non_finite = self._non_finite, []
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
        self.probes += 1
        try:
            self._executor.probe()
        except PassFailedError as error:
            raise SickDeviceError(f"the device is sick: {error}", self.outcomes) from error
        self.outcomes.update(self._suspects)
        self._suspects = {}

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
        """Runs one pass and notes its outcomes; a single item that fails becomes a suspect."""
        if self._before_pass is not None:
            self._before_pass(batch)
        self._executor.admit(batch)
        try:
            result = self._executor.step()
        except PassFailedError as error:
            self.failed_passes += 1
            if len(batch) == 1:
                self._suspect(batch[0], ItemFault(JobErrorCode.PASS_FAILED, str(error)))
            return False
        if result.stats is not None:
            self.passes.append(result.stats)
        for item in batch:
            self._note(item, result.finished[item.key])
        return True

    def _note(self, item: PassItem, outcome: Outcome) -> None:
        if isinstance(outcome, ItemFault) and outcome.code is JobErrorCode.NON_FINITE_OUTPUT:
            self._non_finite.append(item)
        else:
            self.outcomes[item.key] = outcome

    def _suspect(self, item: PassItem, fault: ItemFault) -> None:
        self._suspects[item.key] = fault
        if not self.probes:
            self.convict()


def _halves(batch: Batch) -> tuple[Batch, Batch]:
    middle = (len(batch) + 1) // 2
    return batch[:middle], batch[middle:]

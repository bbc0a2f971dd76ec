"""Drain: the staged stop. Take no more, finish what is on the device, settle, hand back the rest, retire.

Jobs that have not started go back at once, free of charge, so that others take them while this worker's last
pass still runs. The lease is kept alive throughout, by the keeper.
"""

import logging
import time
from dataclasses import dataclass

from batchfleet.errors import StoreUnavailableError
from batchfleet.jobs.job import BootId, WorkerState
from batchfleet.jobs.store import JobStore
from batchfleet.lifecycle import ServiceThread
from batchfleet.logs import Action
from workers.active import ActiveJobs
from workers.assemble import Assembler
from workers.lease import SharedLease
from workers.settle import Settler

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Stages:
    """The threads of a worker, in the order of the flow."""

    receive: ServiceThread
    fetch: tuple[ServiceThread, ...]
    prepare: ServiceThread
    assemble: ServiceThread
    execute: ServiceThread
    settle: ServiceThread
    upload: tuple[ServiceThread, ...]

    def start(self) -> None:
        """Starts them, the last stage first: nobody hands on to a stage that does not run."""
        main = (self.settle, self.execute, self.assemble, self.prepare)
        for thread in (*self.upload, *main, *self.fetch, self.receive):
            thread.start()


@dataclass(frozen=True, slots=True)
class Drain:
    """What a stop needs to reach.

    Attributes:
        wait_s: How long the pass on the device may still take.
    """

    boot: BootId
    store: JobStore
    shared: SharedLease
    stages: Stages
    assembler: Assembler
    settler: Settler
    active: ActiveJobs
    wait_s: float

    def run(self) -> bool:
        """Stops the worker; returns whether everything was settled or handed back."""
        until = time.monotonic() + self.wait_s
        self.shared.state = WorkerState.DRAINING
        for thread in (self.stages.receive, *self.stages.fetch, self.stages.prepare):
            thread.stop()  # a fetch that hangs is not waited for: its job is handed back, and what it brings is dropped
        self.assembler.close()
        received = self.stages.receive.join(_left(until))
        prepared = self.stages.prepare.join(_left(until))
        waiting = [job for job in self.active.all() if not job.started]
        handed_back = 0
        try:
            # Before the pass on the device ends: others may begin with these now.
            handed_back = self.settler.hand_back(waiting)
        except StoreUnavailableError:
            logger.warning("cannot hand back, the database is away", extra={"action": Action.STORE_UNAVAILABLE})
        executed = self.stages.execute.join(_left(until))
        if not executed:
            logger.warning("the last pass outlasts the drain", extra={"action": Action.DRAIN_OVERRUN})
        self.stages.settle.stop()  # it ends once all uploads have
        if not self.stages.settle.join(max(1.0, _left(until))):
            self.settler.give_up()
            self.stages.settle.join(1.0)
        for thread in self.stages.upload:
            thread.stop()
        return self._leave(handed_back) and received and prepared and executed

    def _leave(self, handed_back: int) -> bool:
        """Hands back what is left and removes the lease."""
        try:
            handed_back += self.settler.hand_back(self.active.all())
            self.store.retire(self.boot)
        except StoreUnavailableError as error:
            logger.warning("cannot retire: %s", error, extra={"action": Action.STORE_UNAVAILABLE})
            return False
        self.shared.retire()
        logger.info("drained", extra={"action": Action.DRAINED, "handed_back": handed_back})
        return True


def _left(until: float) -> float:
    return max(0.0, until - time.monotonic())

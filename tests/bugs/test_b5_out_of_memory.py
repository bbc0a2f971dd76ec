"""B5: a batch that the device's memory does not hold.

Servers died of it, failed the whole batch, or ran into it again with each batch. [infinity#242, #544, #517]
"""

from pathlib import Path

from batchfleet.jobs.job import JobErrorCode
from batchfleet.jobs.states import JobState
from batchfleet.models.config import Limits
from tests.support.pipeline import WAIT_S, Gate, Pipeline
from tests.support.sessions import LengthTask, StubSession

HOLDS = 100
"""Padded tokens that the stub's memory holds."""
LIMITS = Limits(max_batch_items=32, max_batch_tokens=10_000, max_item_tokens=5_000, max_pass_ms=10_000)
LENGTH = 20.0


class Device:
    """Holds its first pass until told, and raises the runtime's error from then on where count x longest > `HOLDS`."""

    def __init__(self) -> None:
        self.gate = Gate(lambda values: 1.0 in values)
        self.session = StubSession(self._behave)
        self.refused = 0

    def _behave(self, values: list[float]) -> None:
        self.gate(values)
        rows, length = self.session.shapes[-1]
        if self.gate.entered.is_set() and rows * length > HOLDS:
            self.refused += 1
            raise RuntimeError("no memory")


def worker_over(tmp_path: Path, device: Device) -> Pipeline:
    worker = Pipeline(tmp_path, device.session, limits=LIMITS, task=LengthTask()).start()
    worker.submit([1.0])
    assert device.gate.entered.wait(WAIT_S)
    return worker


def test_all_complete_by_splitting_and_the_next_batches_start_under_the_ceiling(tmp_path: Path) -> None:
    device = Device()
    worker = worker_over(tmp_path, device)
    first = worker.submit(*[[LENGTH]] * 32)
    worker.wait_until_waiting(32)
    device.gate.open.set()
    records = worker.finish(first)
    refused, passes = device.refused, len(device.session.item_runs)
    second = worker.finish(worker.submit(*[[LENGTH]] * 32))
    worker.close()

    assert [worker.values(record) for record in records + second] == [[2 * LENGTH]] * 64
    assert all((record.attempts, record.crashes) == (0, 0) for record in records)
    assert refused == 3, "32, 16 and 8 rows"
    assert device.refused == refused, "the ceiling is remembered"
    assert len(device.session.item_runs) - passes >= 7, "five rows at most fit"
    assert not worker.unfit.is_set()
    assert f'batchfleet_oom_splits_total{{model="tiny"}} {refused:.1f}'.encode() in worker.metrics.render()
    assert b'batchfleet_bisects_total{model="tiny"} 0.0' in worker.metrics.render()


def test_a_single_item_that_does_not_fit_fails_alone_on_a_device_that_is_well(tmp_path: Path) -> None:
    device = Device()
    worker = worker_over(tmp_path, device)
    ids = worker.submit([HOLDS + 1.0], *[[LENGTH]] * 7)
    worker.wait_until_waiting(8)
    device.gate.open.set()
    large, *others = worker.finish(ids)
    worker.close()

    assert large.state is JobState.FAILED
    assert large.error is not None
    assert (large.error.code, large.error.item) == (JobErrorCode.OUT_OF_MEMORY, 0)
    assert [worker.values(record) for record in others] == [[2 * LENGTH]] * 7
    assert not worker.unfit.is_set(), "the worker stays ready: the warm-up sample fits"


def test_readiness_ends_where_a_single_item_does_not_fit_and_the_sample_neither(tmp_path: Path) -> None:
    """Somebody else took the memory after the warm-up: nobody is charged, and a fresh process may fare better."""
    device = Device()
    worker = worker_over(tmp_path, device)
    ids = worker.submit(*[[LENGTH]] * 4)
    worker.wait_until_waiting(4)
    device.session.behave = lambda values: (_ for _ in ()).throw(RuntimeError("no memory"))
    device.gate.open.set()
    assert worker.unfit.wait(WAIT_S)
    worker.close()

    records = worker.records(ids)
    assert [(record.state, record.attempts, record.crashes) for record in records] == [(JobState.QUEUED, 0, 0)] * 4
    assert b'batchfleet_sick_devices_total{model="tiny"} 1.0' in worker.metrics.render()

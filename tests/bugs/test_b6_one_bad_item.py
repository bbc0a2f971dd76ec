"""B6: one bad item among eight costs its neighbours nothing. [LitServe#340]"""

from collections.abc import Hashable, Sequence
from pathlib import Path

import msgspec
import pytest

from batchfleet.inference.task import ItemFault, PreparedItem
from batchfleet.jobs.job import JobErrorCode
from batchfleet.jobs.states import JobState
from tests.support.pipeline import WAIT_S, Gate, Pipeline
from tests.support.sessions import NumberTask, StubSession

FIFTH = 5.0
FIRST = 100.0


class FailsToDecode(NumberTask):
    def prepare(self, inputs: Sequence[object], parameters: Sequence[Hashable]) -> list[PreparedItem | ItemFault]:
        prepared = super().prepare(inputs, parameters)
        bad = ItemFault(JobErrorCode.INPUT_INVALID, "not a picture")
        return [bad if value == FIFTH else item for value, item in zip(inputs, prepared, strict=True)]


@pytest.mark.parametrize("where", ["decoding", "the forward pass"])
def test_seven_succeed_and_one_carries_its_own_error(tmp_path: Path, where: str) -> None:
    gate = Gate(lambda values: FIRST in values)

    def behave(values: list[float]) -> None:
        gate(values)
        if FIFTH in values:
            raise RuntimeError("cannot")

    session = StubSession(behave)
    task = FailsToDecode() if where == "decoding" else NumberTask()
    worker = Pipeline(tmp_path, session, task=task).start()
    worker.submit([FIRST])
    assert gate.entered.wait(WAIT_S)
    ids = worker.submit(*[[float(n)] for n in range(1, 9)])
    worker.wait_until_waiting(7 if where == "decoding" else 8)
    gate.open.set()
    records = worker.finish(ids)
    worker.close()

    assert [record.state for record in records] == [JobState.SUCCEEDED] * 4 + [JobState.FAILED] + [
        JobState.SUCCEEDED
    ] * 3
    fault = records[4].error
    assert fault is not None
    assert fault.item == 0
    passes = session.runs[session.runs.index([FIRST]) + 1 :]
    if where == "decoding":
        assert fault.code == JobErrorCode.INPUT_INVALID
        assert passes == [[1, 2, 3, 4, 6, 7, 8]], "no pass more than without it"
    else:
        assert fault.code == JobErrorCode.PASS_FAILED
        assert len(passes) - 1 <= 6, "extra passes, the probe included"
        told = [msgspec.json.decode(record.provenance or "") for record in records]
        assert len({one["batch"] for one in told}) == 1, "they were released together"
        assert [(one["pass"], one["batch_items"]) for one in told] == [(2, 4)] * 4 + [(4, 1)] + [(5, 3)] * 3

"""B10: nothing of one job gets into another of its batch. [MLServer#1306, #1541, #514, #1718]"""

from pathlib import Path

import numpy as np

from batchfleet.inference.task import Array
from batchfleet.jobs.job import JobErrorCode
from batchfleet.jobs.states import JobState
from tests.support.pipeline import WAIT_S, Gate, Pipeline
from tests.support.sessions import StubSession

WRONG = 13.0
FIRST = 100.0


def test_a_pass_of_the_wrong_number_of_rows_is_nobodys_answer_and_others_stay_exact(tmp_path: Path) -> None:
    """With one item the graph gives a row too few: results must not slide to a neighbour."""
    gate = Gate(lambda values: FIRST in values)

    def behave(values: list[float]) -> Array | None:
        gate(values)
        return np.array([[2 * value] for value in values if value != WRONG], np.float32) if WRONG in values else None

    worker = Pipeline(tmp_path, StubSession(behave)).start()
    worker.submit([FIRST])
    assert gate.entered.wait(WAIT_S)
    ids = worker.submit([1.0, 2.0, 3.0], [WRONG], [4.0], [5.0, 6.0])
    worker.wait_until_waiting(7)
    gate.open.set()
    a, wrong, b, c = worker.finish(ids)
    worker.close()

    assert [worker.values(record) for record in (a, b, c)] == [[2.0, 4.0, 6.0], [8.0], [10.0, 12.0]]
    assert wrong.state is JobState.FAILED
    assert wrong.error is not None
    assert wrong.error.code == JobErrorCode.PASS_FAILED
    metrics = worker.metrics.render().decode()
    assert float(metrics.split('batchfleet_output_mismatches_total{model="tiny"} ')[1].split()[0]) >= 2

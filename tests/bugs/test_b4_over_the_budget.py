"""B4: an item over the token budget of a batch.

A server's queue spun for ever on an item that fitted no batch, and took everything behind it along.
[text-embeddings-inference#723]
"""

from pathlib import Path

import pytest

from batchfleet.jobs.job import JobErrorCode
from batchfleet.jobs.states import JobState
from batchfleet.models.config import Limits
from tests.support.pipeline import Pipeline
from tests.support.sessions import LengthTask, StubSession

BUDGET = 1000
SMALL = [float(length) for length in range(10, 20)]
LARGE = 1001.0


@pytest.mark.parametrize("takes", [BUDGET, 2 * BUDGET], ids=["the model refuses it", "the model takes it alone"])
def test_it_ends_within_one_cycle_and_the_small_ones_finish(tmp_path: Path, takes: int) -> None:
    session = StubSession()
    limits = Limits(max_batch_items=32, max_batch_tokens=BUDGET, max_item_tokens=takes)
    worker = Pipeline(tmp_path, session, limits=limits, task=LengthTask(most=takes)).start()
    *small, large = worker.finish(worker.submit(*[[length] for length in SMALL], [LARGE]))
    worker.close()

    assert [worker.values(record) for record in small] == [[2 * length] for length in SMALL]
    if takes == BUDGET:
        assert large.state is JobState.FAILED
        assert large.error is not None
        assert (large.error.code, large.error.item, large.attempts) == (JobErrorCode.INPUT_TOO_LONG, 0, 1)
    else:
        assert worker.values(large) == [2 * LARGE]
        assert [LARGE] in session.item_runs, "alone"
    assert len(session.item_runs) <= len(SMALL) + 1, "no pass was made in vain"

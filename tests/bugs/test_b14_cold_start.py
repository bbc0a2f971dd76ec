"""B14: jobs that come before the model is loaded, and shapes that traffic must not be the first to compile.

[kserve#1247, #2882, triton server#708, #3473]
"""

import threading
from pathlib import Path

from batchfleet.inference.registry import LoadedModel
from batchfleet.inference.shapes import FixedShapes
from batchfleet.models.config import Limits
from batchfleet.models.repository import ModelFiles
from tests.support.pipeline import WAIT_S, Pipeline
from tests.support.sessions import LengthTask, StubSession

LIMITS = Limits(max_batch_items=8, max_batch_tokens=256, max_item_tokens=64)


class SlowToLoad(Pipeline):
    """A worker whose model loads when the test lets it."""

    asked, ready = threading.Event(), threading.Event()

    def _load(self, files: ModelFiles) -> LoadedModel:
        self.asked.set()
        assert self.ready.wait(WAIT_S)
        return super()._load(files)


def test_no_job_is_lost_and_no_shape_is_first_run_by_a_users_job(tmp_path: Path) -> None:
    session = StubSession(compiles_per_shape=True)
    worker = SlowToLoad(tmp_path, session, limits=LIMITS, task=LengthTask()).start()
    ids = worker.submit(*[[float(length)] for length in range(1, 65)])
    assert worker.asked.wait(WAIT_S)
    late = worker.submit([64.0] * 3)
    worker.ready.set()
    records = worker.finish(ids + late)
    worker.close()

    assert [worker.values(record) for record in records[:-1]] == [[2.0 * length] for length in range(1, 65)]
    assert all((record.attempts, record.crashes) == (0, 0) for record in records)
    warm = {(shape.rows, shape.length) for shape in FixedShapes(LIMITS).warm_shapes()}
    first_of_traffic = next(place for place, run in enumerate(session.runs) if run in session.item_runs)
    assert set(session.shapes[:first_of_traffic]) == warm, "the warm-up runs every shape"
    assert set(session.shapes[first_of_traffic:]) <= warm

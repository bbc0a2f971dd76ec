"""B16: a worker with nothing to do asks the database less than once a second. [mlx-lm#1500, dramatiq#691]

Commands are counted and not timed. Its keeper adds a heartbeat in `BATCHFLEET_HEARTBEAT_S`.
"""

import threading
import time
from pathlib import Path
from typing import Any

from batchfleet.jobs.memory import MemoryStore
from tests.support.pipeline import Pipeline

IDLE_S = 3.0


class CountingStore(MemoryStore):
    """Counts what a worker asks of the store."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if not name.startswith("_") and callable(found):
            super().__getattribute__("asked").append(name)
        return found


def test_an_idle_worker_asks_less_than_once_a_second_and_uses_no_cpu(tmp_path: Path) -> None:
    store = CountingStore()
    worker = Pipeline(tmp_path, store=store).start()
    worker.finish(worker.submit([1.0]))
    store.asked.clear()

    spent = time.process_time()
    threading.Event().wait(IDLE_S)  # idleness is what is measured
    spent = time.process_time() - spent
    asked = list(store.asked)
    worker.close()

    assert len(asked) <= IDLE_S, asked
    assert spent < 0.02 * IDLE_S

"""Submits one task a text, so many outstanding at any time, and waits for each result: the callers of Celery.

Reads one line of JSON a run from standard input and answers with one; see `benchmarks.peers.callers`.
"""

import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from celery.result import AsyncResult

from benchmarks.peers.servers.celery_app import app

_PATIENCE_S = 120


def run(texts: list[str], callers: int, keep: set[int]) -> dict[str, Any]:
    """Submits all texts and returns seconds, latencies, own CPU seconds and some answers."""
    latencies, answers = [0.0] * len(texts), dict[int, Any]()
    waiting: deque[tuple[int, AsyncResult]] = deque()
    cpu, began, error = time.process_time(), time.perf_counter(), ""
    try:
        for index, text in enumerate(texts):
            if len(waiting) >= callers:
                _take(waiting, answers, keep)
            sent = time.perf_counter()
            result = app.send_task("embed", (text,))
            result.then(_noting(latencies, index, sent))
            waiting.append((index, result))
        while waiting:
            _take(waiting, answers, keep)
    except Exception as why:  # noqa: BLE001 - whatever it was, the runner says it
        error = f"{type(why).__name__}: {why}"
    return {
        "error": error,
        "seconds": time.perf_counter() - began,
        "cpu_s": time.process_time() - cpu,
        "latencies_s": latencies,
        "answers": {index: json.dumps(answer) for index, answer in answers.items()},
    }


def _take(waiting: deque[tuple[int, AsyncResult]], answers: dict[int, Any], keep: set[int]) -> None:
    """Waits for the oldest; what others have ended meanwhile is at hand without another wait."""
    index, result = waiting.popleft()
    answer = result.get(timeout=_PATIENCE_S)
    if index in keep:
        answers[index] = answer


def _noting(latencies: list[float], index: int, sent: float) -> Callable[[Any], None]:
    def note(_result: Any) -> None:
        latencies[index] = time.perf_counter() - sent

    return note


def main() -> None:
    """Serves runs until standard input ends."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # nothing but our lines may reach the runner
    for line in sys.stdin:
        request = json.loads(line)
        found = run(request["texts"], request["callers"], set(request["keep"]))
        out.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()

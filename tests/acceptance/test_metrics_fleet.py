"""`/metrics` over several processes: two APIs tell the same of all, and a killed worker leaves totals, no gauges."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from batchfleet.models.config import Limits
from migrations.run import upgrade
from tests.support.models import build_tiny_encoder, tiny_text
from tests.support.upstack import eventually

SLOW = Limits(max_batch_items=1, max_batch_tokens=4096, max_item_tokens=512)


@contextmanager
def process(module: str, environment: dict[str, str], ready: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """Starts a process, and yields it with the line that says that it is ready."""
    started = subprocess.Popen([sys.executable, "-m", module], env=environment, stderr=subprocess.PIPE, text=True)
    assert started.stderr is not None
    try:
        log = ""
        for line in started.stderr:
            log += line
            if ready in line:
                break
        else:
            pytest.fail(log)
        yield started, line
    finally:
        started.kill()
        started.wait(30)
        started.stderr.close()


def value(text: str, series: str) -> float | None:
    """Returns what a scrape says of one series; None if it does not name it."""
    found = re.search(rf"^{re.escape(series)} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else None


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    build_tiny_encoder(tmp_path / "models", layers=6, hidden=256, limits=SLOW)
    upgrade(f"sqlite:///{tmp_path}/batchfleet.db")
    return {
        **os.environ,
        "BATCHFLEET_DATABASE_URL": f"sqlite:///{tmp_path}/batchfleet.db",
        "BATCHFLEET_MODELS_URL": f"file://{tmp_path}/models",
        "BATCHFLEET_BLOB_URL": f"file://{tmp_path}/blobs",
        "BATCHFLEET_STATE_DIR": f"{tmp_path}/state",
        "BATCHFLEET_METRICS_DIR": f"{tmp_path}/metrics",
        "BATCHFLEET_WORKER_VARIANT": "fp32",
        "BATCHFLEET_API_PORT": "0",
    }


@pytest.mark.timeout(240)
def test_every_api_tells_of_all_and_a_killed_worker_leaves_totals_and_no_gauges(environment: dict[str, str]) -> None:
    with ExitStack() as running:

        def start(module: str, ready: str) -> tuple["subprocess.Popen[str]", str]:
            return running.enter_context(process(module, environment, ready))

        urls = [start("api", "url=http")[1].rpartition("url=")[2].strip() for _ in range(2)]
        worker, _ = start("workers", "worker is ready")
        client = running.enter_context(httpx.Client(timeout=30))

        def scrape(url: str) -> str:
            return client.get(f"{url}/metrics").raise_for_status().text

        for url in urls:
            jobs = [{"model": "tiny", "inputs": [tiny_text(500)]}] * 30
            client.post(f"{url}/v1/jobs/bulk", json=jobs).raise_for_status()

        def caught() -> float | None:
            text = scrape(urls[0])
            ran = value(text, 'batchfleet_batch_items_count{model="tiny"}')
            learned = value(text, 'batchfleet_backlog_device_seconds{lane="bulk",model="tiny"}')
            return ran if ran and learned and value(text, "batchfleet_window_items") else None

        ran = eventually(caught, "the worker holds items and has run some", 60)
        worker.send_signal(signal.SIGKILL)
        worker.wait(30)

        def quiet() -> list[str] | None:
            """Both told after the keeper has buried the worker: nothing changes any more."""
            texts = [scrape(url) for url in urls]
            return texts if all(value(text, "batchfleet_dead_boots_total") for text in texts) else None

        texts = eventually(quiet, "the keeper has buried its worker", 60)
        for text in texts:
            assert value(text, 'batchfleet_jobs_submitted_total{lane="bulk",model="tiny"}') == 60
            assert (value(text, 'batchfleet_batch_items_count{model="tiny"}') or 0) >= ran
            assert not value(text, "batchfleet_window_items")
            ended = value(text, 'batchfleet_jobs_ended_total{lane="bulk",model="tiny",state="succeeded"}') or 0
            queued = value(text, 'batchfleet_queue_jobs{lane="bulk",model="tiny",state="queued"}')
            assert queued is not None
            # What was settled and not yet counted when the worker died may be missing: a whole settle, of any number.
            assert queued + ended <= 60
            assert (value(text, 'batchfleet_backlog_device_seconds{lane="bulk",model="tiny"}') or 0) > 0
        # In whatever order: it is that in which each process found the files.
        counted = [sorted(_without_requests(text)) for text in texts]
        assert counted[0] == counted[1]


def _without_requests(text: str) -> list[str]:
    """Returns the lines that do not depend on the moment: not the scrapes themselves, nor the ages of queues."""
    return [line for line in text.splitlines() if "batchfleet_http_" not in line and "_age_seconds" not in line]

"""Metrics: right over several processes, equal to the database's truth, and bounded."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from batchfleet.errors import StoreUnavailableError
from batchfleet.telemetry import Metrics, Stopwatch, forget_dead_processes, process_alive

LABELS = {"model", "lane", "state", "reason", "route", "method", "status", "wait", "kind", "outcome", "what"}

CHILD = """
import sys
from pathlib import Path
from batchfleet.telemetry import setup_metrics
metrics = setup_metrics(Path(sys.argv[1]))
metrics.jobs_submitted.labels("m", "bulk").inc(5)
metrics.claim_seconds.observe(0.2)
metrics.window_items.set(7)
print("ready", flush=True)
sys.stdin.readline()
sys.stdout.buffer.write(metrics.render())
"""


@dataclass(frozen=True)
class Row:
    model: str
    lane: str
    state: str
    jobs: int
    oldest_age_s: float


class Child:
    """A process that counts, and renders when told to."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    def render(self) -> str:
        return self.process.communicate(b"\n", 60)[0].decode()


def test_a_process_alone_renders_its_own() -> None:
    metrics = Metrics()
    metrics.hints_published.inc(3)
    metrics.batches_released.labels("m", "full").inc()

    text = metrics.render().decode()

    assert "batchfleet_hints_published_total 3.0" in text
    assert 'batchfleet_batches_released_total{model="m",reason="full"} 1.0' in text


def test_two_registries_do_not_meet() -> None:
    first, second = Metrics(), Metrics()
    first.bisects.labels("m").inc()

    assert b"batchfleet_bisects_total{" not in second.render()


def test_names_and_labels_are_bounded() -> None:
    for family in Metrics()._registry.collect():
        assert family.name.startswith("batchfleet_")
        assert family.documentation.endswith(".")
    for metric in vars(Metrics()).values():
        assert set(getattr(metric, "_labelnames", ())) <= LABELS


def test_processes_that_share_a_folder_are_added_up(tmp_path: Path) -> None:
    folder = tmp_path / "metrics"
    first, second = Child(folder), Child(folder)

    text = first.render()

    assert 'batchfleet_jobs_submitted_total{lane="bulk",model="m"} 10.0' in text
    assert "batchfleet_claim_seconds_count 2.0" in text
    assert "batchfleet_window_items 14.0" in text
    second.process.kill()
    second.process.communicate()


def test_dead_processes_keep_their_totals_and_lose_their_gauges(tmp_path: Path) -> None:
    dead = Child(tmp_path)
    dead.process.kill()
    dead.process.communicate()

    text = Child(tmp_path).render()

    assert 'batchfleet_jobs_submitted_total{lane="bulk",model="m"} 10.0' in text
    assert "batchfleet_window_items 7.0" in text


def test_a_zombie_counts_as_dead(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    assert not process_alive(process.pid)
    assert process_alive(os.getpid())
    assert process_alive(1)
    (tmp_path / f"gauge_livesum_{process.pid}.db").touch()
    (tmp_path / f"gauge_livesum_{os.getpid()}.db").touch()
    forget_dead_processes(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [f"gauge_livesum_{os.getpid()}.db"]
    process.communicate()


def test_queues_are_read_at_the_scrape() -> None:
    metrics = Metrics()
    rows: list[Row] = []
    metrics.watch_queues(lambda: rows)
    rows.append(Row("m", "bulk", "queued", 12, 3.5))

    text = metrics.render().decode()

    assert 'batchfleet_queue_jobs{lane="bulk",model="m",state="queued"} 12.0' in text
    assert 'batchfleet_queue_oldest_age_seconds{lane="bulk",model="m",state="queued"} 3.5' in text


def test_a_database_that_is_down_does_not_cost_the_scrape() -> None:
    def down() -> list[Row]:
        raise StoreUnavailableError("down")

    metrics = Metrics()
    metrics.watch_queues(down)

    assert b"batchfleet_hints_published_total" in metrics.render()
    assert "batchfleet_scrape_failures_total 1.0" in metrics.render().decode()


def test_a_stopwatch_observes_also_when_the_step_fails() -> None:
    metrics = Metrics()
    watch = Stopwatch(metrics.settle_seconds)
    with pytest.raises(ZeroDivisionError), watch:
        _ = 1 / 0

    assert watch.seconds > 0
    assert "batchfleet_settle_seconds_count 1.0" in metrics.render().decode()


def test_gauges_of_an_earlier_process_with_our_id_are_forgotten(tmp_path: Path) -> None:
    """In a container each life of a process may have the same id."""
    pid = os.getpid()
    for name in (f"gauge_livesum_{pid}-1.db", f"counter_{pid}-1.db", f"gauge_livesum_{pid}.db"):
        (tmp_path / name).touch()

    forget_dead_processes(tmp_path)

    assert {path.name for path in tmp_path.iterdir()} == {f"counter_{pid}-1.db", f"gauge_livesum_{pid}.db"}


@pytest.mark.parametrize("kind", ["counter", "histogram", "gauge_livesum"])
def test_value_files_have_their_blocks_before_they_are_mapped(tmp_path: Path, kind: str) -> None:
    """A sparse map on a full disk kills the process with SIGBUS at some later count."""
    child = Child(tmp_path)
    (path,) = tmp_path.glob(f"{kind}_{child.process.pid}-*.db")
    stat = path.stat()
    child.render()

    assert stat.st_blocks * 512 >= stat.st_size >= 256 * 1024

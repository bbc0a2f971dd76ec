"""Memory of a fleet's parts: what processes share counts once, and the kernel's own words are read."""

from pathlib import Path

from batchfleet.embedded.bench.memory import Resident, together_mb
from batchfleet.embedded.bench.meter import succeeded_jobs


def test_the_kernels_words_are_read() -> None:
    found = Resident.parse(Path("/proc/self/status").read_text(encoding="utf-8"))

    assert found is not None
    assert found.peak > found.shared > 0


def test_a_process_that_has_ended_has_none() -> None:
    assert Resident.parse("Name:\tx\nState:\tZ (zombie)\n") is None


def test_what_processes_share_counts_once() -> None:
    assert together_mb([Resident(300 * 1024, 100 * 1024), Resident(150 * 1024, 90 * 1024)]) == 200 + 60 + 100
    assert together_mb([]) == 0


def test_succeeded_jobs_are_told_from_the_others() -> None:
    text = (
        'batchfleet_jobs_ended_total{lane="bulk",model="m",state="succeeded"} 3.0\n'
        'batchfleet_jobs_ended_total{lane="online",model="m",state="succeeded"} 2.0\n'
        'batchfleet_jobs_ended_total{lane="online",model="m",state="failed"} 7.0\n'
    )

    assert succeeded_jobs(text) == 5
    assert succeeded_jobs("") == 0

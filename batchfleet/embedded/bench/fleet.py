"""The fleet's side: the same texts, by bulk submission, until the last one is known to have succeeded."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from batchfleet.client import Client, Job, JobRequest
from batchfleet.embedded.cpu import snapshot, spent
from batchfleet.embedded.figures import Figures
from batchfleet.embedded.stack import StackInfo
from batchfleet.errors import BatchfleetError


class BenchFailedError(BatchfleetError):
    """The fleet did not do what was measured."""

    code = "bench_failed"


@dataclass(frozen=True, slots=True)
class FleetRun:
    """One run of all texts through a fleet.

    Attributes:
        ids: The jobs, in the order of the texts.
        seconds: From the first byte sent to the last result known.
        submit_s: The part of it until everything was submitted.
        cpu_s: CPU seconds by role; empty for a fleet whose processes cannot be seen.
        figures: What the fleet's metrics counted meanwhile.
        latencies_s: From submission to end of each job, by the fleet's own clock.
    """

    ids: Sequence[str]
    seconds: float
    submit_s: float
    cpu_s: Mapping[str, float]
    figures: Figures
    latencies_s: NDArray[np.float64]


def run_fleet(client: Client, model: str, texts: Sequence[str], info: StackInfo | None) -> FleetRun:
    """Puts texts through a fleet, one job each.

    Raises:
        BenchFailedError: If a job was refused or did not succeed.
    """
    figures = Figures.parse(client.metrics())
    requests = [JobRequest(model=model, inputs=[text], lane="bulk") for text in texts]
    before = snapshot(info) if info else {}
    began = time.perf_counter()
    submissions = client.submit_many(requests)
    submit_s = time.perf_counter() - began
    refused = [entry.error for entry in submissions if entry.id is None]
    if refused:
        raise BenchFailedError(f"{len(refused)} job(s) were refused, the first one: {refused[0]}")
    ids = [entry.id for entry in submissions if entry.id is not None]
    statuses = client.wait_many(ids, timeout_s=patience_s(len(ids)))
    seconds = time.perf_counter() - began
    cpu_s = spent(before, snapshot(info)) if info else {}
    counts = Counter(statuses.values())
    if counts["succeeded"] != len(texts):
        raise BenchFailedError(f"not all jobs succeeded: {dict(counts)}")
    added = Figures.parse(client.metrics()).since(figures)
    return FleetRun(ids, seconds, submit_s, cpu_s, added, latencies(client.look_up(ids)))


def patience_s(jobs: int) -> float:
    """Returns how long to wait for so many jobs: a fleet that takes longer is stuck, not slow."""
    return 120.0 + 0.2 * jobs


def vectors(client: Client, ids: Sequence[str]) -> NDArray[np.float32]:
    """Returns the result of each job, one row a job."""
    jobs = client.look_up(ids, results=True)
    rows = [job.result["values"][0] if job.result else client.result(job.id)[0] for job in jobs]
    return np.asarray(rows, np.float32)


def provenance(client: Client, job_id: str) -> Mapping[str, object]:
    """Returns how a result came about."""
    return client.get(job_id).provenance or {}


def latencies(jobs: Sequence[Job]) -> NDArray[np.float64]:
    """Returns the seconds from submission to end of each job, by the fleet's own clock."""
    return np.array(
        [
            (job.finished_at - job.submitted_at).total_seconds()
            for job in jobs
            if job.finished_at is not None and job.submitted_at is not None
        ]
    )

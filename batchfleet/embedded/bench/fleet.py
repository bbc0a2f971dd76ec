"""The fleet's side: the same texts, by bulk submission, until the last one is known to have succeeded."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from batchfleet.client import Client, Job, JobRequest
from batchfleet.embedded.bench.errors import BenchFailedError
from batchfleet.embedded.bench.meter import Cost, Meter


@dataclass(frozen=True, slots=True)
class FleetRun:
    """One run of all texts through a fleet.

    Attributes:
        ids: The jobs, in the order of the texts.
        submit_s: The part of its time until everything was submitted.
        cost: What it cost, from the first byte sent to the last result known.
        latencies_s: From submission to end of each job, by the fleet's own clock.
    """

    ids: Sequence[str]
    submit_s: float
    cost: Cost
    latencies_s: NDArray[np.float64]

    @property
    def seconds(self) -> float:
        """From the first byte sent to the last result known."""
        return self.cost.seconds


def run_fleet(client: Client, model: str, texts: Sequence[str], meter: Meter) -> FleetRun:
    """Puts texts through a fleet, one job each.

    Raises:
        BenchFailedError: If a job was refused or did not succeed.
    """
    requests = [JobRequest(model=model, inputs=[text], lane="bulk") for text in texts]
    meter.start()
    began = time.perf_counter()
    ids = submit_all(client, requests)
    submit_s = time.perf_counter() - began
    statuses = client.wait_many(ids, timeout_s=patience_s(len(ids)))
    cost = meter.stop()
    counts = Counter(statuses.values())
    if counts["succeeded"] != len(texts):
        raise BenchFailedError(f"not all jobs succeeded: {dict(counts)}")
    return FleetRun(ids, submit_s, cost, latencies(client.look_up(ids)))


def submit_all(client: Client, requests: Sequence[JobRequest]) -> list[str]:
    """Submits jobs in bulk and returns their ids.

    Raises:
        BenchFailedError: If one is refused.
    """
    submissions = client.submit_many(requests)
    refused = [entry.error for entry in submissions if entry.id is None]
    if refused:
        raise BenchFailedError(f"{len(refused)} job(s) were refused, the first one: {refused[0]}")
    return [entry.id for entry in submissions if entry.id is not None]


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


def worst_cosine(left: NDArray[np.float32], right: NDArray[np.float32]) -> float:
    """Returns the least agreement of two lists of vectors, row by row."""
    a, b = left.astype(np.float64), right.astype(np.float64)
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return float((np.einsum("ij,ij->i", a, b) / norms).min())

"""What a stretch of work cost a fleet: CPU and memory by process, and what its metrics counted."""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from batchfleet.client import Client
from batchfleet.embedded.bench.memory import forget_peaks, peaks_mb
from batchfleet.embedded.cpu import snapshot, spent
from batchfleet.embedded.figures import Figures
from batchfleet.embedded.stack import StackInfo

_SUCCEEDED = re.compile(r'^batchfleet_jobs_ended_total\{[^}]*state="succeeded"[^}]*\} (\S+)', re.MULTILINE)
CLIENT = "client"
"""The role of this process in a snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What it cost.

    Attributes:
        seconds: Wall time.
        cpu_s: CPU seconds by role, this process included as `client`; empty for a fleet that cannot be seen.
        rss_mb: The most memory of each part, likewise.
        figures: What the metrics counted.
        succeeded: Jobs that succeeded, by the metrics.
    """

    seconds: float
    cpu_s: Mapping[str, float] = field(default_factory=dict)
    rss_mb: Mapping[str, float] = field(default_factory=dict)
    figures: Figures = field(default_factory=Figures)
    succeeded: int = 0

    def fleet_cpu_s(self) -> float | None:
        """Returns the CPU seconds of the fleet's processes, this one's left out; None where they cannot be seen."""
        return sum(value for role, value in self.cpu_s.items() if role != CLIENT) if self.cpu_s else None


class Meter:
    """Measures what happens between `start` and `stop`."""

    def __init__(self, client: Client, info: Callable[[], StackInfo | None]) -> None:
        self._client = client
        self._info = info
        self._text = ""
        self._cpu: Mapping[str, float] = {}
        self._began = 0.0

    def start(self) -> None:
        """Begins. The metrics are read first: reading them costs the fleet, too."""
        self._text = self._client.metrics()
        info = self._info()
        if info is not None:
            forget_peaks(info)
            self._cpu = snapshot(info)
        self._began = time.perf_counter()

    def stop(self) -> Cost:
        """Ends, and returns what was spent."""
        seconds = time.perf_counter() - self._began
        info = self._info()
        cpu_s = spent(self._cpu, snapshot(info)) if info is not None else {}
        rss_mb = peaks_mb(info) if info is not None else {}
        text = self._client.metrics()
        return Cost(
            seconds=seconds,
            cpu_s=cpu_s,
            rss_mb=rss_mb,
            figures=Figures.parse(text).since(Figures.parse(self._text)),
            succeeded=succeeded_jobs(text) - succeeded_jobs(self._text),
        )


def succeeded_jobs(metrics: str) -> int:
    """Returns how many jobs have succeeded, by a scrape."""
    return round(sum(float(value) for value in _SUCCEEDED.findall(metrics)))

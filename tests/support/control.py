"""A control plane in this process, or in one of its own, with a short schedule; and waiting for what it does."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from batchfleet.broker.connect import connect_ring
from batchfleet.broker.port import Ring
from batchfleet.jobs.job import JobId, JobLinks, format_job_id, new_job_id
from batchfleet.jobs.sql.store import SqlStore
from batchfleet.outbox.delivery import Attempt, Delivery, DeliveryFilter, DeliveryKind, DeliveryState
from batchfleet.outbox.sql import SqlOutbox
from batchfleet.settings import Settings
from batchfleet.telemetry import Metrics
from scheduler.control import Control
from scheduler.wiring import build_control
from tests.support.playedworker import PlayedWorker
from tests.support.stores import new_job

DELAYS_S = (0.0, 0.02, 0.02, 0.02)
"""A schedule for tests that do not wait."""
WAIT_S = 60.0


class Fleet:
    """Jobs, a worker that is played, and the outbox, over one database.

    Attributes:
        settings: Of every scheduler of the fleet.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.jobs = SqlStore(settings.database_url)
        self.outbox = SqlOutbox(settings.database_url)
        self.metrics = Metrics()
        self.ring: Ring = connect_ring(settings.broker_url, metrics=self.metrics)
        self.worker = PlayedWorker(self.jobs, self.ring)

    def submit(self, *, tenant: str = "default", **links: str) -> JobId:
        """Submits a job with links."""
        job = new_job(id=new_job_id(), tenant=tenant, links=JobLinks(**links))
        self.jobs.submit([job])
        return job.id

    def succeed(self, job: JobId, rows: Sequence[Any] | None = None) -> None:
        """Ends a job with a result."""
        self.worker.succeed(format_job_id(job), rows)

    def cancel(self, *jobs: JobId) -> None:
        """Ends jobs without a result, in one transaction."""
        self.jobs.cancel(jobs)
        self.ring.ring(jobs)

    def delivery(self, job: JobId, kind: DeliveryKind = DeliveryKind.WEBHOOK) -> Delivery:
        """Returns what a job owes."""
        (found,) = self.outbox.list_deliveries(DeliveryFilter(job_id=job, kind=kind))
        return found

    def await_state(self, job: JobId, state: DeliveryState, kind: DeliveryKind = DeliveryKind.WEBHOOK) -> Delivery:
        """Waits until what a job owes is in a state."""
        wait_until(lambda: self.delivery(job, kind).state is state)
        return self.delivery(job, kind)

    def await_attempts(self, job: JobId, attempts: int, kind: DeliveryKind = DeliveryKind.WEBHOOK) -> None:
        """Waits until what a job owes was tried so often, and the last attempt has ended."""
        wait_until(lambda: sum(each.outcome is not None for each in self._log(job, kind)) >= attempts)

    def _log(self, job: JobId, kind: DeliveryKind) -> list[Attempt]:
        return self.outbox.log_of(self.delivery(job, kind).id)

    def close(self) -> None:
        for part in (self.ring, self.jobs, self.outbox):
            part.close()


@contextmanager
def fleet(database_url: str, folder: Path, **settings: Any) -> Iterator[Fleet]:
    """Opens a fleet without schedulers."""
    stated = {
        "database_url": database_url,
        "blob_url": f"file://{folder}/blobs",
        "state_dir": folder / "state",
        "webhook_networks": ("127.0.0.0/8",),
        "webhook_timeout_s": 20.0,
        "sweep_s": 0.05,
        **settings,
    }
    made = Fleet(Settings(**stated))
    try:
        yield made
    finally:
        made.close()


@contextmanager
def running_control(made: Fleet, **parts: Any) -> Iterator[Control]:
    """Runs a control plane in this process; with a broker it takes rings over it."""
    ring = connect_ring(made.settings.broker_url, metrics=made.metrics)
    built = build_control(made.settings, made.jobs, ring, made.metrics, **{"delays_s": DELAYS_S, **parts})
    built.control.start()
    try:
        if built.control.worker is not None and not parts.get("deaf"):
            assert built.control.worker.consuming.wait(WAIT_S)
        yield built.control
    finally:
        assert built.control.stop(WAIT_S)
        if built.control.worker is not None:
            built.control.worker.join(WAIT_S)
        ring.close()
        built.close()


class SchedulerProcess:
    """`python -m scheduler`, but with the tests' schedule and lease."""

    def __init__(self, made: Fleet, *, lease_s: float, delays_s: Sequence[float] = DELAYS_S) -> None:
        values = made.settings.model_dump(include={"database_url", "broker_url", "blob_url", "webhook_timeout_s"})
        environment = {f"BATCHFLEET_{name.upper()}": str(value) for name, value in values.items()}
        environment |= {
            "BATCHFLEET_STATE_DIR": str(made.settings.state_dir),
            "BATCHFLEET_WEBHOOK_NETWORKS": ",".join(made.settings.webhook_networks),
            "BATCHFLEET_SWEEP_S": str(made.settings.sweep_s),
        }
        program = (
            "import sys, functools\nimport scheduler.main as main\n"
            f"main.build_control = functools.partial(main.build_control, webhook_lease_s={lease_s}, "
            f"delays_s={tuple(delays_s)!r})\nsys.exit(main.main())"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", program], env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True
        )
        self._lines: list[str] = []
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        assert self._ready.wait(WAIT_S)
        assert self._process.poll() is None, self.log

    @property
    def log(self) -> str:
        """What it has logged so far."""
        return "".join(self._lines)

    def kill(self) -> None:
        """Ends it at once."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Ends it in an orderly way; returns its exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        if self._process.poll() is None:
            os.kill(self._process.pid, number)
        code = self._process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        return code

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                self._lines.append(line)
                if "process_ready" in line:
                    self._ready.set()
        self._ready.set()


@contextmanager
def scheduler_process(made: Fleet, *, lease_s: float = 60.0, **options: Any) -> Iterator[SchedulerProcess]:
    """Runs a scheduler in a process of its own."""
    process = SchedulerProcess(made, lease_s=lease_s, **options)
    try:
        yield process
    finally:
        process.kill()


def wait_until(condition: Callable[[], bool]) -> None:
    """Waits for something that nobody signals."""
    until = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)

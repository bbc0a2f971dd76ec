"""The first moments of a worker process: settings, the keeper, then the worker itself.

What this module imports makes no threads: the keeper is forked from here, and only a process with one thread
forks well. The heavy imports (numpy, the runtime) come after the fork, inside `boot`.
"""

import os
import socket
from pathlib import Path

from batchfleet.jobs.job import BootId, new_job_id
from batchfleet.settings import Settings
from batchfleet.telemetry import setup_logging
from workers.keeper import KeeperTerms, fork_keeper
from workers.lease import SharedLease

EXIT_CONFIG = 78
"""Exit code for settings or a machine state that a restart does not mend (EX_CONFIG)."""


def worker_name(settings: Settings) -> str:
    """Returns the worker's name: its setting, else the host's name."""
    return settings.worker_name or socket.gethostname()


def journal_path(settings: Settings) -> Path:
    """Returns where a worker of that name keeps its journal."""
    safe = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in worker_name(settings))
    return settings.state_dir / "journals" / f"{safe}.journal"


def new_boot_id() -> BootId:
    """Returns a fresh boot id."""
    return new_job_id()


def boot() -> int:
    """Runs a worker; returns the exit code."""
    settings = Settings()
    setup_logging(settings.log_level, settings.log_format)
    # One process a core: libraries that would start a pool of threads are told not to, before they are imported.
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, str(settings.worker_threads))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    shared = SharedLease()
    terms = KeeperTerms(
        boot=new_boot_id(),
        database_url=settings.database_url,
        journal=journal_path(settings),
        heartbeat_s=settings.heartbeat_s,
    )
    keeper = fork_keeper(terms, shared)
    from workers.main import run_worker  # noqa: PLC0415 - after the fork, see above

    return run_worker(settings, terms, shared, keeper)

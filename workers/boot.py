"""The first moments of a worker process: settings, the keeper, then the worker itself.

What this module imports makes no threads: the keeper is forked from here, and only a process with one thread
forks well. The heavy imports (numpy, the runtime) come after the fork, inside `boot`.
"""

import os
import sys

from batchfleet.settings import EXIT_CONFIG, SettingsError, read_settings
from batchfleet.telemetry import setup_logging
from workers.identity import journal_path, new_boot_id, worker_name
from workers.keeper import KeeperTerms, fork_keeper
from workers.lease import SharedLease


def boot() -> int:
    """Runs a worker; returns the exit code."""
    try:
        settings = read_settings()
    except SettingsError as error:
        print(f"batchfleet worker: {error}", file=sys.stderr)  # noqa: T201 - logging is not set up yet
        return EXIT_CONFIG
    boot_id = new_boot_id()
    fields = {"service": "worker", "worker": worker_name(settings), "boot": boot_id}
    setup_logging(settings.log_level, settings.log_format, fields=fields)
    # One process a core: libraries that would start a pool of threads are told not to, before they are imported.
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, str(settings.worker_threads))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    shared = SharedLease()
    terms = KeeperTerms(
        boot=boot_id,
        database_url=settings.database_url,
        journal=journal_path(settings),
        heartbeat_s=settings.heartbeat_s,
        metrics_dir=settings.metrics_dir,
    )
    keeper = fork_keeper(terms, shared)
    from workers.main import run_worker  # noqa: PLC0415 - after the fork, see above

    return run_worker(settings, terms, shared, keeper)

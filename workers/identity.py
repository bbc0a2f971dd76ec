"""Who a worker is: its name, which repeats, and its boot, which never does."""

import socket
from dataclasses import dataclass
from pathlib import Path

from batchfleet.jobs.job import BootId, new_job_id
from batchfleet.settings import Settings


@dataclass(frozen=True, slots=True)
class Identity:
    """Who runs the passes, for provenance."""

    boot: BootId
    name: str


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

"""What is known of the fleet that `batchfleet up` runs on the data folder: its address, and its settings."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchfleet.embedded.names import worker_names

DATA_DIR_VARIABLE = "BATCHFLEET_DATA_DIR"
_PREFIX = "BATCHFLEET_"

if TYPE_CHECKING:
    from batchfleet.settings import Settings


def data_dir() -> Path:
    """Returns the data folder of `batchfleet up`, where nothing else is said."""
    return Path.home() / ".batchfleet"


def up_folder() -> Path:
    """Returns the data folder that the environment names, else the usual one."""
    named = os.environ.get(DATA_DIR_VARIABLE)
    return Path(named).expanduser() if named else data_dir()


def running_url() -> str | None:
    """Returns where the fleet answers; None if none runs. What cannot be read says nothing."""
    url = _info().get("url")
    return url if isinstance(url, str) else None


def running_environment() -> dict[str, str]:
    """Returns the settings that the running fleet's processes were given, read from its processes; {} if none."""
    pids = _info().get("pids")
    known = pids if isinstance(pids, dict) else {}
    # Another part has the same settings, but for a worker's own name: one of them may just be starting again.
    for part in ("api", "scheduler", *(name for name in known if name.startswith("worker-"))):
        if found := _environment_of(known.get(part)):
            return found
    return {}


def running_workers() -> list[str]:
    """Returns the names that the workers of the running fleet go by; [] if none runs."""
    count = _info().get("workers")
    return worker_names(count) if isinstance(count, int) else []


def settings_of(environment: Mapping[str, str]) -> "Settings":
    """Returns the settings that a process reads from its variables."""
    from batchfleet.settings import Settings  # noqa: PLC0415 - not for `--help`

    given = {name.removeprefix(_PREFIX).lower(): value for name, value in environment.items()}
    return Settings(**{name: value for name, value in given.items() if name in Settings.model_fields})  # type: ignore[arg-type]


def up_database() -> str | None:
    """Returns the database of `batchfleet up` on the data folder: of a running fleet, else its file; None without."""
    running = running_environment().get(f"{_PREFIX}DATABASE_URL")
    if running:
        return running
    file = up_folder() / "batchfleet.db"
    return f"sqlite:///{file.resolve()}" if file.exists() else None


def _environment_of(pid: object) -> dict[str, str]:
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes() if isinstance(pid, int) else b""
    except OSError:  # it has just ended, or it is another user's
        return {}
    pairs = (entry.partition("=") for entry in raw.decode(errors="replace").split("\0"))
    return {name: value for name, _, value in pairs if name.startswith(_PREFIX)}


def _info() -> dict[str, Any]:
    try:
        info = json.loads((up_folder() / "stack.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return info if isinstance(info, dict) else {}

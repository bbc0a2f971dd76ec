"""A pulse: a small file by which a process without HTTP shows that its main loop goes round.

`batchfleet healthy` reads it, for container engines and supervisors that ask a process from outside. It is on this
machine's own disk and asks no database: a fleet whose database is away must not be restarted for that.
"""

import logging
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from batchfleet.clock import Monotonic
from batchfleet.logs import Action

logger = logging.getLogger(__name__)

WORST_GAP_S: Final = 30.0
"""How old the last beat of a process may be, beyond the time between two of its rounds."""
_STOPPED: Final = b"stopped".ljust(21)  # no number
_IDLE: Final = b"no model".ljust(21)


def pulse_path(state_dir: Path, part: str, name: str = "") -> Path:
    """Returns where a process beats.

    Args:
        state_dir: This machine's own folder.
        part: `worker` or `scheduler`.
        name: The worker's. Schedulers have none: those that share a state folder share a pulse.
    """
    safe = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name)
    return state_dir / "pulses" / (f"{part}-{safe}" if safe else part)


class Pulse:
    """The writing end. A folder that cannot be written costs the pulse, never the process.

    Args:
        path: Of the file; see `pulse_path`.
        gap_s: At most so often is it written.
    """

    def __init__(self, path: Path, *, gap_s: float = 5.0, clock: Monotonic = time.monotonic) -> None:
        self._gap_s = gap_s
        self._clock = clock
        self._written_at: float | None = None
        self._fd = -1
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        except OSError as error:
            logger.info("no pulse: %s", error, extra={"action": Action.PROCESS_READY})

    def beat(self) -> None:
        """Says that the process is well."""
        now = self._clock()
        if self._fd < 0 or (self._written_at is not None and now - self._written_at < self._gap_s):
            return
        with suppress(OSError):  # a full disk
            os.pwrite(self._fd, f"{now:020.3f}\n".encode(), 0)  # one length always: nothing old is left behind it
            self._written_at = now

    def idle(self) -> None:
        """Says that the process runs, and has no model to serve."""
        if self._fd >= 0:
            self._written_at = None
            with suppress(OSError):
                os.pwrite(self._fd, _IDLE, 0)

    def end(self) -> None:
        """Says that the process takes no more work."""
        if self._fd >= 0:
            with suppress(OSError):
                os.pwrite(self._fd, _STOPPED, 0)  # not removed: another process may share it
            os.close(self._fd)
            self._fd = -1


def is_idle(path: Path) -> bool:
    """Returns whether the process of a pulse last said that it has no model to serve."""
    try:
        return path.read_bytes() == _IDLE
    except OSError:
        return False


def age_of(path: Path, now: float) -> float | None:
    """Returns the seconds since a process beat, or None where none does.

    Args:
        path: Of its pulse.
        now: Monotonic time of this machine. A beat of its future is from before its last start.
    """
    try:
        beat = float(path.read_bytes())
    except (OSError, ValueError):
        return None
    return now - beat if beat <= now else None

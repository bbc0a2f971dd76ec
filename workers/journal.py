"""The pass journal: which jobs are in the pass right now, in a local file that a dying process leaves behind.

Written before each pass and cleared after it, so that a crash accuses exactly the jobs that were on the device.
It must survive the death of the process, not of the machine: the page cache does that, and no fsync is needed.
Two slots are written in turn; a torn write fails its checksum, and then the slot before it holds, which is the
truth as well: the pass that was being announced had not begun.
"""

import fcntl
import os
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Final

from batchfleet.errors import BatchfleetError
from batchfleet.jobs.job import BootId, JobId

_MAGIC: Final = b"BFJ1"
_HEADER: Final = struct.Struct("<4sQ32sII")  # magic, sequence, boot, number of ids, checksum
_ID_BYTES: Final = 16
MAX_JOBS: Final = 4_096
"""Jobs of one pass at most; no batch limit comes near."""
_SLOT_BYTES: Final = _HEADER.size + MAX_JOBS * _ID_BYTES


class JournalInUseError(BatchfleetError):
    """Another live worker of this machine has the same name."""

    code = "worker_name_in_use"


@dataclass(frozen=True, slots=True)
class Entry:
    """What a journal says: whose it is, and which jobs were in the pass."""

    boot: BootId
    jobs: tuple[JobId, ...]


class Journal:
    """One worker's journal; opening it locks the worker's name on this machine.

    Args:
        path: The file; made if it is missing.

    Raises:
        JournalInUseError: If a live process holds it.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise JournalInUseError(f"another worker is running under this name (it holds {path})") from None
        self.predecessor = read_journal(path)
        """What the boot before left behind."""
        self._sequence = 0
        self._boot = b""

    def begin_boot(self, boot: BootId) -> None:
        """Takes the journal over for a new boot; the predecessor must have been dealt with."""
        self._boot = boot.encode("ascii")
        os.ftruncate(self._fd, 0)
        self._sequence = 0
        self._write(())

    def begin_pass(self, jobs: Sequence[JobId]) -> None:
        """States that these jobs go onto the device now.

        Raises:
            ValueError: If there are more than `MAX_JOBS`.
        """
        if len(jobs) > MAX_JOBS:
            raise ValueError(f"a pass of {len(jobs)} jobs is over {MAX_JOBS}")
        self._write(jobs)

    def end_pass(self) -> None:
        """States that nothing is on the device."""
        self._write(())

    def close(self) -> None:
        """Releases the name."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write(self, jobs: Sequence[JobId]) -> None:
        self._sequence += 1
        body = bytes.fromhex("".join(jobs))
        head = _HEADER.pack(_MAGIC, self._sequence, self._boot, len(jobs), 0)
        head = _HEADER.pack(_MAGIC, self._sequence, self._boot, len(jobs), zlib.crc32(head + body))
        os.pwrite(self._fd, head + body, (self._sequence % 2) * _SLOT_BYTES)


def read_journal(path: Path) -> Entry | None:
    """Returns the latest valid entry of a journal, or None where there is none."""
    try:
        with path.open("rb") as file:
            content = file.read(2 * _SLOT_BYTES)
    except FileNotFoundError:
        return None
    entries = [entry for slot in (0, 1) if (entry := _parse(content[slot * _SLOT_BYTES :])) is not None]
    return max(entries, key=itemgetter(0))[1] if entries else None


def _parse(slot: bytes) -> tuple[int, Entry] | None:
    if len(slot) < _HEADER.size:
        return None
    magic, sequence, boot, count, checksum = _HEADER.unpack_from(slot)
    body = slot[_HEADER.size : _HEADER.size + min(count, MAX_JOBS) * _ID_BYTES]
    if magic != _MAGIC or count > MAX_JOBS or len(body) != count * _ID_BYTES:
        return None
    if zlib.crc32(_HEADER.pack(magic, sequence, boot, count, 0) + body) != checksum:
        return None
    ids = tuple(body[start : start + _ID_BYTES].hex() for start in range(0, len(body), _ID_BYTES))
    return sequence, Entry(boot.decode("ascii", "replace"), ids)

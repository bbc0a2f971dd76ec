"""The journal: which jobs are in the hands of foreign code right now, in a file that a dying process leaves behind.

Written before each pass and each call that prepares inputs, and cleared after it, so that a crash accuses exactly
the jobs that were on the device or in the tokeniser. One section for each of the two, since they overlap in time.
It must survive the death of the process, not of the machine: the page cache does that, and no fsync is needed.
Two slots a section are written in turn; a torn write fails its checksum, and then the slot before it holds, which
is the truth as well: the pass that was being announced had not begun.
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
_SECTION_BYTES: Final = 2 * _SLOT_BYTES


class JournalInUseError(BatchfleetError):
    """Another live worker of this machine has the same name."""

    code = "worker_name_in_use"


@dataclass(frozen=True, slots=True)
class Entry:
    """What a journal says: whose it is, which jobs were in the pass, and which were being prepared."""

    boot: BootId
    jobs: tuple[JobId, ...]
    preparing: tuple[JobId, ...] = ()

    @property
    def accused(self) -> tuple[JobId, ...]:
        """Returns the jobs that may have killed the process."""
        return tuple(dict.fromkeys(self.jobs + self.preparing))


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
        self._boot = b""
        self._preparing = _Section(self._fd, 0)
        self._passing = _Section(self._fd, _SECTION_BYTES)

    def begin_boot(self, boot: BootId) -> None:
        """Takes the journal over for a new boot; the predecessor must have been dealt with."""
        self._boot = boot.encode("ascii")
        os.ftruncate(self._fd, 0)
        self._preparing.write(self._boot, ())
        self._passing.write(self._boot, ())

    def begin_pass(self, jobs: Sequence[JobId]) -> None:
        """States that these jobs go onto the device now.

        Raises:
            ValueError: If there are more than `MAX_JOBS`.
        """
        self._passing.write(self._boot, jobs)

    def end_pass(self) -> None:
        """States that nothing is on the device."""
        self._passing.write(self._boot, ())

    def begin_prepare(self, jobs: Sequence[JobId]) -> None:
        """States that these jobs are being prepared now.

        Raises:
            ValueError: If there are more than `MAX_JOBS`.
        """
        self._preparing.write(self._boot, jobs)

    def end_prepare(self) -> None:
        """States that nothing is being prepared."""
        self._preparing.write(self._boot, ())

    def close(self) -> None:
        """Releases the name."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class _Section:
    """Two slots of the file, written by one thread."""

    def __init__(self, fd: int, offset: int) -> None:
        self._fd = fd
        self._offset = offset
        self._sequence = 0

    def write(self, boot: bytes, jobs: Sequence[JobId]) -> None:
        if len(jobs) > MAX_JOBS:
            raise ValueError(f"{len(jobs)} jobs are over {MAX_JOBS}")
        self._sequence += 1
        body = bytes.fromhex("".join(jobs))
        head = _HEADER.pack(_MAGIC, self._sequence, boot, len(jobs), 0)
        head = _HEADER.pack(_MAGIC, self._sequence, boot, len(jobs), zlib.crc32(head + body))
        os.pwrite(self._fd, head + body, self._offset + (self._sequence % 2) * _SLOT_BYTES)


def read_journal(path: Path) -> Entry | None:
    """Returns the latest valid entry of a journal, or None where there is none."""
    try:
        with path.open("rb") as file:
            content = file.read(2 * _SECTION_BYTES)
    except FileNotFoundError:
        return None
    preparing = _latest(content[:_SECTION_BYTES])
    passing = _latest(content[_SECTION_BYTES:])
    if passing is None:
        return None
    boot, jobs = passing
    return Entry(boot, jobs, preparing[1] if preparing is not None and preparing[0] == boot else ())


def _latest(section: bytes) -> tuple[BootId, tuple[JobId, ...]] | None:
    found = [slot for at in (0, _SLOT_BYTES) if (slot := _parse(section[at : at + _SLOT_BYTES])) is not None]
    return max(found, key=itemgetter(0))[1:] if found else None


def _parse(slot: bytes) -> tuple[int, BootId, tuple[JobId, ...]] | None:
    if len(slot) < _HEADER.size:
        return None
    magic, sequence, boot, count, checksum = _HEADER.unpack_from(slot)
    body = slot[_HEADER.size : _HEADER.size + min(count, MAX_JOBS) * _ID_BYTES]
    if magic != _MAGIC or count > MAX_JOBS or len(body) != count * _ID_BYTES:
        return None
    if zlib.crc32(_HEADER.pack(magic, sequence, boot, count, 0) + body) != checksum:
        return None
    ids = tuple(body[start : start + _ID_BYTES].hex() for start in range(0, len(body), _ID_BYTES))
    return sequence, boot.decode("ascii", "replace"), ids

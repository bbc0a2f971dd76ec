"""One supervisor per data folder: a lock that dies with its holder and says who that is."""

import fcntl
import json
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from batchfleet.errors import BatchfleetError


class AlreadyRunningError(BatchfleetError):
    """Another supervisor runs on this data folder.

    Attributes:
        pid: Its process id; None if it has not said yet.
        url: Where its API answers; None if it has not said yet.
    """

    code = "already_running"

    def __init__(self, data_dir: Path, pid: int | None, url: str | None) -> None:
        who = f"process {pid}" if pid else "another process"
        where = f", at {url}" if url else ""
        super().__init__(
            f"a fleet is already up on {data_dir} ({who}{where}). "
            "Use that one, stop it first, or choose another --data-dir"
        )
        self.pid = pid
        self.url = url


class DataDirError(BatchfleetError):
    """The data folder cannot be made or written."""

    code = "data_dir_unusable"

    def __init__(self, data_dir: Path, error: OSError) -> None:
        super().__init__(f"--data-dir (BATCHFLEET_DATA_DIR) {data_dir} cannot be used: {error.strerror or error}")


class DataDirLock:
    """An exclusive `flock` on `<data_dir>/lock`; released by the kernel however the holder ends."""

    def __init__(self, data_dir: Path) -> None:
        """Takes the lock.

        Raises:
            AlreadyRunningError: If another supervisor holds it.
            DataDirError: If the folder cannot be made or written.
        """
        try:
            if not data_dir.is_dir():
                data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Not inherited (PEP 446): a child must not keep the folder locked after us.
            self._file = os.open(data_dir / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise DataDirError(data_dir, error) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid, url = _read_holder(self._file)
            os.close(self._file)
            raise AlreadyRunningError(data_dir, pid, url) from None
        self.publish(url=None)

    def publish(self, *, url: str | None) -> None:
        """Says to later comers who holds the folder and where its API answers."""
        holder = json.dumps({"pid": os.getpid(), "url": url}).encode()
        os.pwrite(self._file, holder, 0)
        os.ftruncate(self._file, len(holder))

    def release(self) -> None:
        """Lets the next supervisor in."""
        os.ftruncate(self._file, 0)
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _read_holder(file: int) -> tuple[int | None, str | None]:
    """Reads what the holder published. It may be writing just now: then nothing is known."""
    try:
        holder = json.loads(os.pread(file, 4096, 0))
        return int(holder["pid"]), holder["url"]
    except (ValueError, KeyError, TypeError):
        return None, None

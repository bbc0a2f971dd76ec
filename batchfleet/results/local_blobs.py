"""The blob store in a folder of this machine (or of a shared file system)."""

import errno
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from batchfleet.results.blobs import (
    BlobData,
    BlobEntry,
    BlobNotFoundError,
    BlobRefusedError,
    BlobsUnavailableError,
    check_key,
)

_TEMPORARY: Final = ".tmp-"
"""Prefix of files being written; no key begins so, and `list` skips them."""

_PUT_ATTEMPTS: Final = 20
"""A put races with deletes that tidy up empty folders: it makes the folder again, a bounded number of times."""


class LocalBlobs:
    """One file a blob. A blob appears whole: it is written beside its place, synced, and renamed into it.

    Args:
        root: The folder; it is made if it is missing.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BlobsUnavailableError(f"cannot use {root}: {error}") from error

    def put(self, key: str, data: BlobData) -> None:
        """Stores a blob; when this returns, it survives a power cut."""
        path = self._path(key)
        for left in reversed(range(_PUT_ATTEMPTS)):
            try:
                self._make_folders(path.parent)
                return _write(path, data)
            except (FileNotFoundError, FileExistsError) as error:
                if not left:
                    raise BlobsUnavailableError(f"cannot write {key}: {error}") from error
            except OSError as error:
                wrong = BlobRefusedError if error.errno == errno.EFBIG else BlobsUnavailableError
                raise wrong(f"cannot write {key}: {error}") from error
        return None

    def get(self, key: str) -> bytes:
        """Returns a blob."""
        try:
            return self._path(key).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise BlobNotFoundError(f"no blob {key}") from error
        except OSError as error:
            raise BlobsUnavailableError(f"cannot read {key}: {error}") from error

    def exists(self, key: str) -> bool:
        """Returns whether there is a blob of that key."""
        return self._path(key).is_file()

    def delete(self, key: str) -> None:
        """Removes a blob, and the folders that it leaves empty."""
        path = self._path(key)
        try:
            path.unlink(missing_ok=True)
        except (NotADirectoryError, IsADirectoryError):
            return
        except OSError as error:
            if path.is_dir():  # macOS answers EPERM for a folder
                return
            raise BlobsUnavailableError(f"cannot delete {key}: {error}") from error
        with suppress(OSError):  # not empty, or tidied up by somebody else
            for folder in path.relative_to(self._root).parents[:-1]:
                (self._root / folder).rmdir()

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[BlobEntry]:
        """Yields blobs in order; folders that lie wholly before `after` are not opened."""
        top = self._path(prefix) if prefix else self._root
        if prefix and top.is_file():
            if prefix > after and (entry := _entry(prefix, top.stat)) is not None:
                yield entry
        else:
            yield from self._walk(top, after)

    def link(self, key: str, *, content_type: str, file_name: str) -> str | None:  # noqa: ARG002 - the port's
        """Returns None: nobody else can reach a folder."""
        check_key(key)
        return None

    def close(self) -> None:
        """Holds nothing open."""

    def _path(self, key: str) -> Path:
        return self._root / check_key(key)

    def _make_folders(self, folder: Path) -> None:
        """Makes missing folders, each durable before anything is put into it."""
        # The root as well: somebody may have removed it, and every large result would fail until a restart.
        self._root.mkdir(parents=True, exist_ok=True)
        missing = []
        while folder != self._root and not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for each in reversed(missing):
            each.mkdir(exist_ok=True)
            _sync_folder(each.parent)

    def _walk(self, folder: Path, after: str) -> Iterator[BlobEntry]:
        base = "" if folder == self._root else f"{folder.relative_to(self._root).as_posix()}/"
        for name, found in _names(folder):
            key = base + name
            if key.endswith("/"):
                if key > after or after.startswith(key):
                    yield from self._walk(Path(found.path), after)
            elif key > after and (entry := _entry(key, found.stat)) is not None:
                yield entry


def _names(folder: Path) -> list[tuple[str, os.DirEntry[str]]]:
    """Returns what lies in a folder, in the order of keys: a folder counts with its slash."""
    try:
        with os.scandir(folder) as entries:
            found = [entry for entry in entries if not entry.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise BlobsUnavailableError(f"cannot list {folder}: {error}") from error
    named = [(f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name, entry) for entry in found]
    return sorted(named, key=lambda pair: pair[0])


def _entry(key: str, stat: Callable[[], os.stat_result]) -> BlobEntry | None:
    """Returns the entry of a file, None if it is gone by now."""
    try:
        found = stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BlobsUnavailableError(f"cannot list {key}: {error}") from error
    return BlobEntry(key, found.st_size, found.st_mtime)


def _write(path: Path, data: BlobData) -> None:
    temporary = path.with_name(f"{_TEMPORARY}{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Blobs in a folder: what is left behind, and what happens when the disk refuses."""

import os
import shutil
from pathlib import Path

import pytest

from batchfleet.results.blobs import BlobRefusedError, BlobsUnavailableError
from batchfleet.results.local_blobs import LocalBlobs


def files(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*"))


def test_a_failed_put_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = LocalBlobs(tmp_path)
    blobs.put("job/1", b"old")

    def no_space(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(BlobsUnavailableError, match="No space"):
        blobs.put("job/1", b"new")

    assert blobs.get("job/1") == b"old"
    assert files(tmp_path) == ["job", "job/1"]


def test_leftovers_of_a_crash_are_not_listed(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / ".tmp-1").write_bytes(b"half")

    assert list(LocalBlobs(tmp_path).list()) == []


def test_deleting_tidies_up_folders(tmp_path: Path) -> None:
    blobs = LocalBlobs(tmp_path)
    blobs.put("a/b/c", b"")
    blobs.put("a/d", b"")
    blobs.delete("a/b/c")

    assert files(tmp_path) == ["a", "a/d"]
    blobs.delete("a/d")
    assert files(tmp_path) == []
    assert tmp_path.is_dir()


def test_deleting_what_is_only_a_folder_of_blobs_deletes_nothing(tmp_path: Path) -> None:
    blobs = LocalBlobs(tmp_path)
    blobs.put("job/1", b"x")
    blobs.delete("job")
    blobs.delete("job/1/deeper")

    assert blobs.get("job/1") == b"x"


def test_a_file_in_the_way_is_an_error_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "root").write_bytes(b"")
    with pytest.raises(BlobsUnavailableError):
        LocalBlobs(tmp_path / "root")

    blobs = LocalBlobs(tmp_path / "blobs")
    blobs.put("a", b"")
    with pytest.raises(BlobsUnavailableError):
        blobs.put("a/b", b"")
    blobs.put("c/d", b"")
    with pytest.raises(BlobsUnavailableError):
        blobs.put("c", b"")


def test_a_folder_that_was_removed_is_made_again(tmp_path: Path) -> None:
    """Every large result would otherwise fail until a restart."""
    blobs = LocalBlobs(tmp_path / "blobs")
    blobs.put("job/1", b"x")
    shutil.rmtree(tmp_path / "blobs")

    blobs.put("job/2", b"y")

    assert blobs.get("job/2") == b"y"


def test_a_file_too_large_for_the_disk_is_refused_for_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be the same tomorrow: unlike a full disk, it is not waited for."""

    def too_large(_descriptor: int) -> None:
        raise OSError(27, "File too large")

    monkeypatch.setattr(os, "fsync", too_large)
    with pytest.raises(BlobRefusedError, match="too large"):
        LocalBlobs(tmp_path).put("job/1", b"x")

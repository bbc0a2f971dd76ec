"""The contract of `BlobStore`, held by every adapter."""

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchfleet.results.blobs import (
    MAX_KEY_LENGTH,
    BlobNotFoundError,
    BlobStore,
    InvalidBlobKeyError,
    check_key,
    result_key,
)
from batchfleet.results.local_blobs import LocalBlobs

BAD_KEYS = [
    "",
    "/",
    "/etc/passwd",
    "a/",
    "a//b",
    ".",
    "..",
    "a/../b",
    "a/..",
    ".hidden",
    "a/.tmp-1",
    "a\\b",
    "a\0b",
    "a\nb",
    "a\n",
    "ä",
    "a b",
    "~root",
    "a" * 201,
    "/".join(["a" * 100] * 6),
]


@pytest.fixture(params=["local"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BlobStore]:
    assert request.param == "local"
    store = LocalBlobs(tmp_path / "blobs")
    yield store
    store.close()


@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 5000])
def test_a_blob_comes_back_as_it_was_put(blobs: BlobStore, data: bytes) -> None:
    blobs.put("job/1", data)

    assert blobs.get("job/1") == data
    assert blobs.exists("job/1")


def test_any_bytes_like_value_can_be_put(blobs: BlobStore) -> None:
    blobs.put("a", memoryview(b"123456")[2:4])
    blobs.put("b", bytearray(b"56"))

    assert (blobs.get("a"), blobs.get("b")) == (b"34", b"56")


def test_putting_again_replaces(blobs: BlobStore) -> None:
    blobs.put("job/1", b"long and old")
    blobs.put("job/1", b"new")

    assert blobs.get("job/1") == b"new"


def test_what_is_not_there_is_not_found(blobs: BlobStore) -> None:
    blobs.put("job/1", b"x")
    for key in ("nothing", "job/2", "job", "job/1/deeper"):
        assert not blobs.exists(key)
        with pytest.raises(BlobNotFoundError):
            blobs.get(key)


def test_deleting_is_idempotent(blobs: BlobStore) -> None:
    blobs.put("job/1", b"x")
    blobs.put("job/2", b"y")
    for _ in range(2):
        blobs.delete("job/1")
    for key in ("nothing", "nothing/at/all", "job", "job/2/deeper"):
        blobs.delete(key)

    assert not blobs.exists("job/1")
    assert blobs.get("job/2") == b"y"


def test_listing_is_by_folder_and_in_order(blobs: BlobStore) -> None:
    for key in ("b/2", "b/1", "a", "bb/1", "b/0/x"):
        blobs.put(key, b"")

    assert list(blobs.list()) == ["a", "b/0/x", "b/1", "b/2", "bb/1"]
    assert list(blobs.list("b")) == ["b/0/x", "b/1", "b/2"]
    assert list(blobs.list("b/1")) == ["b/1"]
    assert list(blobs.list("nothing")) == []
    assert list(blobs.list("a/deeper")) == []


@pytest.mark.parametrize("key", BAD_KEYS)
def test_no_key_leaves_the_store(blobs: BlobStore, key: str) -> None:
    for call in (blobs.get, blobs.exists, blobs.delete, lambda bad: blobs.put(bad, b"x")):
        with pytest.raises(InvalidBlobKeyError):
            call(key)
    if key:
        with pytest.raises(InvalidBlobKeyError):
            list(blobs.list(key))
    assert list(blobs.list()) == []


def test_good_keys_pass() -> None:
    longest = "/".join(["a" * 127] * 4)
    for key in ("a", result_key("0" * 32, 7), "A-b_c=d.e/.0"[:-3], longest):
        assert check_key(key) == key
    assert len(longest) <= MAX_KEY_LENGTH


def test_readers_see_whole_blobs_only(blobs: BlobStore) -> None:
    """Replacing a blob under its readers never shows them half of one."""
    whole = {bytes([number]) * 200_000 for number in range(4)}
    blobs.put("k", next(iter(whole)))
    done = threading.Event()

    def write() -> None:
        for _ in range(10):
            for data in whole:
                blobs.put("k", data)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not done.is_set():
        assert blobs.get("k") in whole
    writer.join()


def test_puts_and_deletes_of_neighbours_do_not_meet(blobs: BlobStore) -> None:
    """Tidying up an emptied folder must not fail the put that is about to use it."""
    errors: list[BaseException] = []

    def churn(name: str) -> None:
        try:
            for _ in range(50):
                blobs.put(f"job/{name}", b"x")
                blobs.delete(f"job/{name}")
        except BaseException as error:  # noqa: BLE001 - the test's whole question
            errors.append(error)

    threads = [threading.Thread(target=churn, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    assert list(blobs.list()) == []


def test_a_folder_that_was_removed_is_made_again(blobs: BlobStore, tmp_path: Path) -> None:
    """Every large result would otherwise fail until a restart."""
    blobs.put("job/1", b"x")
    for folder in tmp_path.iterdir():
        shutil.rmtree(folder)

    blobs.put("job/2", b"y")

    assert blobs.get("job/2") == b"y"

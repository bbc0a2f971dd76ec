"""The contract of `BlobStore`, held by every adapter."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from batchfleet.results.blobs import (
    MAX_KEY_LENGTH,
    BlobNotFoundError,
    BlobStore,
    InvalidBlobKeyError,
    check_key,
    result_key,
)
from batchfleet.results.connect import connect_blobs
from batchfleet.results.local_blobs import LocalBlobs
from batchfleet.settings import Settings
from tests.support.s3servers import Bucket

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


@pytest.fixture(params=["local", "moto", "nanio"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BlobStore]:
    if request.param == "local":
        settings = Settings(blob_url=(tmp_path / "blobs").as_uri())
    else:
        bucket: Bucket = request.getfixturevalue(f"{request.param}_bucket")
        bucket.put("results-of-others/job/1", b"not ours")
        settings = Settings(**bucket.settings)  # type: ignore[arg-type]
    store = connect_blobs(settings)
    yield store
    store.close()


def keys(blobs: BlobStore, prefix: str = "", after: str = "") -> list[str]:
    return [entry.key for entry in blobs.list(prefix, after=after)]


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
    for key in ("nothing", "nothing/at/all"):
        blobs.delete(key)

    assert not blobs.exists("job/1")
    assert blobs.get("job/2") == b"y"


def test_listing_is_by_folder_and_in_order(blobs: BlobStore) -> None:
    for key in ("b/2", "b/1", "a", "bb/1", "b/0/x", "b-b", "b.b/1"):
        blobs.put(key, b"")

    assert keys(blobs) == ["a", "b-b", "b.b/1", "b/0/x", "b/1", "b/2", "bb/1"]
    assert keys(blobs, "b") == ["b/0/x", "b/1", "b/2"]
    assert keys(blobs, "b/1") == ["b/1"]
    assert keys(blobs, "nothing") == []
    assert keys(blobs, "a/deeper") == []


@pytest.mark.parametrize("prefix", ["", "b"])
def test_a_listing_goes_on_after_any_key(blobs: BlobStore, prefix: str) -> None:
    """Also after one that is gone, or never was: a sweep deletes what it lists."""
    for key in ("b/2", "b/1", "a", "bb/1", "b/0/x", "b-b"):
        blobs.put(key, b"")
    everything = keys(blobs, prefix)

    for after in ("a", "b", "b-b", "b/0", "b/0/x", "b/0/y", "b/1", "b/15", "b/2", "bb", "bb/1", "z"):
        assert keys(blobs, prefix, after) == [key for key in everything if key > after]
    assert keys(blobs, "b/1", "b/0") == ["b/1"]
    assert keys(blobs, "b/1", "b/1") == []


def test_a_listing_tells_sizes_and_times(blobs: BlobStore) -> None:
    blobs.put("job/1", b"12345")
    blobs.put("job/2", b"")
    first, second = blobs.list("job")

    assert [(first.key, first.size), (second.key, second.size)] == [("job/1", 5), ("job/2", 0)]
    # By the store's clock, which has whole seconds in S3.
    assert abs(first.modified_at - time.time()) < 60
    assert list(blobs.list("job/1")) == [first]


@pytest.mark.parametrize("key", BAD_KEYS)
def test_no_key_leaves_the_store(blobs: BlobStore, key: str) -> None:
    for call in (blobs.get, blobs.exists, blobs.delete, lambda bad: blobs.put(bad, b"x")):
        with pytest.raises(InvalidBlobKeyError):
            call(key)
    if key:
        with pytest.raises(InvalidBlobKeyError):
            list(blobs.list(key))
        with pytest.raises(InvalidBlobKeyError):
            blobs.link(key, content_type="a/b", file_name="x")
    assert keys(blobs) == []


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
    assert keys(blobs) == []


def test_a_link_can_be_read_by_anybody_for_whom_it_was_made(blobs: BlobStore) -> None:
    """A folder has no such thing; S3's carries the type and the name that the answer shall have."""
    blobs.put("job/1", b"result")

    url = blobs.link("job/1", content_type="application/x-npy", file_name='a "b".npy')

    if url is not None:
        answer = httpx.get(url)
        assert (answer.status_code, answer.content) == (200, b"result")
        assert httpx.get(url.replace("job/1", "job/2")).status_code in {403, 404}
    assert (url is None) == isinstance(blobs, LocalBlobs)


def test_closing_twice_is_harmless(blobs: BlobStore) -> None:
    blobs.put("job/1", b"x")
    blobs.close()
    blobs.close()

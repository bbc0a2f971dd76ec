"""The sweep of orphans, over every blob store and with the store of jobs: it removes what nobody needs, only that."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from batchfleet.jobs.job import Settlement
from batchfleet.jobs.states import JobState
from batchfleet.results import orphans
from batchfleet.results.blobs import BlobStore, result_key
from batchfleet.results.connect import connect_blobs
from batchfleet.results.orphans import Swept, sweep_orphans
from batchfleet.settings import Settings
from tests.support.s3proxy import FaultyProxy, Trouble
from tests.support.s3servers import Bucket
from tests.support.stores import Bench, new_job, open_bench

GRACE_S = 3_600.0
ORPHAN = result_key("f" * 32, 1)


@pytest.fixture(params=["local", "moto", "nanio"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BlobStore]:
    settings = Settings(blob_url=(tmp_path / "blobs").as_uri())
    if request.param != "local":
        bucket: Bucket = request.getfixturevalue(f"{request.param}_bucket")
        settings = Settings(**bucket.settings)  # type: ignore[arg-type]
    store = connect_blobs(settings)
    yield store
    store.close()


@pytest.fixture(params=["memory", "sqlite"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    with open_bench(request.param, tmp_path) as opened:
        yield opened


def later() -> float:
    """A time at which all that was written until now is over the grace."""
    return time.time() + GRACE_S + 60


def keys(blobs: BlobStore) -> list[str]:
    return [entry.key for entry in blobs.list()]


def sweep(blobs: BlobStore, bench: Bench, *, now: float | None = None, limit: int = 10_000) -> Swept:
    at = later() if now is None else now
    return sweep_orphans(blobs, bench.store.named_blobs, now=at, grace_s=GRACE_S, limit=limit)


def test_a_result_stays_and_what_nobody_names_goes(blobs: BlobStore, bench: Bench) -> None:
    boot = bench.boot()
    (claimed,) = bench.running(boot)
    key = result_key(claimed.id, claimed.epoch)
    blobs.put(key, b"the result")
    row = Settlement(id=claimed.id, epoch=claimed.epoch, state=JobState.SUCCEEDED, format="{}", blob_key=key)
    bench.store.settle(boot, [row], b"")
    blobs.put(result_key(claimed.id, claimed.epoch + 1), b"of no run")
    blobs.put(ORPHAN, b"of no job")

    assert sweep(blobs, bench) == Swept(removed=2, seen=3, next_after="")

    assert keys(blobs) == [key]


def test_a_blob_that_is_written_but_not_settled_yet_stays(blobs: BlobStore, bench: Bench) -> None:
    """However old it is: its run goes on. Once the job runs under another epoch, nobody can settle it any more."""
    boot = bench.boot()
    (claimed,) = bench.running(boot)
    key = result_key(claimed.id, claimed.epoch)
    blobs.put(key, b"x")
    assert sweep(blobs, bench).removed == 0

    bench.store.bury(boot, [])
    bench.store.claim(bench.boot("other"), [claimed.id])

    assert sweep(blobs, bench).removed == 1
    assert keys(blobs) == []


def test_a_young_blob_stays_whoever_names_it(blobs: BlobStore, bench: Bench) -> None:
    blobs.put(ORPHAN, b"x")

    assert sweep(blobs, bench, now=time.time()) == Swept(removed=0, seen=1, next_after="")

    assert keys(blobs) == [ORPHAN]


def test_a_blob_that_is_put_again_during_the_sweep_is_of_a_run_that_is_over(blobs: BlobStore, bench: Bench) -> None:
    """A slow worker, declared dead, may write after the sweep: the next one finds it."""
    blobs.put(ORPHAN, b"x")

    def named(asked: Sequence[str]) -> set[str]:
        blobs.put(result_key("e" * 32, 1), b"meanwhile")
        return bench.store.named_blobs(asked)

    first = sweep_orphans(blobs, named, now=later(), grace_s=GRACE_S, limit=100)

    assert first.removed == 1
    assert keys(blobs) == [result_key("e" * 32, 1)]
    assert sweep(blobs, bench).removed == 1


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 100])
def test_a_sweep_goes_on_where_the_one_before_ended(
    blobs: BlobStore, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(orphans, "PAGE", 3)
    wanted = [result_key(f"{number:032x}", 1) for number in range(7)]
    for key in wanted:
        blobs.put(key, b"")
    needed = set(wanted[::2])

    def named(asked: Sequence[str]) -> set[str]:
        assert len(asked) <= 3
        return needed & set(asked)

    after, seen, removed, sweeps = "", 0, 0, 0
    while sweeps == 0 or after:
        swept = sweep_orphans(blobs, named, now=later(), grace_s=GRACE_S, limit=limit, after=after)
        assert swept.seen <= limit
        after, seen, removed, sweeps = swept.next_after, seen + swept.seen, removed + swept.removed, sweeps + 1

    assert (seen, removed) == (7, 3)
    assert keys(blobs) == sorted(needed)


def test_an_interrupted_sweep_removes_nothing_that_is_needed_and_can_be_repeated(bucket: Bucket) -> None:
    for number in range(4):
        bucket.put(f"results/{result_key(f'{number:032x}', 1)}", b"")
    needed = {result_key(f"{2:032x}", 1)}
    with FaultyProxy(bucket.server) as proxy:
        blobs = connect_blobs(Settings(**(bucket.settings | {"s3_endpoint_url": proxy.url})))  # type: ignore[arg-type]
        proxy.fail(Trouble.DENIED, times=1, only=lambda method, path: method == "DELETE" and f"{1:032x}" in path)
        with pytest.raises(Exception, match="AccessDenied"):
            sweep_orphans(blobs, needed.intersection, now=later(), grace_s=GRACE_S, limit=100)
        again = sweep_orphans(blobs, needed.intersection, now=later(), grace_s=GRACE_S, limit=100)
        blobs.close()

    assert again.removed == 2
    assert bucket.keys() == [f"results/{key}" for key in needed]


def test_an_empty_store_is_swept(blobs: BlobStore, bench: Bench) -> None:
    bench.store.submit([new_job()])

    assert sweep(blobs, bench) == Swept(removed=0, seen=0, next_after="")

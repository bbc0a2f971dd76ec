"""A worker killed while it reads its jobs' objects, or while S3 is away: nothing is lost and nobody charged."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.s3proxy import FaultyProxy, Trouble
from tests.support.s3servers import Bucket
from tests.support.upstack import UpStack, running_up

JOBS = 20
ITEMS = 5


@pytest.fixture
def proxy(nanio_bucket: Bucket) -> Iterator[FaultyProxy]:
    with FaultyProxy(nanio_bucket.server) as running:
        yield running


@pytest.fixture
def stack(
    nanio_bucket: Bucket,
    proxy: FaultyProxy,
    s3_credentials: Mapping[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[UpStack]:
    monkeypatch.setenv("BATCHFLEET_S3_ENDPOINT_URL", proxy.url)
    monkeypatch.setenv("BATCHFLEET_INPUT_PREFIXES", f"{nanio_bucket.url}/in/")
    (tmp_path / "fleet").mkdir()
    with running_up(tmp_path / "fleet", workers=1) as running:
        yield running


def submit(stack: UpStack, bucket: Bucket) -> list[str]:
    uris = [bucket.put(f"in/{n}.jsonl", b"\n".join([b'"sun"'] * ITEMS)) for n in range(JOBS)]
    return stack.submit([{"model": "tiny", "input_uri": uri} for uri in uris])


@pytest.mark.timeout(180)
def test_a_worker_killed_while_it_reads_objects_has_charged_nobody(
    stack: UpStack, nanio_bucket: Bucket, proxy: FaultyProxy
) -> None:
    gate = proxy.hold()
    ids = submit(stack, nanio_bucket)
    proxy.wait_seen(1)
    stack.kill("worker-0")
    gate.set()

    assert stack.finish(ids, 90) == {"succeeded": JOBS}

    jobs = stack.look_up(ids, results=True)
    assert {(job["attempts"], job["crashes"]) for job in jobs.values()} == {(0, 0)}
    assert {len(job["result"]["values"]) for job in jobs.values()} == {ITEMS}


@pytest.mark.timeout(180)
def test_a_worker_killed_while_objects_cannot_be_had_goes_on_afterwards(
    stack: UpStack, nanio_bucket: Bucket, proxy: FaultyProxy
) -> None:
    proxy.fail(Trouble.SLOW_DOWN, times=12)
    ids = submit(stack, nanio_bucket)
    proxy.wait_failed(4)
    stack.kill("worker-0")

    assert stack.finish(ids, 90) == {"succeeded": JOBS}

    assert {job["crashes"] for job in stack.look_up(ids).values()} == {0}

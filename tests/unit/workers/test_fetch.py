"""Which objects are read when: as far as their items and bytes fit, whatever else the worker holds."""

import threading
from collections.abc import Iterator

import pytest

from batchfleet.errors import InvalidRequestError
from batchfleet.jobs.job import ClaimedJob, JobErrorCode, Lane, OnItemError, new_job_id
from batchfleet.objects.uri import ObjectUri
from workers.active import PARKED_S, ActiveJob, ActiveJobs
from workers.fetch import Fetcher, FetchLimits
from workers.messages import JobFailed, SettleMessage

WAIT_S = 20.0
URI = "s3://bucket/in.json"


class HeldObjects:
    """An object store in memory whose reads wait until the test lets them."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._changed = threading.Condition()
        self._let = 0
        self.begun = 0

    def read(self, uri: ObjectUri, *, limit: int) -> bytes:
        with self._changed:
            self.begun += 1
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._let > 0, WAIT_S)
            self._let -= 1
        return self._data

    def write(self, uri: ObjectUri, data: bytes, *, content_type: str) -> None:
        raise NotImplementedError

    def close(self) -> None:
        return

    def let(self, count: int) -> None:
        with self._changed:
            self._let += count
            self._changed.notify_all()

    def wait_begun(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.begun >= count, WAIT_S), self.begun


def claimed(input_uri: str | None = URI, **changes: object) -> ClaimedJob:
    fields: dict[str, object] = {
        "id": new_job_id(),
        "epoch": 1,
        "model": "m",
        "version": "1",
        "adapter": "",
        "tenant": "t",
        "lane": Lane.BULK,
        "inputs": b"[]",
        "item_count": 1,
        "parameters": b"{}",
        "on_item_error": OnItemError.FAIL,
        "attempts": 0,
        "max_attempts": 3,
        "crashes": 0,
        "suspect": False,
        "age_s": 0.0,
        "ttl_left_s": None,
        "run_timeout_s": 300.0,
        "input_uri": input_uri,
    }
    return ClaimedJob(**(fields | changes))  # type: ignore[arg-type]


class Bench:
    """A fetcher with two threads and a window of 100 items."""

    def __init__(
        self, objects: HeldObjects, *, object_bytes: int = 1_000, jobs: int = 100, capacity: int = 100
    ) -> None:
        self.active = ActiveJobs()
        self.objects = objects
        self.settled: list[SettleMessage] = []
        self.prepared: list[ActiveJob] = []
        self._changed = threading.Condition()
        limits = FetchLimits(object_bytes=object_bytes, item_bytes=1_000, jobs=jobs)
        self.fetcher = Fetcher(objects, self.active, limits, lambda: capacity, self._prepare, self._settle)
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self.fetcher.run, args=(self._stopping,)) for _ in range(2)]

    def _prepare(self, jobs: list[ActiveJob]) -> None:
        with self._changed:
            self.prepared += jobs
            self._changed.notify_all()

    def _settle(self, message: SettleMessage) -> None:
        with self._changed:
            self.settled.append(message)
            self._changed.notify_all()

    def wait_prepared(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.prepared) >= count, WAIT_S), self.prepared

    def wait_settled(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.settled) >= count, WAIT_S), self.settled

    def claim(self, *jobs: ClaimedJob, now: float = 0.0) -> list[ActiveJob]:
        taken = [self.active.add(job, now) for job in jobs]
        self.fetcher.put(taken)
        return taken

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._stopping.set()
        self.objects.let(1_000)
        self.fetcher.stop()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(WAIT_S)
                assert not thread.is_alive()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench(HeldObjects(b"[1, 2, 3]"))
    yield made
    made.close()


def test_jobs_with_inputs_of_their_own_pass_at_once_and_the_others_take_no_room(bench: Bench) -> None:
    inline, far = bench.claim(claimed(None, item_count=7), claimed())

    assert bench.prepared == [inline]
    assert bench.active.items == 7
    bench.start()
    bench.objects.wait_begun(1)
    assert bench.active.items == 7, "nor while it is read, however long that takes"
    bench.objects.let(1)
    bench.wait_prepared(2)
    bench.fetcher.unpack(far)
    assert bench.active.items == 10
    assert (far.claimed.item_count, far.claimed.inputs, far.missing) == (3, b"[1, 2, 3]", 3)
    bench.active.remove(far)
    assert bench.active.items == 7


def test_more_jobs_than_may_wait_take_room_so_that_no_more_are_claimed() -> None:
    bench = Bench(HeldObjects(b"[1]"), jobs=3)
    bench.claim(*[claimed() for _ in range(5)])

    assert bench.active.items == 2


def test_objects_are_read_ahead_for_half_a_window_only() -> None:
    """An object is taken for an average one, 64 items at first: a window of 100 has one read at a time."""
    bench = Bench(HeldObjects(b"[" + b",".join([b"1"] * 60) + b"]"))
    jobs = bench.claim(*[claimed() for _ in range(3)])
    bench.start()
    bench.objects.wait_begun(1)
    bench.objects.let(1)
    bench.wait_prepared(1)
    (first,) = bench.prepared
    bench.fetcher.unpack(first)
    assert bench.objects.begun == 1
    bench.active.remove(first)
    bench.objects.wait_begun(2)
    bench.close()

    assert {job.id for job in jobs} >= {job.id for job in bench.prepared}


def test_bytes_that_were_read_and_not_parsed_are_bounded() -> None:
    """Four objects of the largest size in all, those that are being read counted in full."""
    bench = Bench(HeldObjects(b" " * 900 + b"[1]"), object_bytes=1_000, capacity=10_000)
    bench.claim(*[claimed() for _ in range(10)])
    bench.start()
    bench.objects.let(1_000)
    bench.wait_prepared(4)
    held = sum(len(job.fetched or b"") for job in bench.active.all())
    assert held <= 4_000
    while len(bench.prepared) < 10:
        done = len(bench.prepared)
        for job in bench.prepared[:]:
            bench.fetcher.unpack(job)
            bench.active.resize(job, 0)
        bench.wait_prepared(min(10, done + 1))
    bench.close()

    assert bench.objects.begun == 10


def test_a_job_that_is_gone_is_not_read(bench: Bench) -> None:
    gone, kept = bench.claim(claimed(), claimed())
    bench.active.remove(gone)
    bench.start()
    bench.objects.let(1)
    bench.wait_prepared(1)

    assert bench.prepared == [kept]
    assert bench.objects.begun == 1


def test_a_job_whose_object_waits_for_long_is_for_others(bench: Bench) -> None:
    waiting, reading = bench.claim(claimed(), claimed(), now=100.0)
    reading.reading = True

    assert bench.active.parked(100.0 + PARKED_S - 0.1) == []
    assert bench.active.parked(100.0 + PARKED_S) == [waiting]


def test_a_job_expires_while_its_object_waits_or_is_read(bench: Bench) -> None:
    reading, lasting, *_ = bench.claim(claimed(ttl_left_s=2.0), claimed(ttl_left_s=9.0), claimed(), now=100.0)
    reading.reading = True

    assert bench.active.expired_unread(101.9) == []
    assert bench.active.expired_unread(102.0) == [reading]
    lasting.fetching = False
    assert bench.active.expired_unread(200.0) == [reading]


def test_a_uri_that_is_none_is_the_jobs_own_error(bench: Bench) -> None:
    bench.claim(claimed("file:///etc/passwd"))
    bench.start()
    bench.wait_settled(1)

    (message,) = bench.settled
    assert isinstance(message, JobFailed)
    assert message.error.code == JobErrorCode.INPUT_INVALID


def test_what_an_object_holds_is_checked_once(bench: Bench) -> None:
    (job,) = bench.claim(claimed())
    job.fetched = b"[]"
    with pytest.raises(InvalidRequestError, match="at least one"):
        bench.fetcher.unpack(job)

    assert [held.fetched for held in bench.active.all()] == [None]
    bench.fetcher.unpack(job)

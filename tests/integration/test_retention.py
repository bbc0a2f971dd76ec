"""Retention on both databases and a real blob store: the database first, then the blobs, then what was left over."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchfleet.jobs.job import JobId, format_job_id
from batchfleet.jobs.states import JobState
from batchfleet.outbox.delivery import DeliveryFilter, Outcome
from batchfleet.outbox.port import OutboxStore
from batchfleet.outbox.sql import SqlOutbox
from batchfleet.profiles.memory import MemoryProfiles
from batchfleet.profiles.port import UNUSED_S, Lesson, ProfileKey
from batchfleet.results.blobs import BlobStore, BlobsUnavailableError, result_key
from batchfleet.results.connect import connect_blobs
from scheduler.celery_app import PURGE
from scheduler.retention import Retention
from tests.support.control import Fleet, fleet
from tests.support.postgres import empty_database
from tests.support.stores import sqlite_url


class House:
    """A fleet with its duties, at hand."""

    def __init__(self, made: Fleet) -> None:
        self.made = made
        self.blobs = connect_blobs(made.settings)
        self.profiles = MemoryProfiles(lambda: self.now)
        self.now = 1_000.0
        self.retention = self.duties(made.outbox)

    def duties(self, outbox: OutboxStore, *, results_s: float = 0.0, jobs_s: float = 0.0) -> Retention:
        settings = self.made.settings.model_copy(update={"result_retention_s": results_s, "job_retention_s": jobs_s})
        return Retention(self.made.jobs, outbox, self.blobs, self.profiles, self.made.metrics, settings)

    def ended(self, blob: bool = True) -> tuple[JobId, str]:
        job = self.made.submit()
        claimed = self.made.worker.claim(format_job_id(job))
        key = result_key(job, claimed.epoch)
        self.blobs.put(key, b"result")
        self.made.worker.settle(claimed, JobState.SUCCEEDED, format="{}", blob_key=key if blob else None)
        return job, key

    def aged(self, *keys: str) -> None:
        """Makes blobs old."""
        root = Path(self.made.settings.blob_url.removeprefix("file://"))
        for path in root.rglob("*"):
            if path.is_file() and any(str(path).endswith(key) for key in keys):
                os.utime(path, (1_000_000_000, 1_000_000_000))


@pytest.fixture(params=["sqlite", "postgres"])
def house(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    url = empty_database() if request.param == "postgres" else sqlite_url(tmp_path)
    with fleet(url, tmp_path, orphan_grace_s=60.0) as made:
        yield House(made)


def test_profiles_that_no_worker_tells_of_are_removed(house: House) -> None:
    old, used = (ProfileKey("tiny", version, "fp32", "cpu") for version in "12")
    for key in (old, used):
        house.profiles.tell(key, Lesson())
    house.now += UNUSED_S + 1.0
    house.profiles.tell(used, Lesson())

    house.retention.purge()

    assert [known.key for known in house.profiles.rates()] == [used]
    assert house.made.metrics.purged.labels("profiles")._value.get() == 1


def test_what_is_too_old_is_removed_with_its_blob(house: House) -> None:
    job, key = house.ended()
    owed = house.made.submit(callback_url="https://x.example/")
    house.made.cancel(owed)
    delivery = house.made.delivery(owed)
    begun = house.made.outbox.begin(delivery.id, lease_s=60)
    assert begun is not None
    house.made.outbox.finish(delivery.id, begun.epoch, Outcome(duration_s=0), retry_in_s=None)
    running = house.made.submit()

    house.retention.purge()

    assert [record.id for record in house.made.jobs.look_up([job, owed, running])] == [running]
    assert not house.blobs.exists(key)
    assert house.made.outbox.list_deliveries(DeliveryFilter()) == []
    text = house.made.metrics.render().decode()
    assert 'batchfleet_purged_total{what="results"} 1.0' in text
    assert 'batchfleet_purged_total{what="jobs"} 2.0' in text
    assert 'batchfleet_purged_total{what="deliveries"} 1.0' in text


def test_what_is_young_stays(house: House) -> None:
    job, key = house.ended()

    house.duties(house.made.outbox, results_s=3600, jobs_s=3600).purge()

    assert house.made.jobs.look_up([job])
    assert house.blobs.exists(key)


def test_results_go_before_their_jobs(house: House) -> None:
    job, key = house.ended()

    house.duties(house.made.outbox, jobs_s=3600).purge()

    (record,) = house.made.jobs.look_up([job], with_results=True)
    assert (record.state, record.result) == (JobState.SUCCEEDED, None)
    assert not house.blobs.exists(key)


def test_two_beats_do_a_duty_once(house: House) -> None:
    other = SqlOutbox(house.made.settings.database_url)
    house.retention.purge()
    job, _ = house.ended()

    house.duties(other).purge()
    house.retention.purge()
    other.close()

    assert house.made.jobs.look_up([job])
    assert [name for name, _ in house.made.outbox.duties()] == [PURGE]


def test_more_than_a_page_is_removed_at_once(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.retention.PAGE", 2)
    jobs = [house.ended()[0] for _ in range(5)]

    house.retention.purge()

    assert house.made.jobs.look_up(jobs) == []


def test_a_blob_that_cannot_be_removed_is_left_to_the_sweep(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    job, key = house.ended()
    with monkeypatch.context() as broken:
        broken.setattr(house, "blobs", _Broken(house.blobs))
        house.duties(house.made.outbox).purge()
    assert house.made.jobs.look_up([job]) == []
    assert house.blobs.exists(key)
    house.aged(key)

    house.retention.sweep_orphans()

    assert not house.blobs.exists(key)
    assert b"batchfleet_orphans_removed_total 1.0" in house.made.metrics.render()


class _Broken:
    """A blob store that removes nothing."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs

    def delete(self, key: str) -> None:
        raise BlobsUnavailableError("away")


def test_only_blobs_that_nobody_needs_are_swept(house: House) -> None:
    _, named = house.ended()
    _, stale = house.ended(blob=False)
    running = house.made.submit()
    claimed = house.made.worker.claim(format_job_id(running))
    needed = result_key(running, claimed.epoch)
    house.blobs.put(needed, b"written, not settled yet")
    young = result_key(running, claimed.epoch + 7)
    house.blobs.put(young, b"x")
    house.aged(named, stale, needed)

    house.retention.sweep_orphans()

    assert {key: house.blobs.exists(key) for key in (named, stale, needed, young)} == {
        named: True,
        stale: False,
        needed: True,
        young: True,
    }

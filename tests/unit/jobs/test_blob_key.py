"""The key of a result blob says whose it is."""

import pytest

from batchfleet.jobs.blob_key import MAX_EPOCH, read_blob_key
from batchfleet.jobs.job import new_job_id
from batchfleet.results.blobs import result_key

JOB = "0" * 32


@pytest.mark.parametrize("epoch", [0, 1, 10, MAX_EPOCH])
def test_what_is_written_is_read(epoch: int) -> None:
    job_id = new_job_id()

    assert read_blob_key(result_key(job_id, epoch)) == (job_id, epoch)


@pytest.mark.parametrize("key", ["", "x", "a/1", JOB, f"{JOB}/", f"p/{JOB}/1", f"{JOB}/1/2", f"{'A' * 32}/1"])
def test_other_keys_are_nobodys(key: str) -> None:
    assert read_blob_key(key) is None


@pytest.mark.parametrize("epoch", ["01", "-1", "1\n", "\u0661", str(MAX_EPOCH + 1), "9" * 40])
def test_epochs_that_no_job_has(epoch: str) -> None:
    assert read_blob_key(f"{JOB}/{epoch}") is None

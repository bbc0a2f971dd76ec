"""The journal must accuse exactly the jobs of the pass, whatever moment the process dies at."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfleet.jobs.job import new_job_id
from workers.journal import MAX_JOBS, Entry, Journal, JournalInUseError, read_journal

BOOT = new_job_id()


def test_a_pass_is_named_while_it_runs_and_nobody_after_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "w.journal")
    journal.begin_boot(BOOT)
    jobs = tuple(new_job_id() for _ in range(3))

    journal.begin_pass(jobs)
    during = read_journal(journal.path)
    journal.end_pass()

    assert during == Entry(BOOT, jobs)
    assert read_journal(journal.path) == Entry(BOOT, ())


def test_the_next_boot_finds_what_its_predecessor_left(tmp_path: Path) -> None:
    first = Journal(tmp_path / "w.journal")
    first.begin_boot(BOOT)
    jobs = (new_job_id(),)
    first.begin_pass(jobs)
    first.close()  # the process is dead: the lock goes, the bytes stay

    second = Journal(tmp_path / "w.journal")

    assert second.predecessor == Entry(BOOT, jobs)
    second.begin_boot("f" * 32)
    assert read_journal(second.path) == Entry("f" * 32, ())


def test_two_live_workers_cannot_share_a_name(tmp_path: Path) -> None:
    first = Journal(tmp_path / "w.journal")

    with pytest.raises(JournalInUseError, match="under this name"):
        Journal(tmp_path / "w.journal")

    first.close()
    Journal(tmp_path / "w.journal").close()


@given(st.integers(0, 400), st.integers(0, 255))
def test_a_torn_write_leaves_the_entry_before_it(tmp_path_factory: pytest.TempPathFactory, at: int, byte: int) -> None:
    """Whatever byte of the newest slot is wrong, the older one is what counts; never a mixture."""
    path = tmp_path_factory.mktemp("journal") / "w.journal"
    journal = Journal(path)
    journal.begin_boot(BOOT)  # sequence 1, slot 1
    old, new = tuple(new_job_id() for _ in range(2)), tuple(new_job_id() for _ in range(20))
    journal.begin_pass(old)  # sequence 2, slot 0
    before = path.read_bytes()
    journal.begin_pass(new)  # sequence 3, slot 1
    content = bytearray(path.read_bytes())
    place = len(content) - 1 - (at % (len(content) - len(before) + 1))
    changed = content[place] != byte
    content[place] = byte
    path.write_bytes(content)

    found = read_journal(path)

    assert found in ((Entry(BOOT, old),) if changed else (Entry(BOOT, new),))
    journal.close()


def test_no_file_and_garbage_are_no_entry(tmp_path: Path) -> None:
    assert read_journal(tmp_path / "missing") is None
    (tmp_path / "garbage").write_bytes(b"\xff" * 200_000)
    assert read_journal(tmp_path / "garbage") is None


def test_a_pass_of_too_many_jobs_is_refused(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "w.journal")
    journal.begin_boot(BOOT)
    journal.begin_pass([new_job_id()] * MAX_JOBS)
    assert len((read_journal(journal.path) or Entry("", ())).jobs) == MAX_JOBS

    with pytest.raises(ValueError, match="are over"):
        journal.begin_pass([new_job_id()] * (MAX_JOBS + 1))


def test_jobs_that_are_being_prepared_are_accused_beside_those_of_the_pass(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "w.journal")
    journal.begin_boot(BOOT)
    passing, preparing = (new_job_id(), new_job_id()), (new_job_id(),)

    journal.begin_pass(passing)
    journal.begin_prepare(preparing)
    both = read_journal(journal.path)
    journal.end_pass()
    one = read_journal(journal.path)
    journal.end_prepare()
    none = read_journal(journal.path)

    assert both is not None
    assert both.accused == passing + preparing
    assert one is not None
    assert one.accused == preparing
    assert none == Entry(BOOT, ())

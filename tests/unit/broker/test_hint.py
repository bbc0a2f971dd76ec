"""Hints: what they carry, and which jobs travel together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfleet.broker.hint import Flow, Hint, InvalidHintError, decode_hint, encode_hint, group_hints
from batchfleet.jobs.job import LANES, Announcement, Lane, new_job_id


def job(size: int = 10, *, items: int = 1, model: str = "m", lane: Lane = Lane.BULK) -> Announcement:
    return Announcement(new_job_id(), model, lane, "default", size, items)


def test_a_hint_is_read_as_it_was_written() -> None:
    hint = Hint("m", Lane.ONLINE, (new_job_id(), new_job_id()))

    assert decode_hint(encode_hint(hint)) == hint
    assert hint.flow == Flow("m", Lane.ONLINE)
    assert hint.flow.queue == "batchfleet.hints.online.m"


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[1]", b'{"v":2,"m":"m","l":"bulk","i":[]}', b'{"v":1,"m":"m","l":"x","i":[]}']
)
def test_what_is_no_hint_of_this_version_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidHintError):
        decode_hint(body)


announcements = st.lists(
    st.builds(
        lambda size, items, model, lane: job(size, items=items, model=model, lane=lane),
        st.integers(1, 9_999),
        st.integers(1, 400),
        st.sampled_from("ab"),
        st.sampled_from(LANES),
    ),
    max_size=150,
)


@given(announcements, st.integers(1, 40), st.integers(1, 500))
def test_every_job_is_named_once_in_a_hint_of_its_flow(jobs: list[Announcement], ids: int, items: int) -> None:
    hints = group_hints(jobs, max_ids=ids, max_items=items)

    by_id = {one.id: one for one in jobs}
    named = [(job_id, hint.flow) for hint in hints for job_id in hint.ids]
    assert sorted(named) == sorted((one.id, Flow(one.model, one.lane)) for one in jobs)
    for hint in hints:
        counts = [by_id[job_id].item_count for job_id in hint.ids]
        assert 1 <= len(counts) <= ids
        assert sum(counts[:-1]) < items


def test_jobs_of_like_length_travel_together_the_longest_first() -> None:
    jobs = [job(size) for size in (5, 900, 7, 800, 6, 850)]

    first, second = group_hints(jobs, max_ids=3)

    assert set(first.ids) == {one.id for one in jobs if one.input_bytes >= 800}
    assert set(second.ids) == {one.id for one in jobs if one.input_bytes < 800}


def test_the_length_that_counts_is_that_of_an_item() -> None:
    """A job of many short texts belongs with other short texts."""
    many_short, one_long, short = job(1_000, items=100), job(500), job(12)

    first, second = group_hints([many_short, one_long, short], max_ids=1, max_items=1_000)[:2]

    assert first.ids == (one_long.id,)
    assert second.ids == (short.id,)

"""Text that any database takes."""

from hypothesis import given
from hypothesis import strategies as st

from batchfleet.jobs.text import MAX_MESSAGE_CHARS, storable


@given(st.text(st.characters(), max_size=200))
def test_whatever_comes_can_be_stored(text: str) -> None:
    stored = storable(text)

    stored.encode()
    assert "\x00" not in stored


@given(st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=200))
def test_good_text_stays_as_it_is(text: str) -> None:
    assert storable(text) == text


def test_a_flood_is_cut() -> None:
    stored = storable("é" * 100_000)

    assert len(stored) == MAX_MESSAGE_CHARS
    assert stored.endswith("(cut)")

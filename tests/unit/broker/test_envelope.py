"""The kombu envelope: read and written without kombu, understood by kombu."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfleet.broker.envelope import EnvelopeWriter, read_envelope
from batchfleet.broker.hint import Hint, InvalidHintError, encode_hint
from batchfleet.jobs.job import LANES, Lane, new_job_id

HINT = Hint("minilm", Lane.BULK, (new_job_id(), new_job_id()))


@given(model=st.text(), lane=st.sampled_from(LANES), jobs=st.integers(0, 32))
def test_what_is_written_is_read(model: str, lane: Lane, jobs: int) -> None:
    hint = Hint(model, lane, tuple(new_job_id() for _ in range(jobs)))

    assert read_envelope(EnvelopeWriter().write(hint)) == hint


def test_every_message_has_its_own_delivery_tag() -> None:
    """A kombu consumer files unacked messages by it: equal tags would overwrite each other."""
    writers = [EnvelopeWriter(), EnvelopeWriter()]
    tags = {json.loads(writer.write(HINT))["properties"]["delivery_tag"] for writer in writers for _ in range(3)}

    assert len(tags) == 6


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"body": 3}',
        b'{"body": "{}", "properties": {}}',
        b'{"body": "%%%", "properties": {"body_encoding": "base64"}}',
        b'{"body": "\xc3\xa9", "properties": {"body_encoding": "base64"}}',
        b'{"body": "{}", "properties": {"body_encoding": "zip"}}',
        json.dumps({"body": encode_hint(HINT).decode().replace('"v":1', '"v":2')}).encode(),
    ],
)
def test_anything_else_is_an_invalid_hint(message: bytes) -> None:
    with pytest.raises(InvalidHintError):
        read_envelope(message)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(message: bytes) -> None:
    with pytest.raises(InvalidHintError):
        read_envelope(message)

"""Every refusal of form in plain words: nothing of msgspec's wording, and the field at fault."""

import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api import bodies
from api.problems import MalformedBodyError
from api.schemas import BulkJobBody
from api.wording import A_TIME, SEVERAL_LINES, SEVERAL_VALUES
from batchfleet.errors import InvalidRequestError

NAME = "must be 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-'"
KEY = "must be 1 to 255 printable ASCII characters"
LANES = "must be one of online, standard, bulk"
BULK = msgspec.json.Decoder(BulkJobBody)


def _refused(decoder: msgspec.json.Decoder[Any], body: bytes) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        bodies.decode(decoder, body)
    return caught.value


@pytest.mark.parametrize(
    ("member", "message"),
    [
        ('"model": 5', "must be a string"),
        ('"model": null', "must be a string"),
        ('"model": ""', NAME),
        ('"model": "a b"', NAME),
        (f'"model": "{"a" * 65}"', NAME),
        ('"version": []', "must be a string"),
        ('"version": "/"', NAME),
        ('"inputs": "text"', "must be a JSON array"),
        ('"inputs": null', "must be a JSON array"),
        ('"parameters": []', "must be a JSON object"),
        ('"metadata": true', "must be a JSON object"),
        ('"lane": "express"', LANES),
        ('"lane": "a` - at `$.model"', LANES),
        ('"lane": 5', LANES),
        ('"on_item_error": "ignore"', "must be one of fail, partial"),
        ('"on_item_error": null', "must be one of fail, partial"),
        ('"run_at": "tomorrow"', A_TIME),
        ('"run_at": "2026-01-01T00:00:00"', A_TIME),
        ('"run_at": "2026-13-01T00:00:00Z"', A_TIME),
        ('"run_at": 1800000000', A_TIME),
        ('"ttl_s": 0', "must be over 0"),
        ('"ttl_s": 1e300', "must be at most 31622400"),
        ('"ttl_s": "5"', "must be a number"),
        ('"ttl_s": 1e999', "the number is out of range"),
        ('"run_timeout_s": -1', "must be over 0"),
        ('"run_timeout_s": 86401', "must be at most 86400"),
        ('"max_attempts": 0', "must be a whole number from 1 to 100"),
        ('"max_attempts": 101', "must be a whole number from 1 to 100"),
        ('"max_attempts": 1.5', "must be a whole number from 1 to 100"),
        ('"max_attempts": true', "must be a number"),
        ('"adapter": 5', "must be a string"),
        ('"idempotency_key": ""', KEY),
        ('"idempotency_key": "\\u00e9"', KEY),
        ('"idempotency_key": 5', "must be a string"),
    ],
)
def test_a_wrong_member_is_told_in_plain_words(member: str, message: str) -> None:
    refused = _refused(BULK, f'{{"model": "m", {member}}}'.encode())

    name = member.split('"')[1]
    assert str(refused) == message
    assert refused.field == name


@pytest.mark.parametrize(
    ("decoder", "body", "message", "field"),
    [
        (bodies.job_decoder, b'{"inputs": []}', "`model` is required", "model"),
        (bodies.lookup_decoder, b"{}", "`ids` is required", "ids"),
        (bodies.job_decoder, b'{"model": "m", "colour": 1}', "there is no member `colour` here", "colour"),
        (bodies.job_decoder, b"[]", "must be a JSON object", None),
        (bodies.lookup_decoder, b'{"ids": ["a", 5]}', "must be a string", "ids[1]"),
        (bodies.lookup_decoder, b'{"ids": 5}', "must be a JSON array", "ids"),
        (bodies.job_decoder, b'{"model": "m", "inputs": [[1e999]]}', "the number is out of range", "inputs[0][0]"),
    ],
)
def test_a_wrong_body_is_told_in_plain_words(
    decoder: msgspec.json.Decoder[Any], body: bytes, message: str, field: str | None
) -> None:
    refused = _refused(decoder, body)

    assert (str(refused), refused.field) == (message, field)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the body is empty"),
        (b" \n", "the body is empty"),
        (b'{"model"', "no valid JSON: it ends too early"),
        (b'{"model": "\xff"}', "the body is not valid UTF-8"),
        (b"{'model': 1}", "no valid JSON at byte 1: object keys must be strings"),
        (b'{"model": "a"} x', "no valid JSON at byte 16: trailing characters"),
        (b'{"model": "a"}{"model": "b"}', SEVERAL_VALUES),
        (b'{"model": "a"}\n{"model": "b"}', SEVERAL_VALUES),
    ],
)
def test_what_is_no_json_is_told_in_plain_words(body: bytes, message: str) -> None:
    refused = _refused(bodies.job_decoder, body)

    assert isinstance(refused, MalformedBodyError)
    assert str(refused) == message


@pytest.mark.parametrize("ndjson", [True, False])
def test_lines_that_were_joined_are_refused_as_a_whole(ndjson: bool) -> None:
    with pytest.raises(MalformedBodyError) as caught:
        bodies.decode_bulk(b'{"model": "a", "inputs": ["x"]} {"model": "b"}\n', ndjson=ndjson, limit=9)

    assert str(caught.value) == SEVERAL_LINES


def test_a_line_that_holds_several_costs_only_itself() -> None:
    good, joined = bodies.decode_bulk(b'{"model": "a"}\n{"model": "a"}{"model": "b"}', ndjson=True, limit=9)

    assert isinstance(good, BulkJobBody)
    assert str(joined) == SEVERAL_LINES


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
_LIBRARY = re.compile(r"Expected|Invalid|Object|`(?:str|int|float|array|object|datetime)\b|regex|null|not of the form")


@given(st.dictionaries(st.sampled_from(BulkJobBody.__struct_fields__), _values, max_size=3))
def test_nothing_of_the_library_is_told(changes: dict[str, Any]) -> None:
    body = {"model": "m", **changes}
    try:
        bodies.decode(BULK, json.dumps(body).encode())
    except MalformedBodyError:  # half a surrogate pair
        return
    except InvalidRequestError as exc:
        assert not _LIBRARY.search(str(exc)), str(exc)  # noqa: PT017 - what else is raised is the failure
        assert exc.field  # noqa: PT017

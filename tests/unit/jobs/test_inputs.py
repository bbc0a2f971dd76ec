"""The inputs of an object: which forms it may have, and how what is wrong is named."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfleet.errors import InvalidRequestError, TooLargeError
from batchfleet.jobs.inputs import Inputs, read_inputs

ITEM_BYTES = 1_000


def read(data: bytes, name: str = "in.json") -> Inputs:
    found = read_inputs(data, name=name, max_item_bytes=ITEM_BYTES)
    assert msgspec.json.decode(found.data) == found.values
    return found


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b'["a", "b"]', "in.json"),
        (b' \r\n["a",\r\n "b"]\n', "in"),
        (b'{"inputs": ["a", "b"]}', "in.json"),
        (b'\xef\xbb\xbf{"inputs": ["a", "b"]}', "x/y"),
        (b'\xef\xbb\xbf["a", "b"]', "in.json"),
        (b'"a"\n"b"\n', "in.jsonl"),
        (b'\xef\xbb\xbf"a"\r\n\r\n"b"', "IN.NDJSON"),
        (b'\n"a"\n   \n"b"\n\n', "in.json"),
    ],
)
def test_all_forms_hold_the_same_inputs(data: bytes, name: str) -> None:
    assert read(data, name).values == ["a", "b"]


def test_lines_of_objects_are_inputs_each() -> None:
    assert read(b'{"text": "a"}\n{"text": "b"}').values == [{"text": "a"}, {"text": "b"}]
    assert read(b'{"text": "a"}\n', "in.jsonl").values == [{"text": "a"}]
    assert read(b'["a", "b"]\n', "in.jsonl").values == [["a", "b"]]


@pytest.mark.parametrize(
    ("data", "name", "field", "says"),
    [
        (b"", "in.json", "inputs", "the object is empty"),
        (b" \n", "in.jsonl", "inputs", "the object is empty"),
        (b"\x1f\x8b\x08\x00", "in.json.gz", "inputs", "looks like gzip"),
        (b'["\\ud800"]', "in.json", "inputs", r"\\ud800… is half of a character"),
        (b'"a"\n"\\udc00 "', "in.jsonl", "inputs[1]", "half of a character"),
        (b'["\\ud83d\\ude00"', "in.json", "inputs", "truncated"),
        (b"[]", "in.json", "inputs", "at least one input"),
        (b'{"inputs": []}', "in.json", "inputs", "at least one input"),
        (b'{"inputs": "a"}', "in.json", "inputs", "must be an array"),
        (b'{"inputs": ["a"], "model": "m"}', "in.json", "model", "no member"),
        (b'{"text": "a"}', "in.json", "inputs", "one input a line"),
        (b'"a"', "in.json", "inputs", "must be a JSON array"),
        (b'["a",\n"b"', "in.json", "inputs", "is not JSON"),
        (b'"a"\n"b\n"c"', "in.json", "inputs[1]", "not JSON"),
        (b'"a"\n\n{"text": }', "in.jsonl", "inputs[1]", "not JSON"),
        (b'["a", "\\u0000"]', "in.json", "inputs[1]", "NUL"),
        (b'["a", {"text": "x\\u0000"}]', "in.json", "inputs[1].text", "NUL"),
        (b'["\xff"]', "in.json", "inputs", "is not JSON"),
        (b"\xff\xfe[\x00]\x00", "in.json", "inputs", "UTF-8"),
        (b"[" * 100_000, "in.json", "inputs", "nested too deeply"),
        (b'["a"]\n["b"', "in.jsonl", "inputs[1]", "not JSON"),
    ],
)
def test_what_is_wrong_is_named(data: bytes, name: str, field: str, says: str) -> None:
    with pytest.raises(InvalidRequestError, match=says) as caught:
        read(data, name)

    assert caught.value.field == field


def test_an_escaped_backslash_before_u0000_is_no_nul() -> None:
    assert read(b'["\\\\u0000"]').values == ["\\u0000"]


@pytest.mark.parametrize("name", ["in.json", "in.jsonl"])
def test_more_inputs_than_a_job_takes_are_refused(name: str) -> None:
    def data(count: int) -> bytes:
        lines = [b'"a"'] * count
        return b"\n".join(lines) if name == "in.jsonl" else b"[" + b",".join(lines) + b"]"

    assert len(read(data(1_024), name).values) == 1_024
    with pytest.raises(TooLargeError) as caught:
        read(data(1_025), name)

    assert caught.value.field == "inputs"


def test_an_input_over_the_limit_is_named() -> None:
    data = json.dumps(["a" * 998, "b" * 999]).encode()
    with pytest.raises(TooLargeError) as caught:
        read(data)

    assert caught.value.field == "inputs[1]"


@given(st.binary(max_size=200), st.sampled_from(["a.json", "a.jsonl"]))
def test_any_bytes_are_inputs_or_a_named_refusal(data: bytes, name: str) -> None:
    refused = None
    try:
        read(data, name)
    except InvalidRequestError as error:
        refused = error

    assert refused is None or refused.field


TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
VALUES = st.one_of(TEXTS, st.integers(-(2**53), 2**53), st.dictionaries(TEXTS, TEXTS, max_size=3))


@given(st.lists(VALUES, min_size=1))
def test_what_json_holds_comes_back_in_every_form(values: list[object]) -> None:
    lines = b"\r\n".join(msgspec.json.encode(value) for value in values)

    assert read(msgspec.json.encode(values)).values == values
    assert read(msgspec.json.encode({"inputs": values})).values == values
    assert read(lines, "x.jsonl").values == values

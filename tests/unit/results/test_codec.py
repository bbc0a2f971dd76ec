"""Results: what was computed comes back, bit by bit, in every form."""

import io
import json
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from batchfleet.errors import InvalidRequestError
from batchfleet.jobs.job import JobError
from batchfleet.results import codec
from batchfleet.results.layout import CorruptResultError

DTYPES = ("<f2", "<f4", "<f8", "<i4", "<i8", "|i1", "|u1", "|b1")
shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)
alike = st.tuples(st.sampled_from(DTYPES), shapes).flatmap(
    lambda kind: st.lists(hnp.arrays(kind[0], kind[1]), min_size=1, max_size=6)
)
ragged = st.lists(st.sampled_from(DTYPES).flatmap(lambda dtype: hnp.arrays(dtype, shapes)), min_size=1, max_size=6)
rows_of_any_kind = st.one_of(alike, ragged)
json_values = st.recursive(
    st.booleans() | st.integers(-(2**53), 2**53) | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def faulted(rows: list[Any], missing: set[int]) -> tuple[list[Any], list[JobError]]:
    """Takes some rows away, each with the fault that names it."""
    present = [None if index in missing else row for index, row in enumerate(rows)]
    return present, [
        JobError("too_long", f"item {index}", index) for index in sorted(missing, reverse=True) if index < len(rows)
    ]


def same(left: Any, right: Any) -> bool:
    """Equal in dtype, shape and every bit."""
    if left is None or right is None:
        return left is right
    return bool(left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes())


@given(rows_of_any_kind, st.sets(st.integers(0, 5)))
def test_tensors_come_back_bit_by_bit(rows: list[Any], missing: set[int]) -> None:
    present, faults = faulted(rows, missing)

    decoded = codec.decode(*codec.encode_tensors(present, faults))

    assert all(same(left, right) for left, right in zip(decoded.values, present, strict=True))
    assert decoded.errors == tuple(reversed(faults))


@given(rows_of_any_kind, st.sets(st.integers(0, 5)))
def test_json_gives_back_every_value(rows: list[Any], missing: set[int]) -> None:
    """The shortest digits of a float are read back as the same float; what is no number is null."""
    present, faults = faulted(rows, missing)

    answer = json.loads(codec.to_json(*codec.encode_tensors(present, faults)))

    assert len(answer["values"]) == len(rows)
    assert ("errors" in answer) == bool(faults)
    for row, value in zip(present, answer["values"], strict=True):
        if row is None:
            assert value is None
        else:
            finite = np.isfinite(row)
            back = np.array(value, dtype=object)
            assert back.shape == row.shape or row.size == 0
            assert [v is not None for v in back.flat] == list(finite.flat)
            assert all(row.dtype.type(v) == w for v, w in zip(back.flat, row.flat, strict=True) if v is not None)


@given(alike)
def test_npy_is_one_array(rows: list[Any]) -> None:
    array = np.load(io.BytesIO(codec.to_npy(*codec.encode_tensors(rows))), allow_pickle=False)

    assert same(array, np.stack(rows))


@given(rows_of_any_kind, st.sets(st.integers(0, 5)))
def test_msgpack_gives_back_every_bit(rows: list[Any], missing: set[int]) -> None:
    present, faults = faulted(rows, missing)

    answer = msgspec.msgpack.decode(codec.to_msgpack(*codec.encode_tensors(present, faults)))

    packed = answer["values"]
    if isinstance(packed, dict):
        values = list(np.ndarray(tuple(packed["shape"]), packed["dtype"], packed["data"]))
    else:
        values = [each and np.ndarray(tuple(each["shape"]), each["dtype"], each["data"]) for each in packed]
    assert all(same(_array(left), right) for left, right in zip(values, present, strict=True))
    assert [error["index"] for error in answer.get("errors", [])] == sorted(missing & set(range(len(rows))))


def _array(value: Any) -> Any:
    return value if value is None else np.asarray(value)


@given(st.lists(json_values, max_size=6), st.sets(st.integers(0, 5)))
def test_json_values_come_back(rows: list[Any], missing: set[int]) -> None:
    present, faults = faulted(rows, missing)
    encoded = codec.encode_values(present, faults)

    assert list(codec.decode(*encoded).values) == present
    assert json.loads(codec.to_json(*encoded))["values"] == present
    assert msgspec.msgpack.decode(codec.to_msgpack(*encoded))["values"] == present


def test_numpy_scalars_inside_values_are_numbers() -> None:
    encoded = codec.encode_values([{"label": "a", "score": np.float32(0.1)}])

    assert codec.to_json(*encoded) == b'{"values":[{"label":"a","score":0.1}]}'


def test_floats_have_the_digits_of_their_own_precision() -> None:
    assert codec.to_json(*codec.encode_tensors([np.array([0.1, 3], "<f4")])) == b'{"values":[[0.1,3.0]]}'


def test_the_shape_of_a_partial_answer() -> None:
    encoded = codec.encode_tensors([np.array([1], "<f4"), None], [JobError("too_long", "cut it", 1)])

    assert json.loads(codec.to_json(*encoded)) == {
        "values": [[1.0], None],
        "errors": [{"index": 1, "code": "too_long", "message": "cut it"}],
    }


def test_arrays_of_another_byte_order_or_layout_are_stored_alike() -> None:
    array = np.arange(12, dtype="<f4").reshape(3, 4)
    encoded = codec.encode_tensors([array])

    assert codec.encode_tensors([array.astype(">f4")]) == encoded
    assert codec.encode_tensors([np.asfortranarray(array)]) == encoded


@pytest.mark.parametrize(
    ("rows", "faults"),
    [
        ([None], []),
        ([np.zeros(2)], [JobError("x", "", 0)]),
        ([None, np.zeros(2)], [JobError("x", "", 1)]),
        ([None], [JobError("x", "", 0), JobError("y", "", 0)]),
        ([None], [JobError("x", "")]),
    ],
)
def test_faults_name_exactly_the_missing_rows(rows: list[Any], faults: list[JobError]) -> None:
    with pytest.raises(ValueError, match="exactly one fault"):
        codec.encode_tensors(rows, faults)
    with pytest.raises(ValueError, match="exactly one fault"):
        codec.encode_values(rows, faults)


@pytest.mark.parametrize("array", [np.array([1j]), np.array(["a"]), np.array([None]), np.zeros(1, "<M8[s]")])
def test_elements_that_are_no_numbers_are_refused(array: Any) -> None:
    with pytest.raises(ValueError, match="elements"):
        codec.encode_tensors([array])


@pytest.mark.parametrize(
    "encoded",
    [
        codec.encode_tensors([np.zeros(2), None], [JobError("x", "", 1)]),
        codec.encode_tensors([np.zeros(2), np.zeros(3)]),
        codec.encode_values(["text"]),
        codec.encode_tensors([]),
    ],
    ids=["partial", "ragged", "values", "empty"],
)
def test_what_is_not_one_array_is_refused_as_one(encoded: tuple[str, bytes]) -> None:
    with pytest.raises(codec.NotRepresentableError) as caught:
        codec.to_npy(*encoded)
    assert isinstance(caught.value, InvalidRequestError)


@pytest.mark.parametrize("read", [codec.decode, codec.to_json, codec.to_npy, codec.to_msgpack])
@pytest.mark.parametrize(
    ("result_format", "data"),
    [
        ("", b""),
        ("{}", b""),
        ('{"n":1,"row":["<f4",[2]]}', b"1234567"),
        ('{"n":2,"row":["<f4",[2]]}', b"12345678"),
        ('{"n":1,"row":["|O",[2]]}', b"12345678"),
        ('{"n":1,"row":["<f4",[-2]]}', b""),
    ],
)
def test_bytes_that_do_not_fit_are_found(read: Any, result_format: str, data: bytes) -> None:
    with pytest.raises(CorruptResultError):
        read(result_format, data)


def test_ragged_bytes_that_do_not_fit_are_found() -> None:
    result_format, data = codec.encode_tensors([np.zeros(2), np.zeros(3)])
    for wrong in (data[:-1], data + b"x"):
        with pytest.raises(CorruptResultError):
            codec.to_json(result_format, wrong)
    with pytest.raises(CorruptResultError):
        codec.decode('{"n":3,"rows":[["<f8",[2]],["<f8",[3]]]}', data)


def test_no_rows_are_a_result_too() -> None:
    assert codec.to_json(*codec.encode_tensors([])) == b'{"values":[]}'
    assert codec.to_json(*codec.encode_tensors([None], [JobError("x", "y", 0)])) == (
        b'{"values":[null],"errors":[{"index":0,"code":"x","message":"y"}]}'
    )

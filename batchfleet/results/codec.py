"""Results as they are stored, and as clients get them. Pure.

Stored is a short JSON description (the *format*) and one block of bytes. Rows of like dtype and shape are stacked
into one little-endian block; rows that differ each keep their own dtype and shape; what is no tensor (labels,
texts) is kept as JSON. Rows without a value are those that an item error names.
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import orjson

from batchfleet.errors import InvalidRequestError
from batchfleet.jobs.job import JobError

Tensor: TypeAlias = npt.NDArray[Any]

DTYPES: Final = frozenset({"<f2", "<f4", "<f8", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "|b1"})
"""Element types that a result may have, as NumPy writes them."""

_ORJSON: Final = orjson.OPT_SERIALIZE_NUMPY


class CorruptResultError(ValueError):
    """The stored bytes are not what their format says."""


class NotRepresentableError(InvalidRequestError):
    """The result cannot be given in the form asked for (a partial or ragged one as a single array)."""

    code: ClassVar[str] = "not_representable"


class _Row(msgspec.Struct, frozen=True, array_like=True):
    """Dtype and shape of one row."""

    dtype: str
    shape: tuple[int, ...]


class _Fault(msgspec.Struct, frozen=True):
    """An item without a value, as stored and as shown."""

    index: int
    code: str
    message: str


class _Format(msgspec.Struct, frozen=True, omit_defaults=True):
    """The description stored beside the bytes.

    Attributes:
        n: Rows in all, those without a value included.
        row: Dtype and shape of every row, where they are alike.
        rows: Dtype and shape of each present row, where they differ.
        json: Whether the bytes are a JSON array of the present rows.
        faults: The rows without a value, in order.
    """

    n: int
    row: _Row | None = None
    rows: tuple[_Row, ...] = ()
    json: bool = False
    faults: tuple[_Fault, ...] = ()


_formats = msgspec.json.Decoder(_Format)
_bodies = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(frozen=True, slots=True)
class DecodedResult:
    """A result in memory: one value per item, None where `errors` says why there is none."""

    values: tuple[Any, ...]
    errors: tuple[JobError, ...] = ()


def encode_tensors(rows: Sequence[Tensor | None], faults: Sequence[JobError] = ()) -> tuple[str, bytes]:
    """Returns format and bytes of one array per item.

    Args:
        rows: In the order of the job's inputs; None where a fault names the item.
        faults: Item errors, each with its `item`.

    Raises:
        ValueError: If faults and missing rows differ, or a dtype is not one of `DTYPES`.
    """
    errors = _check_faults(rows, faults)
    arrays = [_little_endian(row) for row in rows if row is not None]
    kinds = [_Row(array.dtype.str, array.shape) for array in arrays]
    alike = not kinds or kinds.count(kinds[0]) == len(kinds)
    described = _Format(
        n=len(rows),
        row=kinds[0] if alike and kinds else None,
        rows=() if alike else tuple(kinds),
        faults=errors,
    )
    return msgspec.json.encode(described).decode(), b"".join([array.tobytes() for array in arrays])


def encode_values(rows: Sequence[object], faults: Sequence[JobError] = ()) -> tuple[str, bytes]:
    """Returns format and bytes of one JSON value per item (labels, texts, spans).

    Args:
        rows: In the order of the job's inputs; None where, and only where, a fault names the item. NumPy scalars
            and arrays may lie inside.
        faults: Item errors, each with its `item`.

    Raises:
        ValueError: If faults and missing rows differ.
        TypeError: If a value has no JSON form.
    """
    errors = _check_faults(rows, faults)
    described = _Format(n=len(rows), json=True, faults=errors)
    return msgspec.json.encode(described).decode(), orjson.dumps(
        [row for row in rows if row is not None], option=_ORJSON
    )


def decode(result_format: str, data: bytes) -> DecodedResult:
    """Returns the values as arrays (read-only views of `data`) or as JSON values.

    Raises:
        CorruptResultError: If format and bytes do not fit.
    """
    described = _read_format(result_format)
    present: Sequence[Any] = orjson.loads(data) if described.json else _tensors(described, data)
    errors = tuple(JobError(fault.code, fault.message, fault.index) for fault in described.faults)
    return DecodedResult(tuple(_spread(described, present)), errors)


def to_json(result_format: str, data: bytes) -> bytes:
    """Returns `{"values": [[…], null, …], "errors": […]}`, floats in the fewest digits that give them back.

    `errors` (`index`, `code`, `message`) is there only if an item has no value.

    Raises:
        CorruptResultError: If format and bytes do not fit.
    """
    described = _read_format(result_format)
    if described.json:
        return _json_of_json(described, data)
    if described.row is not None and not described.faults:
        return orjson.dumps({"values": _stack(described, described.row, data)}, option=_ORJSON)
    values = [_plain(row) for row in _spread(described, _tensors(described, data))]
    answer: dict[str, object] = {"values": values}
    if described.faults:
        answer["errors"] = msgspec.to_builtins(described.faults)
    return orjson.dumps(answer, option=_ORJSON)


def to_npy(result_format: str, data: bytes) -> bytes:
    """Returns one array, items first, as `application/x-npy`.

    Raises:
        NotRepresentableError: If an item has no value, shapes or dtypes differ, or the values are no tensors.
        CorruptResultError: If format and bytes do not fit.
    """
    described = _read_format(result_format)
    if described.faults:
        raise NotRepresentableError("some items have no value: ask for JSON or msgpack")
    if described.row is None:
        raise NotRepresentableError("the items are not arrays of one shape and type: ask for JSON or msgpack")
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, _stack(described, described.row, data), allow_pickle=False)
    return buffer.getvalue()


def to_msgpack(result_format: str, data: bytes) -> bytes:
    """Returns `{"values": …, "errors": […]?}` as msgpack.

    `values` is one `{dtype, shape, data}` with the items stacked where all are there and alike, else a list of
    such maps, or nil, by item; values that are no tensors are a plain list. `data` is little-endian binary.

    Raises:
        CorruptResultError: If format and bytes do not fit.
    """
    described = _read_format(result_format)
    values: object
    if described.json:
        values = list(_spread(described, orjson.loads(data)))
    elif described.row is not None and not described.faults:
        values = _packed(_stack(described, described.row, data))
    else:
        values = [None if row is None else _packed(row) for row in _spread(described, _tensors(described, data))]
    answer: dict[str, object] = {"values": values}
    if described.faults:
        answer["errors"] = described.faults
    return msgspec.msgpack.encode(answer)


def _check_faults(rows: Sequence[object], faults: Sequence[JobError]) -> tuple[_Fault, ...]:
    named = {fault.item for fault in faults}
    if len(named) != len(faults) or named != {index for index, row in enumerate(rows) if row is None}:
        raise ValueError("each missing row needs exactly one fault that names it, and no other row has one")
    ordered = sorted((fault.item or 0, fault.code, fault.message) for fault in faults)
    return tuple(_Fault(*fault) for fault in ordered)


def _little_endian(row: Tensor) -> Tensor:
    array = np.asarray(row)
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    if little.dtype.str not in DTYPES:
        raise ValueError(f"a result cannot have elements of type {array.dtype}")
    return little


def _read_format(text: str) -> _Format:
    try:
        return _formats.decode(text)
    except msgspec.MsgspecError as error:
        raise CorruptResultError(f"unreadable format: {error}") from error


def _stack(described: _Format, row: _Row, data: bytes) -> Tensor:
    """Returns the present rows as one array."""
    return _view(data, 0, len(data), row.dtype, (described.n - len(described.faults), *row.shape))


def _tensors(described: _Format, data: bytes) -> list[Tensor]:
    """Returns the present rows one by one."""
    present = described.n - len(described.faults)
    rows = described.rows if described.row is None else (described.row,) * present
    if len(rows) != present:
        raise CorruptResultError(f"{present} rows, but {len(rows)} shapes")
    tensors, start = [], 0
    for row in rows:
        end = start + _size(row.dtype, row.shape)
        tensors.append(_view(data, start, end, row.dtype, row.shape))
        start = end
    if start != len(data):
        raise CorruptResultError(f"{len(data)} bytes, but the rows take {start}")
    return tensors


def _size(dtype: str, shape: tuple[int, ...]) -> int:
    if dtype not in DTYPES or min(shape, default=0) < 0:
        raise CorruptResultError(f"no such rows: {dtype} {shape}")
    count = 1
    for length in shape:
        count *= length
    return count * int(dtype[2:])


def _view(data: bytes, start: int, end: int, dtype: str, shape: tuple[int, ...]) -> Tensor:
    if end - start != _size(dtype, shape) or end > len(data):
        raise CorruptResultError(f"{len(data)} bytes do not hold {dtype} {shape}")
    return np.ndarray(shape, dtype, data, start)


def _spread(described: _Format, present: Sequence[Any]) -> Iterator[Any]:
    """Yields the present values in the order of the inputs, None where an item has none."""
    if len(present) != described.n - len(described.faults):
        raise CorruptResultError(f"{len(present)} values for {described.n} items")
    missing = {fault.index for fault in described.faults}
    values = iter(present)
    for index in range(described.n):
        yield None if index in missing else next(values)


def _plain(row: Tensor | None) -> object:
    """Returns what orjson can write: it knows NumPy's scalars and arrays, but not arrays without dimensions."""
    return row[()] if row is not None and row.ndim == 0 else row


def _json_of_json(described: _Format, data: bytes) -> bytes:
    """The stored text is passed through without being parsed into values."""
    if not described.faults:
        return b'{"values":' + data + b"}"
    rows = [row if row is not None else msgspec.Raw(b"null") for row in _spread(described, _bodies.decode(data))]
    return msgspec.json.encode({"values": rows, "errors": described.faults})


def _packed(array: Tensor) -> dict[str, object]:
    return {"dtype": array.dtype.name, "shape": array.shape, "data": array.tobytes()}

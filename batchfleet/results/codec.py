"""Results as they are stored, and as clients get them. Pure.

Stored is a short JSON description (the *format*) and one block of bytes. Rows of like dtype and shape are stacked
into one little-endian block; rows that differ each keep their own dtype and shape; what is no tensor (labels,
texts) is kept as JSON. Rows without a value are those that an item error names.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import msgspec
import numpy as np
import orjson

from batchfleet.errors import InvalidRequestError
from batchfleet.jobs.job import JobError
from batchfleet.results.layout import (
    DTYPES,
    Fault,
    Format,
    Row,
    Tensor,
    npy_head,
    read_format,
    spread,
    stack,
    tensors,
)

_ORJSON: Final = orjson.OPT_SERIALIZE_NUMPY


class NotRepresentableError(InvalidRequestError):
    """The result cannot be given in the form asked for (a partial or ragged one as a single array)."""

    code: ClassVar[str] = "not_representable"


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
    kinds = [Row(array.dtype.str, array.shape) for array in arrays]
    alike = not kinds or kinds.count(kinds[0]) == len(kinds)
    described = Format(
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
    described = Format(n=len(rows), json=True, faults=errors)
    return msgspec.json.encode(described).decode(), orjson.dumps(
        [row for row in rows if row is not None], option=_ORJSON
    )


def as_blob(result_format: str, data: bytes) -> tuple[str, bytes]:
    """Returns format and bytes as they go into the blob store: one array becomes an `.npy` file there.

    Whoever asks for that form can then be sent to the blob itself.
    """
    described = read_format(result_format)
    if described.whole is None or described.head:
        return result_format, data
    head = npy_head(described.whole)
    return msgspec.json.encode(msgspec.structs.replace(described, head=len(head))).decode(), head + data


def is_npy(result_format: str) -> bool:
    """Returns whether the stored bytes are an `.npy` file as they are."""
    return read_format(result_format).head > 0


def decode(result_format: str, data: bytes) -> DecodedResult:
    """Returns the values as arrays (read-only views of `data`) or as JSON values.

    Raises:
        CorruptResultError: If format and bytes do not fit.
    """
    described = read_format(result_format)
    present: Sequence[Any] = orjson.loads(data) if described.json else tensors(described, data)
    errors = tuple(JobError(fault.code, fault.message, fault.index) for fault in described.faults)
    return DecodedResult(tuple(spread(described, present)), errors)


def to_json(result_format: str, data: bytes) -> bytes:
    """Returns `{"values": [[…], null, …], "errors": […]}`, floats in the fewest digits that give them back.

    `errors` (`index`, `code`, `message`) is there only if an item has no value.

    Raises:
        CorruptResultError: If format and bytes do not fit.
    """
    described = read_format(result_format)
    if described.json:
        return _json_of_json(described, data)
    if described.whole is not None:
        return orjson.dumps({"values": stack(described, described.whole, data)}, option=_ORJSON)
    values = [plain(row) for row in spread(described, tensors(described, data))]
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
    described = read_format(result_format)
    whole = whole_of(described)
    stack(described, whole, data)
    return data if described.head else npy_head(whole) + data


def to_msgpack(result_format: str, data: bytes) -> bytes:
    """Returns `{"values": …, "errors": […]?}` as msgpack.

    `values` is one `{dtype, shape, data}` with the items stacked where all are there and alike, else a list of
    such maps, or nil, by item; values that are no tensors are a plain list. `data` is little-endian binary.

    Raises:
        CorruptResultError: If format and bytes do not fit.
    """
    described = read_format(result_format)
    values: object
    if described.json:
        values = list(spread(described, orjson.loads(data)))
    elif described.whole is not None:
        values = _packed(stack(described, described.whole, data))
    else:
        values = [None if row is None else _packed(row) for row in spread(described, tensors(described, data))]
    answer: dict[str, object] = {"values": values}
    if described.faults:
        answer["errors"] = described.faults
    return msgspec.msgpack.encode(answer)


def packed(row: Row, data: bytes) -> dict[str, object]:
    """Returns an array as msgpack has it."""
    return {"dtype": np.dtype(row.dtype).name, "shape": row.shape, "data": data}


def whole_of(described: Format) -> Row:
    """Returns dtype and shape of all rows as one array.

    Raises:
        NotRepresentableError: If they are none.
    """
    if described.faults:
        raise NotRepresentableError("some items have no value: ask for JSON or msgpack")
    if described.whole is None:
        raise NotRepresentableError("the items are not arrays of one shape and type: ask for JSON or msgpack")
    return described.whole


def _check_faults(rows: Sequence[object], faults: Sequence[JobError]) -> tuple[Fault, ...]:
    named = {fault.item for fault in faults}
    if len(named) != len(faults) or named != {index for index, row in enumerate(rows) if row is None}:
        raise ValueError("each missing row needs exactly one fault that names it, and no other row has one")
    ordered = sorted((fault.item or 0, fault.code, fault.message) for fault in faults)
    return tuple(Fault(*fault) for fault in ordered)


def _little_endian(row: Tensor) -> Tensor:
    array = np.asarray(row)
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    if little.dtype.str not in DTYPES:
        raise ValueError(f"a result cannot have elements of type {array.dtype}")
    return little


def plain(row: Tensor | None) -> object:
    """Returns what orjson can write: it knows NumPy's scalars and arrays, but not arrays without dimensions."""
    return row[()] if row is not None and row.ndim == 0 else row


def _json_of_json(described: Format, data: bytes) -> bytes:
    """The stored text is passed through without being parsed into values."""
    if not described.faults:
        return b'{"values":' + data + b"}"
    rows = [row if row is not None else msgspec.Raw(b"null") for row in spread(described, _bodies.decode(data))]
    return msgspec.json.encode({"values": rows, "errors": described.faults})


def _packed(array: Tensor) -> dict[str, object]:
    return packed(Row(array.dtype.str, array.shape), array.tobytes())

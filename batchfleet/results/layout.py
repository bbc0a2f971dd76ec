"""How the bytes of a stored result are laid out: the *format* beside them, taken apart and applied. Pure."""

import io
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

Tensor: TypeAlias = npt.NDArray[Any]

DTYPES: Final = frozenset({"<f2", "<f4", "<f8", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "|b1"})
"""Element types that a result may have, as NumPy writes them."""


class CorruptResultError(ValueError):
    """The stored bytes are not what their format says."""


class Row(msgspec.Struct, frozen=True, array_like=True):
    """Dtype and shape of one row."""

    dtype: str
    shape: tuple[int, ...]


class Fault(msgspec.Struct, frozen=True):
    """An item without a value, as stored and as shown."""

    index: int
    code: str
    message: str


class Format(msgspec.Struct, frozen=True, omit_defaults=True):
    """The description stored beside the bytes.

    Attributes:
        n: Rows in all, those without a value included.
        row: Dtype and shape of every row, where they are alike.
        rows: Dtype and shape of each present row, where they differ.
        json: Whether the bytes are a JSON array of the present rows.
        faults: The rows without a value, in order.
        head: Bytes of a NumPy header before the rows: the whole is then an `.npy` file.
    """

    n: int
    row: Row | None = None
    rows: tuple[Row, ...] = ()
    json: bool = False
    faults: tuple[Fault, ...] = ()
    head: int = 0

    @property
    def present(self) -> int:
        """Rows that have a value."""
        return self.n - len(self.faults)

    @property
    def whole(self) -> Row | None:
        """Dtype and shape of all rows together where they are one array: all there, and alike."""
        return None if self.row is None or self.faults else Row(self.row.dtype, (self.n, *self.row.shape))


_formats = msgspec.json.Decoder(Format)


def read_format(text: str) -> Format:
    """Reads a format.

    Raises:
        CorruptResultError: If it is none.
    """
    try:
        return _formats.decode(text)
    except msgspec.MsgspecError as error:
        raise CorruptResultError(f"unreadable format: {error}") from error


def npy_head(whole: Row) -> bytes:
    """Returns what precedes the bytes of an array in an `.npy` file."""
    buffer = io.BytesIO()
    described = {"descr": whole.dtype, "fortran_order": False, "shape": whole.shape}
    np.lib.format.write_array_header_1_0(buffer, described)
    return buffer.getvalue()


def size_of(row: Row) -> int:
    """Returns how many bytes a row takes.

    Raises:
        CorruptResultError: If there can be no such row.
    """
    if row.dtype not in DTYPES or min(row.shape, default=0) < 0:
        raise CorruptResultError(f"no such rows: {row.dtype} {row.shape}")
    count = 1
    for length in row.shape:
        count *= length
    return count * int(row.dtype[2:])


def stack(described: Format, whole: Row, data: bytes) -> Tensor:
    """Returns all rows as one array, a view of the data.

    Raises:
        CorruptResultError: If format and bytes do not fit.
    """
    return _view(data, described.head, len(data), whole)


def tensors(described: Format, data: bytes) -> list[Tensor]:
    """Returns the present rows one by one, views of the data.

    Raises:
        CorruptResultError: If format and bytes do not fit.
    """
    rows = described.rows if described.row is None else (described.row,) * described.present
    if len(rows) != described.present:
        raise CorruptResultError(f"{described.present} rows, but {len(rows)} shapes")
    found, start = [], described.head
    for row in rows:
        end = start + size_of(row)
        found.append(_view(data, start, end, row))
        start = end
    if start != len(data):
        raise CorruptResultError(f"{len(data)} bytes, but the rows take {start}")
    return found


def spread(described: Format, present: Sequence[Any]) -> Iterator[Any]:
    """Yields the present values in the order of the inputs, None where an item has none.

    Raises:
        CorruptResultError: If there are more or fewer of them.
    """
    if len(present) != described.present:
        raise CorruptResultError(f"{len(present)} values for {described.n} items")
    missing = {fault.index for fault in described.faults}
    values = iter(present)
    for index in range(described.n):
        yield None if index in missing else next(values)


def _view(data: bytes, start: int, end: int, row: Row) -> Tensor:
    if end - start != size_of(row) or end > len(data):
        raise CorruptResultError(f"{len(data)} bytes do not hold {row.dtype} {row.shape}")
    return np.ndarray(row.shape, row.dtype, data, start)

"""Large results, converted piece by piece: beside the stored bytes no second copy of them is in memory. Pure.

Everything is checked before the first piece, so that nothing can go wrong in the middle of an answer. The pieces
together are what `codec` makes in one go.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import msgspec
import orjson

from batchfleet.results import codec
from batchfleet.results.layout import Format, Row, Tensor, npy_head, read_format, spread, stack, tensors

Pieces: TypeAlias = Iterator[bytes | memoryview]

PIECE_BYTES: Final = 256 * 1024
"""Size of the stored bytes behind one piece, about."""

_ORJSON: Final = orjson.OPT_SERIALIZE_NUMPY


def json_pieces(result_format: str, data: bytes) -> Pieces:
    """Returns what `codec.to_json` does; raises as it does."""
    described = read_format(result_format)
    if described.json:
        return iter((codec.to_json(result_format, data),))
    if described.whole is not None:
        return _json_of_rows(described, stack(described, described.whole, data))
    return _json_of_rows(described, [codec.plain(row) for row in spread(described, tensors(described, data))])


def npy_pieces(result_format: str, data: bytes) -> Pieces:
    """Returns what `codec.to_npy` does; raises as it does."""
    described = read_format(result_format)
    whole = codec.whole_of(described)
    stack(described, whole, data)
    return _cut(b"" if described.head else npy_head(whole), memoryview(data))


def msgpack_pieces(result_format: str, data: bytes) -> Pieces:
    """Returns what `codec.to_msgpack` does; raises as it does."""
    described = read_format(result_format)
    if described.whole is None:
        return iter((codec.to_msgpack(result_format, data),))
    stack(described, described.whole, data)
    return _cut(_msgpack_head(described.whole, len(data) - described.head), memoryview(data)[described.head :])


FORMS: Final[dict[str, Callable[[str, bytes], Pieces]]] = {
    "application/json": json_pieces,
    "application/x-npy": npy_pieces,
    "application/msgpack": msgpack_pieces,
    "application/x-msgpack": msgpack_pieces,
}
"""How a result is given in a media type, our favourite first."""


def _json_of_rows(described: Format, rows: Tensor | Sequence[Any]) -> Pieces:
    """Yields groups of rows, each written as an array whose brackets are taken off."""
    largest = max((row.nbytes for row in rows if row is not None), default=0)
    step = max(1, PIECE_BYTES // max(1, largest))
    before = b'{"values":['
    for start in range(0, len(rows), step):
        yield before + orjson.dumps(rows[start : start + step], option=_ORJSON)[1:-1]
        before = b","
    errors = b',"errors":' + msgspec.json.encode(described.faults) if described.faults else b""
    yield (b"" if len(rows) else before) + b"]" + errors + b"}"


def _cut(head: bytes, body: memoryview) -> Pieces:
    if head:
        yield head
    for start in range(0, len(body), PIECE_BYTES):
        yield body[start : start + PIECE_BYTES]


def _msgpack_head(whole: Row, size: int) -> bytes:
    """Returns everything before the binary, which comes last: what is written for an empty one, with the size."""
    empty = msgspec.msgpack.encode({"values": codec.packed(whole, b"")})
    return empty.removesuffix(b"\xc4\x00") + _bin_head(size)


def _bin_head(size: int) -> bytes:
    if size < 2**8:
        return b"\xc4" + size.to_bytes(1, "big")
    if size < 2**16:
        return b"\xc5" + size.to_bytes(2, "big")
    return b"\xc6" + size.to_bytes(4, "big")

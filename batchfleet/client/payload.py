"""Results as they arrive → arrays and values. Which form it is, the answer's own content type says."""

import io
from typing import Any, Final, Literal, TypeAlias

import httpx
import msgspec
import numpy as np
from numpy.typing import NDArray

from batchfleet.client.errors import ConnectionFailedError
from batchfleet.client.transport import no_fleet
from batchfleet.client.values import ItemError, ItemResults

ResultForm: TypeAlias = Literal["json", "npy", "msgpack"]
CONTENT_TYPES: Final[dict[ResultForm, str]] = {
    "json": "application/json",
    "npy": "application/x-npy",
    "msgpack": "application/msgpack",
}


class _Result(msgspec.Struct, frozen=True):
    values: Any
    errors: list[ItemError] = []


_decoder = msgspec.msgpack.Decoder(_Result)


def to_array(response: httpx.Response) -> NDArray[Any]:
    """Reads `application/x-npy`.

    Raises:
        ConnectionFailedError: If it is something else: another program listens there.
    """
    try:
        array: NDArray[Any] = np.load(io.BytesIO(response.content), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise no_fleet(response, error) from error
    return array


def to_items(response: httpx.Response) -> ItemResults:
    """Reads `application/msgpack`.

    Raises:
        ConnectionFailedError: If it is something else: another program listens there.
    """
    try:
        result = _decoder.decode(response.content)
        values = result.values
        listed = list(_unpacked(values)) if _is_packed(values) else [_unpacked(value) for value in values]
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        raise no_fleet(response, error) from error
    return ItemResults(listed, result.errors)


def _is_packed(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"dtype", "shape", "data"}


def _unpacked(value: Any) -> Any:
    """Returns an array for `{dtype, shape, data}` (writable: it is the caller's), any other value as it is."""
    if not _is_packed(value):
        return value
    dtype = np.dtype(value["dtype"]).newbyteorder("<")
    return np.frombuffer(value["data"], dtype).reshape(value["shape"]).copy()


def described(data: bytes, form: ResultForm) -> dict[str, Any]:
    """Returns shape and dtype of a downloaded NumPy file; nothing for other forms.

    Raises:
        ConnectionFailedError: If it is no NumPy file: what answered was no fleet.
    """
    if form != "npy":
        return {}
    try:
        array = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ConnectionFailedError(f"the answer is no NumPy file: {error}") from error
    return {"shape": list(array.shape), "dtype": str(array.dtype)}

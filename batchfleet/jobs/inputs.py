"""The inputs of a job as bytes: read from an object, and checked as any inputs are. Pure.

An object holds a JSON array of inputs, or an object whose one member `inputs` is that array, or (NDJSON) one input a
line. Which of them it is, its key says (`.jsonl`, `.ndjson`), or else its form.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from batchfleet.errors import InvalidRequestError, TooLargeError
from batchfleet.jobs.admission import check_item_count

_LINES_SUFFIXES: Final = (".jsonl", ".ndjson")
_BOM: Final = b"\xef\xbb\xbf"
_GZIP: Final = b"\x1f\x8b"
_LONE: Final = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)
"""One half of a character that needs two escapes. Looked for only in what is not JSON anyway."""
_FOREIGN_BOMS: Final = (b"\xff\xfe", b"\xfe\xff")
NUL: Final = b"\\u0000"
"""How JSON writes a NUL character, which some databases and tokenisers take for the end of a text."""
_FORMS: Final = "must be a JSON array of inputs, an object with `inputs`, or one input a line"

_encode = msgspec.json.Encoder().encode
_any = msgspec.json.Decoder()
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of one job.

    Attributes:
        values: As JSON values.
        data: The same as a JSON array.
    """

    values: list[Any]
    data: bytes


def read_inputs(data: bytes, *, name: str, max_item_bytes: int) -> Inputs:
    """Reads the inputs that an object holds, and checks what needs no model: form, number, sizes, NUL.

    Args:
        data: The object: UTF-8, with or without a byte order mark, lines ended by LF or CRLF.
        name: Its key; the ending may say that it has one input a line.
        max_item_bytes: Most bytes of one input, as JSON.

    Raises:
        InvalidRequestError: If it is wrong; `field` names where (`inputs[4].text`).
        TooLargeError: If there are too many inputs, or one is too large.
    """
    if not data.strip():
        raise InvalidRequestError("the object is empty", field="inputs")
    if data.startswith(_GZIP):
        raise InvalidRequestError(
            "looks like gzip, which `input_uri` does not take: store the object uncompressed", field="inputs"
        )
    if data.startswith(_FOREIGN_BOMS):
        raise InvalidRequestError("must be UTF-8, not UTF-16", field="inputs")
    try:
        found = _read(data.removeprefix(_BOM), lines=name.lower().endswith(_LINES_SUFFIXES))
    except RecursionError:
        raise InvalidRequestError("nested too deeply", field="inputs") from None
    check_inputs(found, max_item_bytes=max_item_bytes)
    return found


def check_inputs(found: Inputs, *, max_item_bytes: int) -> None:
    """Checks inputs as far as no model is needed.

    Raises:
        InvalidRequestError: If there is none, or one holds a NUL character.
        TooLargeError: If there are too many, or one is too large.
    """
    check_item_count(len(found.values))
    if len(found.data) > max_item_bytes:
        for index, value in enumerate(found.values):
            if len(_encode(value)) > max_item_bytes:
                raise TooLargeError(f"an input may have {max_item_bytes} bytes", field=f"inputs[{index}]")
    if NUL in found.data:
        refuse_nul(found.values, "inputs")


def refuse_nul(value: object, path: str) -> None:
    """Refuses NUL characters in texts; what only looks like an escaped one (a backslash, then u0000) passes.

    Raises:
        InvalidRequestError: For the first; `field` is its path.
    """
    if isinstance(value, str):
        if "\0" in value:
            raise InvalidRequestError("holds a NUL character (\\u0000)", field=path)
    elif isinstance(value, Mapping):
        for key, member in value.items():
            refuse_nul(key, path)
            refuse_nul(member, f"{path}.{key}")
    elif isinstance(value, list):
        for index, member in enumerate(value):
            refuse_nul(member, f"{path}[{index}]")


def _read(data: bytes, *, lines: bool) -> Inputs:
    if lines:
        return _of_lines(_lines(data))
    try:
        value = _any.decode(data)
    except msgspec.DecodeError as error:
        several = _lines(data)
        if len(several) > 1 and _is_json(several[0]):
            return _of_lines(several)
        raise InvalidRequestError(f"is not JSON: {_why(data, error)}", field="inputs") from error
    if isinstance(value, list):
        return Inputs(value, data)
    if not isinstance(value, dict) or "inputs" not in value:
        raise InvalidRequestError(_FORMS, field="inputs")
    return _of_member(value, data)


def _of_member(value: dict[str, Any], data: bytes) -> Inputs:
    for name in value:
        if name != "inputs":
            raise InvalidRequestError("beside `inputs` the object may have no member", field=name)
    if not isinstance(value["inputs"], list):
        raise InvalidRequestError("must be an array", field="inputs")
    return Inputs(value["inputs"], bytes(_members.decode(data)["inputs"]))


def _of_lines(lines: Sequence[bytes]) -> Inputs:
    # Counted first: an object of a million lines is refused without reading them all.
    check_item_count(len(lines))
    values = []
    for index, line in enumerate(lines):
        try:
            values.append(_any.decode(line))
        except msgspec.DecodeError as error:
            raise InvalidRequestError(f"its line is not JSON: {_why(line, error)}", field=f"inputs[{index}]") from error
    return Inputs(values, b"[" + b",".join(lines) + b"]")


def _lines(data: bytes) -> list[bytes]:
    """Returns the lines that are not blank."""
    return [line for each in data.split(b"\n") if (line := each.strip())]


def _why(data: bytes, error: msgspec.DecodeError) -> str:
    """Returns what is wrong; the decoder takes half a character for the end of the text."""
    try:
        json.loads(data)
    except ValueError:
        return str(error)
    lone = _LONE.search(data)
    return f"{lone[0].decode()}… is half of a character (a lone surrogate)" if lone else str(error)


def _is_json(line: bytes) -> bool:
    try:
        _any.decode(line)
    except msgspec.DecodeError:
        return False
    return True

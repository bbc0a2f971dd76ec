"""What msgspec says of a bad body → what we say: plain words, no type of the library, and the field at fault.

The only place that knows msgspec's messages; a test holds it to all that our structures can cause.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import inspect

from api.problems import MalformedBodyError
from batchfleet.errors import InvalidRequestError

RULE = "rule"
"""Key in the `extra` of a member's `Meta`: the sentence that a value which breaks its form is answered with."""

A_TIME = "must be an RFC 3339 time with a zone, for example 2026-12-01T10:00:00Z"
SEVERAL_LINES = "several JSON values on one line: send NDJSON with --data-binary"
SEVERAL_VALUES = "several JSON values: one is taken here (POST /v1/jobs/bulk takes many)"

_AT = re.compile(r"^(?P<message>.*?)(?: - at `(?:key in )?(?P<path>\$[^`]*)`)?$", re.DOTALL)
_REQUIRED = re.compile(r"Object missing required field `(?P<name>[^`]*)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>[^`]*)`")
_LENGTH = re.compile(r"Expected `(?P<kind>str|array|object)` of length (?P<how>[<>]=) (?P<number>\d+)")
_BOUND = re.compile(r"Expected `(?:int|float)` (?P<how>[<>]=?) (?P<number>\S+)")
_TYPE = re.compile(r"Expected `(?P<kinds>[a-z |]+)`, got `(?P<got>[a-z]+)`")
_BYTE = re.compile(r"JSON is malformed: (?P<what>.*) \(byte (?P<byte>\d+)\)")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")

_KINDS = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a JSON array",
    "object": "a JSON object",
}
_COUNTED = {"str": "characters", "array": "members", "object": "members"}
_HOW = {">": "over", ">=": "at least", "<": "under", "<=": "at most"}


class Wording:
    """Speaks of the members of some structures.

    Args:
        bodies: The structures; members of one name are alike in all of them.
    """

    def __init__(self, *bodies: type[msgspec.Struct]) -> None:
        self._rules = dict(rule for body in bodies for rule in _rules_of(body))

    def invalid(self, exc: msgspec.ValidationError) -> InvalidRequestError:
        """Turns msgspec's "… - at `$.inputs[4]`" into an error with the field `inputs[4]`."""
        match = _AT.match(str(exc))
        message, path = (match["message"], match["path"] or "$") if match else (str(exc), "$")
        for pattern in (_REQUIRED, _UNKNOWN):
            found = pattern.match(message)
            if found:
                path = f"{path}.{found['name']}"
        field = path.removeprefix("$").removeprefix(".")
        return InvalidRequestError(self._plain(message, field), field=field or None)

    def _plain(self, message: str, field: str) -> str:
        if message.startswith("Object "):
            name = field.rpartition(".")[2]
            return f"`{name}` is required" if _REQUIRED.match(message) else f"there is no member `{name}` here"
        typed = _TYPE.match(message)
        rule = self._rules.get(field.partition("[")[0])
        if rule is not None and (typed is None or rule.for_any_type):
            return rule.sentence
        for pattern, say in _SENTENCES:
            found = pattern.match(message)
            if found:
                return say(found)
        return "is not of the form asked for"


class _Rule:
    """What is said of a member; of one that is of another type too, or only of one that breaks its form."""

    __slots__ = ("for_any_type", "sentence")

    def __init__(self, sentence: str, *, for_any_type: bool) -> None:
        self.sentence = sentence
        self.for_any_type = for_any_type


def malformed(exc: msgspec.DecodeError, body: bytes, *, line: bool = False) -> MalformedBodyError:
    """Turns what msgspec says of bytes that are no JSON into an error.

    Args:
        exc: What it raised.
        body: What it was to decode.
        line: Whether that is a line of NDJSON.
    """
    message = str(exc)
    found = _BYTE.match(message)
    if found and holds_several(exc, body):
        return MalformedBodyError(SEVERAL_LINES if line else SEVERAL_VALUES)
    if found:
        said = f"no valid JSON at byte {found['byte']}: {found['what']}"
    elif "UTF-8" in message:
        said = "the body is not valid UTF-8"
    elif not body.strip():
        said = "the body is empty"
    else:
        said = "no valid JSON: it ends too early"
    if _SURROGATE.search(body):
        said += " (is there half of a surrogate pair, as in \\ud800?)"
    return MalformedBodyError(said)


def holds_several(exc: msgspec.DecodeError, body: bytes) -> bool:
    """Returns whether what follows the first JSON value looks like another one."""
    found = _BYTE.match(str(exc))
    if not found or not found["what"].startswith("trailing characters"):
        return False
    follows = int(found["byte"]) - 1  # of trailing characters msgspec tells the number, from 1
    return body[follows : follows + 1] in {b"{", b"["}


def _rules_of(body: type[msgspec.Struct]) -> Iterator[tuple[str, _Rule]]:
    described = inspect.type_info(body)
    if not isinstance(described, inspect.StructType):
        raise TypeError(body)
    for member in described.fields:
        for kind in _alternatives(member.type):
            rule = _rule_of(kind)
            if rule is not None:
                yield member.encode_name, rule


def _alternatives(kind: inspect.Type) -> Iterator[inspect.Type]:
    """Unpacks unions; keeps the `Metadata` around a type, which holds our `extra`."""
    if isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from _alternatives(each)
        return
    yield kind
    if isinstance(kind, inspect.Metadata):
        yield from _alternatives(kind.type)


def _rule_of(kind: inspect.Type) -> _Rule | None:
    if isinstance(kind, inspect.Metadata) and kind.extra and RULE in kind.extra:
        return _Rule(str(kind.extra[RULE]), for_any_type=False)
    if isinstance(kind, inspect.EnumType):
        return _Rule(f"must be one of {', '.join(each.value for each in kind.cls)}", for_any_type=True)
    if isinstance(kind, inspect.DateTimeType):
        return _Rule(A_TIME, for_any_type=True)
    return None


def _of_type(found: re.Match[str]) -> str:
    kinds = [kind for kind in found["kinds"].split(" | ") if kind != "null"]
    return f"must be {' or '.join(_KINDS.get(kind, kind) for kind in kinds)}"


def _of_length(found: re.Match[str]) -> str:
    return f"must have {_HOW[found['how']]} {found['number']} {_COUNTED[found['kind']]}"


def _of_bound(found: re.Match[str]) -> str:
    return f"must be {_HOW[found['how']]} {found['number'].removesuffix('.0')}"


_SENTENCES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (_TYPE, _of_type),
    (_LENGTH, _of_length),
    (_BOUND, _of_bound),
    (re.compile("Number out of range"), lambda _: "the number is out of range"),
    (re.compile(r"Expected `str` matching"), lambda _: "holds characters that are not allowed"),
)


def rule(sentence: str) -> dict[str, Any]:
    """Returns the `extra` of a `Meta` by which a value of the wrong form is answered with a sentence."""
    return {RULE: sentence}

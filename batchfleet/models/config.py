"""What a model is: the values of `model.toml`, checked when read.

Example::

    name = "all-minilm-l6-v2"
    version = "1"
    task = "embed"

    [task_options]
    tokenizer = "tokenizer.json"

    [limits]
    max_batch_tokens = 1024

    [[variants]]
    name = "int8"
    precision = "int8"
    runtime = "onnx"
    provider = "cpu"
    file = "model.int8.onnx"
"""

import dataclasses
import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec

from batchfleet.errors import ModelConfigError

CONFIG_FILE = "model.toml"

T = TypeVar("T")

NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,63}\Z"
"""What models, versions and variants may be called: one path segment that is never hidden or `..`."""

Name: TypeAlias = Annotated[str, msgspec.Meta(pattern=NAME_PATTERN)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
Milliseconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]

Precision: TypeAlias = Literal["fp32", "bf16", "fp16", "int8", "int7"]
"""`int7`: INT8 arithmetic on weights of 7 bits, for x86 CPUs whose u8 x s8 products saturate (no VNNI)."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much of a model's work may run together.

    Attributes:
        max_batch_items: Items of one pass at most.
        max_batch_tokens: *Padded* tokens of one pass at most: longest item x number of items.
        preferred_batch_items: Items beyond which a batch neither grows nor waits; None: where an item costs least.
        max_delay_ms: How long an item may wait for company, counted from its enqueueing.
        max_pass_ms: How long one pass should take at most.
        max_item_tokens: Tokens of one item at most, special tokens included.
        overlong: What becomes of a longer item: it is cut (`truncate`) or fails by name (`error`).
    """

    max_batch_items: Count = 64
    max_batch_tokens: Count = 1024
    preferred_batch_items: Count | None = None
    max_delay_ms: Milliseconds = 5.0
    max_pass_ms: Milliseconds = 2000.0
    max_item_tokens: Count = 256
    overlong: Literal["truncate", "error"] = "truncate"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way to run a model: a graph file at a precision, on a runtime's provider.

    Attributes:
        name: Unique within the model, for example `int8` or `openvino-bf16`.
        precision: Precision of the arithmetic, which need not be that of the file.
        runtime: Name in `batchfleet.inference.registry`, for example `onnx`.
        provider: The runtime's device back end: `cpu`, `openvino`, `cuda`, ...
        file: Path of the graph, relative to the version's folder.
        max_batch_tokens: Replaces the limit of the same name where this variant runs best on another; None keeps it.
    """

    name: Name
    precision: Precision
    runtime: str
    provider: str
    file: str
    max_batch_tokens: Count | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The contents of one `model.toml`.

    Attributes:
        name: Name of the model, also its folder.
        version: Version of the model, also its folder.
        task: Name of the task that it does, for example `embed`.
        task_options: Options that the task reads (and checks) itself when the model is loaded.
        limits: How much may run together.
        variants: The ways to run it; where a machine can run several, the fastest is chosen by measurement.
    """

    name: Name
    version: Name
    task: str
    variants: Annotated[tuple[Variant, ...], msgspec.Meta(min_length=1)]
    task_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    limits: Limits = Limits()

    def variant(self, name: str) -> Variant:
        """Returns the variant called `name`.

        Raises:
            ModelConfigError: If there is none; the message lists those that there are.
        """
        for variant in self.variants:
            if variant.name == name:
                return variant
        known = ", ".join(variant.name for variant in self.variants)
        raise ModelConfigError(f"{self.name} {self.version} has no variant {name!r} (it has: {known})")

    def limits_of(self, variant: Variant) -> Limits:
        """Returns the limits that hold where `variant` runs."""
        if variant.max_batch_tokens is None:
            return self.limits
        return dataclasses.replace(self.limits, max_batch_tokens=variant.max_batch_tokens)


def read_config(path: Path) -> ModelConfig:
    """Reads and checks the `model.toml` at `path`.

    Raises:
        ModelConfigError: If the file is missing, no TOML, or a field is missing, unknown or wrong.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelConfigError(f"{path}: cannot be read: {error}") from error
    return parse_config(text, source=str(path))


def parse_config(text: str, *, source: str = CONFIG_FILE) -> ModelConfig:
    """Parses the text of a `model.toml`; `source` is what error messages call it.

    Raises:
        ModelConfigError: If the text is no TOML, or a field is missing, unknown or wrong.
    """
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ModelConfigError(f"{source}: not valid TOML: {error}") from error
    config = convert(raw, ModelConfig, source=source)
    _check_limits(config.limits, source)
    _check_variants(config, source)
    return config


def convert(raw: Mapping[str, Any], into: type[T], *, source: str) -> T:
    """Converts plain values into the dataclass `into`, strictly: no coercion, no unknown field.

    Args:
        raw: Values as a parser gives them.
        into: A dataclass type, whose fields may be dataclasses in turn.
        source: What error messages call the file.

    Raises:
        ModelConfigError: If a field is missing, unknown or of the wrong type; the message names it.
    """
    try:
        value = msgspec.convert(raw, into, strict=True)
    except msgspec.ValidationError as error:
        raise ModelConfigError(f"{source}: {_readable(str(error))}") from error
    # msgspec skips fields that a dataclass does not have; a misspelt limit must not be skipped.
    for unknown in _unknown_fields(raw, value, prefix=""):
        raise ModelConfigError(f"{source}: unknown field `{unknown}`")
    return value


def render_config(config: ModelConfig) -> str:
    """Returns the text of a `model.toml` that parses to `config`."""
    lines = [f"{key} = {_toml(getattr(config, key))}" for key in ("name", "version", "task")]
    lines += ["", "[task_options]", *(f"{key} = {_toml(value)}" for key, value in config.task_options.items())]
    lines += ["", "[limits]", *_assignments(config.limits)]
    for variant in config.variants:
        lines += ["", "[[variants]]", *_assignments(variant)]
    return "\n".join(lines) + "\n"


def _assignments(value: Limits | Variant) -> Iterator[str]:
    for field in dataclasses.fields(value):
        if getattr(value, field.name) is not None:  # TOML has no null: what is absent has its default
            yield f"{field.name} = {_toml(getattr(value, field.name))}"


def _toml(value: object) -> str:
    if isinstance(value, bool | int | float | str):
        # JSON's numbers, booleans and quoted strings are TOML's as well.
        return json.dumps(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    raise TypeError(f"a task option cannot be a {type(value).__name__}")


def _readable(message: str) -> str:
    """Turns msgspec's "... - at `$.limits.x`" into "`limits.x`: ..."."""
    text, _, path = message.partition(" - at `$.")
    return f"`{path.rstrip('`')}`: {text}" if path else text.replace("`$`", "the file")


def _unknown_fields(raw: object, value: object, *, prefix: str) -> Iterator[str]:
    if isinstance(value, tuple) and isinstance(raw, list):
        for index, (raw_item, item) in enumerate(zip(raw, value, strict=True)):
            yield from _unknown_fields(raw_item, item, prefix=f"{prefix}[{index}]")
    if not dataclasses.is_dataclass(value) or not isinstance(raw, Mapping):
        return
    names = {field.name for field in dataclasses.fields(value)}
    for key, raw_item in raw.items():
        path = f"{prefix}.{key}" if prefix else str(key)
        if key not in names:
            yield path
        else:
            yield from _unknown_fields(raw_item, getattr(value, key), prefix=path)


def _check_limits(limits: Limits, source: str) -> None:
    preferred, most = limits.preferred_batch_items, limits.max_batch_items
    if preferred is not None and preferred > most:
        raise ModelConfigError(
            f"{source}: `limits.preferred_batch_items`: {preferred} is over max_batch_items ({most})"
        )


def _check_variants(config: ModelConfig, source: str) -> None:
    seen: set[str] = set()
    for index, variant in enumerate(config.variants):
        if variant.name in seen:
            raise ModelConfigError(f"{source}: `variants[{index}].name`: {variant.name!r} is used twice")
        if not is_safe_path(variant.file):
            raise ModelConfigError(f"{source}: `variants[{index}].file`: must be a path inside the version")
        seen.add(variant.name)


def is_safe_path(path: str) -> bool:
    """Says whether `path` is relative, normalised and stays inside the folder that it is joined to."""
    pure = PurePosixPath(path)
    return bool(path) and not pure.is_absolute() and ".." not in pure.parts and str(pure) == path and path != "."

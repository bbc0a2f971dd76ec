"""`model.toml` is read strictly: whatever is wrong is refused by file and field."""

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfleet.errors import ModelConfigError
from batchfleet.models.config import (
    Limits,
    ModelConfig,
    Variant,
    is_safe_path,
    parse_config,
    read_config,
    render_config,
)

VARIANT = Variant(name="int8", precision="int8", runtime="onnx", provider="cpu", file="model.int8.onnx")
CONFIG = ModelConfig(name="m", version="1", task="embed", variants=(VARIANT,), task_options={"tokenizer": "t.json"})


def test_what_is_rendered_parses_to_the_same_value() -> None:
    limits = Limits(max_batch_items=3, max_delay_ms=0.5, overlong="error")
    config = dataclasses.replace(CONFIG, limits=limits, task_options={"a": 'quo"te\n', "b": [1, 2.5], "c": True})

    assert parse_config(render_config(config)) == config


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ('name = "m"', 'name = "M"', "`name`"),
        ('name = "m"', 'name = ".hidden"', "`name`"),
        ('name = "m"', f'name = "{"x" * 65}"', "`name`"),
        ('version = "1"', "version = 1", "`version`"),
        ('version = "1"', "", "version"),
        ("max_batch_items = 64", "max_batch_items = 0", "`limits.max_batch_items`"),
        ("max_batch_items = 64", 'max_batch_items = "64"', "`limits.max_batch_items`"),
        ("max_batch_items = 64", "max_batch_itmes = 64", "`limits.max_batch_itmes`"),
        ("max_delay_ms = 5.0", "max_delay_ms = -1.0", "`limits.max_delay_ms`"),
        ('overlong = "truncate"', 'overlong = "wrap"', "`limits.overlong`"),
        ('precision = "int8"', 'precision = "int3"', "precision"),
        ('provider = "cpu"', 'provider = "cpu"\ndevice = 1', "`variants[0].device`"),
        ('file = "model.int8.onnx"', 'file = "../other/model.onnx"', "`variants[0].file`"),
        ('file = "model.int8.onnx"', 'file = "/etc/passwd"', "`variants[0].file`"),
        ('task = "embed"', 'task = "embed', "TOML"),
    ],
)
def test_a_wrong_field_is_named(old: str, new: str, field: str) -> None:
    text = render_config(CONFIG)
    assert old in text

    with pytest.raises(ModelConfigError) as caught:
        parse_config(text.replace(old, new, 1), source="here/model.toml")

    assert field in str(caught.value)
    assert "here/model.toml" in str(caught.value)


def test_a_variant_name_used_twice_is_refused() -> None:
    text = render_config(dataclasses.replace(CONFIG, variants=(VARIANT, VARIANT)))

    with pytest.raises(ModelConfigError, match="used twice"):
        parse_config(text)


def test_a_missing_file_is_an_error_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(ModelConfigError, match=r"model\.toml"):
        read_config(tmp_path / "model.toml")


def test_a_variant_may_have_a_token_limit_of_its_own() -> None:
    own = dataclasses.replace(VARIANT, name="own", max_batch_tokens=512)
    config = dataclasses.replace(CONFIG, variants=(VARIANT, own))

    assert config.limits_of(VARIANT) == config.limits
    assert config.limits_of(own) == dataclasses.replace(config.limits, max_batch_tokens=512)
    assert parse_config(render_config(config)) == config


def test_an_unknown_variant_lists_those_there_are() -> None:
    assert CONFIG.variant("int8") is VARIANT
    with pytest.raises(ModelConfigError, match="it has: int8"):
        CONFIG.variant("fp64")


@given(st.text(max_size=30))
def test_a_safe_path_stays_inside_its_folder(path: str) -> None:
    if is_safe_path(path):
        root = Path("/root/version")
        joined = root / path
        assert ".." not in joined.parts
        assert root in joined.parents

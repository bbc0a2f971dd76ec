"""The reference pages are complete: every setting with its default, every command with its options, every exit code."""

import dataclasses
import inspect
import json
import re
from pathlib import Path

import click
import pytest

from batchfleet import client
from batchfleet.cli.main import cli
from batchfleet.client import Client, JobRequest
from batchfleet.embedded.exits import Exit
from batchfleet.errors import BatchfleetError
from batchfleet.inference.tasks.embed import EmbedOptions
from batchfleet.models.config import Limits, ModelConfig, Variant
from batchfleet.models.manifest import Accuracy, LatencySample, Manifest
from batchfleet.settings import Settings

DOCS = Path(__file__).resolve().parents[3] / "docs"
SETTINGS = (DOCS / "reference" / "settings.md").read_text(encoding="utf-8")
CLI = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
ROWS = dict(
    re.findall(r"^\| `BATCHFLEET_(\w+)` \| (.+?) \| .+ \|$", SETTINGS.split("## Of the command line")[0], re.MULTILINE)
)


def shown(default: object) -> str:
    if default is None:
        return "(none)"
    return f"`{default}`" if default not in ("", ()) else "(empty)"


def leaves(command: click.Command, name: str) -> list[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        return [(name, command)]
    context = click.Context(command)
    children = ((child, command.get_command(context, child)) for child in command.list_commands(context))
    return [leaf for child, found in children if found for leaf in leaves(found, f"{name} {child}")]


LEAVES = leaves(cli, "batchfleet")


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_is_described_with_its_default(name: str) -> None:
    assert ROWS.get(name.upper()) == shown(Settings.model_fields[name].default)


def test_no_setting_is_described_that_does_not_exist() -> None:
    assert {name.lower() for name in ROWS} == set(Settings.model_fields)


@pytest.mark.parametrize(("name", "command"), LEAVES, ids=[name for name, _ in LEAVES])
def test_every_command_is_described_with_all_its_options(name: str, command: click.Command) -> None:
    section = re.search(rf"^### `{re.escape(name)}`$(.*?)(?=^##|\Z)", CLI, re.MULTILINE | re.DOTALL)

    assert section is not None
    options = {param.opts[0] for param in command.params if isinstance(param, click.Option)}
    assert options <= set(re.findall(r"`(--[a-z-]+)", section[1]))


def test_no_command_is_described_that_does_not_exist() -> None:
    assert set(re.findall(r"^### `(.+)`$", CLI, re.MULTILINE)) == {name for name, _ in LEAVES}


def test_every_exit_code_is_described() -> None:
    described = re.findall(r"^\| (\d+) \| `(\w+)` \|", CLI, re.MULTILINE)

    assert described == [(str(code.value), code.name) for code in Exit]


def test_every_method_and_error_of_the_client_is_described() -> None:
    page = (DOCS / "reference" / "client.md").read_text(encoding="utf-8")
    methods = {name for name in vars(Client) if not name.startswith("_")}
    errors = {name for name in client.__all__ if issubclass(getattr(client, name), BatchfleetError)}
    values = set(client.__all__) - errors - {"Client"}

    assert set(re.findall(r"^\| `(\w+)\(", page, re.MULTILINE)) == methods
    assert set(re.findall(r"^\| `(\w+Error)` \|", page, re.MULTILINE)) == errors
    assert set(re.findall(r"^- `(\w+)", page, re.MULTILINE)) == values
    fields = set(re.findall(r"`(\w+)`", page.split("## Values")[1].split("## Errors")[0]))
    assert set(JobRequest.__struct_fields__) - {"model", "inputs"} <= fields
    assert set(inspect.signature(Client.__init__).parameters) - {"self"} <= set(re.findall(r"(\w+)=", page))


def test_every_field_of_a_model_is_described_with_its_default() -> None:
    page = (DOCS / "reference" / "model-repository.md").read_text(encoding="utf-8")
    toml, manifest = page.split("## model.toml")[1].split("## MANIFEST.json")
    rows = dict(re.findall(r"^\| `([\w\[\]]+)` \| (.*?) ?\| ", toml, re.MULTILINE))

    for kind in (EmbedOptions, Limits, Variant, ModelConfig):
        for field in dataclasses.fields(kind):
            name = {"task_options": "[task_options]", "limits": "[limits]", "variants": "[[variants]]"}.get(field.name)
            assert (name or field.name) in rows, field.name
    for kind in (EmbedOptions, Limits):
        for field in dataclasses.fields(kind):
            if field.name != "max_batch_tokens":  # two tables have one
                assert rows[field.name] == f"`{json.dumps(field.default)}`"
    described = set(re.findall(r"`(\w+)`", manifest.split("## What")[0]))
    for part in (Manifest, Accuracy, LatencySample):
        assert {field.name for field in dataclasses.fields(part)} <= described


@pytest.mark.parametrize("page", ["README.md", *(str(path.relative_to(DOCS.parent)) for path in DOCS.rglob("*.md"))])
def test_links_between_pages_lead_somewhere(page: str) -> None:
    path = DOCS.parent / page
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text(encoding="utf-8"))

    assert [target for target in targets if not (path.parent / target).exists()] == []

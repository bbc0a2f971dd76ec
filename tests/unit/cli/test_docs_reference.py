"""The reference pages are complete: every setting with its default, every command with its options, every exit code."""

import dataclasses
import inspect
import json
import re
from pathlib import Path

import click
import pytest

from batchfleet import client
from batchfleet.cli.doctor.examine import NAMES as CHECKS
from batchfleet.cli.main import cli
from batchfleet.client import (
    Client,
    Delivery,
    DeliveryAttempt,
    ItemError,
    JobRequest,
    RetryPolicy,
    SigningSecret,
    Submission,
    Webhooks,
)
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
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
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


CLIENT = (DOCS / "reference" / "client.md").read_text(encoding="utf-8")


def public(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


@pytest.mark.parametrize(("kind", "heading"), [(Client, "Methods"), (Webhooks, "Webhooks")])
def test_every_method_of_the_client_is_described_with_its_parameters(kind: type, heading: str) -> None:
    section = CLIENT.split(f"## {heading}")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)(\(.*?\))?` \|", section, re.MULTILINE))

    assert set(rows) == public(kind)
    for name, signature in rows.items():
        method = vars(kind)[name]
        if not isinstance(method, property):
            parameters = [part for part in inspect.signature(method).parameters if part != "self"]
            assert re.findall(r"(\w+)(?:=[^,)]*)?(?=[,)])", signature) == parameters, name


def test_every_error_and_value_of_the_client_is_described() -> None:
    classes = {name: getattr(client, name) for name in client.__all__ if isinstance(getattr(client, name), type)}
    errors = {name for name, kind in classes.items() if issubclass(kind, BatchfleetError)}
    values = set(classes) - errors - {"Client"}
    described = CLIENT.split("## Values")[1].split("## Errors")[0]

    assert set(re.findall(r"^\| `(\w+Error)` \|", CLIENT, re.MULTILINE)) == errors
    assert set(re.findall(r"^- `(\w+)", CLIENT, re.MULTILINE)) == values
    assert set(client.__all__) - set(classes) <= set(re.findall(r"`(\w+)\(", CLIENT))
    fields = set(re.findall(r"`(\w+)`", described))
    for kind in (JobRequest, Delivery, DeliveryAttempt, SigningSecret, ItemError, Submission, RetryPolicy):
        names = getattr(kind, "__struct_fields__", None) or [field.name for field in dataclasses.fields(kind)]
        assert set(names) - {"model", "inputs"} <= fields, kind
    assert set(inspect.signature(Client.__init__).parameters) - {"self"} <= set(re.findall(r"(\w+)=", CLIENT))


def test_every_check_of_the_doctor_is_described() -> None:
    section = CLI.split("### `batchfleet doctor`")[1].split("###")[0]

    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(CHECKS)


def test_every_json_document_is_described() -> None:
    table = CLI.split("## JSON")[1].split("## Exit codes")[0]
    described = {
        name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`([\w -]+)", row)
    }
    services = {"api", "worker", "scheduler"}  # theirs is the form of their logs
    names = {name.removeprefix("batchfleet ") for name, _ in LEAVES} - services

    assert {name for name in names if not any(entry.startswith(name) for entry in described)} == set()


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
                default = "none" if field.default is None else f"`{json.dumps(field.default)}`"  # TOML has no null
                assert rows[field.name] == default, field.name
    described = set(re.findall(r"`(\w+)`", manifest.split("## What")[0]))
    for part in (Manifest, Accuracy, LatencySample):
        assert {field.name for field in dataclasses.fields(part)} <= described


@pytest.mark.parametrize("page", ["README.md", *(str(path.relative_to(DOCS.parent)) for path in DOCS.rglob("*.md"))])
def test_links_between_pages_lead_somewhere(page: str) -> None:
    path = DOCS.parent / page
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text(encoding="utf-8"))

    assert [target for target in targets if not (path.parent / target).exists()] == []

"""`batchfleet models copy`: a new version of a model, with other limits."""

import json
from typing import Any

import click

from batchfleet.cli.options import as_json_option, print_json
from batchfleet.cli.repositories import repository_option
from batchfleet.errors import ModelConfigError
from batchfleet.models.copying import next_version, publish_copy, with_limits
from batchfleet.models.repository import ModelRepository


def _parse(_ctx: click.Context, _param: click.Parameter, settings: tuple[str, ...]) -> dict[str, Any]:
    changes = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise click.BadParameter(f"{setting!r} is not LIMIT=VALUE, such as max_delay_ms=20")
        changes[name.strip()] = _value(value.strip())
    return changes


def _value(text: str) -> Any:
    """Returns a number, None for `none`, or the text itself."""
    if text == "none":
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


@click.command("copy")
@click.argument("name")
@click.option(
    "--set",
    "changes",
    envvar="BATCHFLEET_MODELS_COPY_SET",
    multiple=True,
    required=True,
    metavar="LIMIT=VALUE",
    callback=_parse,
    show_envvar=True,
    help="A limit and its new value; `none` takes preferred_batch_items away. Repeatable.",
)
@click.option("--version", show_envvar=True, help="What is copied; default: the newest.")
@click.option(
    "--as",
    "new",
    envvar="BATCHFLEET_MODELS_COPY_AS",
    show_envvar=True,
    help="The new version; default: the one after the newest.",
)
@repository_option
@as_json_option
def copy(
    name: str, changes: dict[str, Any], version: str | None, new: str | None, repository: ModelRepository, as_json: bool
) -> None:
    """Publish a version of model NAME with other limits.

    The new version has the same graphs, and what was measured of them. Workers and API see it within seconds.
    """
    files = repository.open(repository.resolve(name, version))
    try:
        limits = with_limits(files.config.limits, changes)
    except ModelConfigError as error:
        raise click.BadParameter(str(error), param_hint="--set") from None
    made = publish_copy(repository, files, new or next_version(repository.versions(name)[-1]), limits)
    own = (
        [each.name for each in files.config.variants if each.max_batch_tokens] if "max_batch_tokens" in changes else []
    )
    if as_json:
        print_json({"name": name, "version": made.ref.version, "digest": made.digest, "keep_their_own_tokens": own})
        return
    print(f"{made.ref} is in {repository.root}: {files.ref} with {', '.join(f'{k}={v}' for k, v in changes.items())}")
    if own:
        print(f"max_batch_tokens does not hold for {', '.join(own)}: each has a limit of its own")

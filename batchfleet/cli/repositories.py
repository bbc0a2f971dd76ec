"""The option that says which model repository is meant."""

from pathlib import Path
from urllib.parse import urlsplit

import click

from batchfleet.cli.options import checked_setting
from batchfleet.cli.running import up_folder
from batchfleet.models.repository import ModelRepository
from batchfleet.settings import folder_of


def _repository(ctx: click.Context, param: click.Parameter, value: str | None) -> ModelRepository:
    """Takes `file:///folder`, or a path as people type it."""
    if value is None:
        return ModelRepository(up_folder() / "models")
    if "://" not in value and urlsplit(value).scheme != "file":
        value = Path(value).expanduser().absolute().as_uri()
    return ModelRepository(folder_of(checked_setting("models_url")(ctx, param, value)))


repository_option = click.option(
    "--models-url",
    "repository",
    envvar="BATCHFLEET_MODELS_URL",
    callback=_repository,
    show_envvar=True,
    show_default="the repository of `batchfleet up`",
    help="The model repository: file:///folder, or a path.",
)

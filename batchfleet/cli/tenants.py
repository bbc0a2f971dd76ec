"""`batchfleet tenants`: where the objects of a tenant's jobs may lie, in the database itself."""

from typing import Any

import click

from batchfleet.access.tenants import Tenant
from batchfleet.cli.keys import access
from batchfleet.cli.options import (
    as_json_option,
    database_option,
    moment_of,
    print_json,
    print_table,
    time_of,
    told_as_options,
)
from batchfleet.cli.suggesting import SuggestingGroup
from batchfleet.embedded.exits import Exit
from batchfleet.embedded.telling import tell_error


@click.group(cls=SuggestingGroup)
def tenants() -> None:
    """List, show and change tenants."""


@tenants.command("list")
@database_option()
@as_json_option
def list_(database_url: str, as_json: bool) -> None:
    """List the tenants, by name."""
    with access(database_url) as store:
        found = store.list_tenants()
    if as_json:
        print_json({"tenants": [_shown(tenant) for tenant in found]})
    elif not found:
        print("no tenants yet: `batchfleet keys create --tenant NAME` or `batchfleet tenants set NAME` makes one")
    else:
        print_table(("NAME", "CREATED", "INPUT PREFIXES", "OUTPUT PREFIXES"), [_row(tenant) for tenant in found])


@tenants.command("set")
@click.argument("name")
@click.option(
    "--input-prefix",
    "input_prefixes",
    multiple=True,
    envvar="BATCHFLEET_TENANTS_SET_INPUT_PREFIX",
    show_envvar=True,
    help="s3://bucket/prefix under which an input_uri may lie; may be repeated; '' for nowhere.",
)
@click.option(
    "--output-prefix",
    "output_prefixes",
    multiple=True,
    envvar="BATCHFLEET_TENANTS_SET_OUTPUT_PREFIX",
    show_envvar=True,
    help="Likewise for output_uri.",
)
@database_option()
@as_json_option
def set_(
    name: str, input_prefixes: tuple[str, ...], output_prefixes: tuple[str, ...], database_url: str, as_json: bool
) -> None:
    """Make tenant NAME, or change where its objects may lie.

    What is given replaces what was; a list that is not mentioned stays as it is.
    """
    names = {"tenant": "NAME", "input_prefixes": "--input-prefix", "output_prefixes": "--output-prefix"}
    with access(database_url) as store, told_as_options(**names):
        changed = store.put_tenant(
            name, input_prefixes=_stated(input_prefixes), output_prefixes=_stated(output_prefixes)
        )
    _print(changed, as_json=as_json)


@tenants.command()
@click.argument("name")
@database_option()
@as_json_option
def show(name: str, database_url: str, as_json: bool) -> int:
    """Show tenant NAME. Exits 8 if there is none of that name."""
    with access(database_url) as store:
        found = store.tenant(name)
    if found is None:
        tell_error(f"{name}: no such tenant", code="tenant_not_found", as_json=as_json)
        return Exit.NOT_FOUND
    _print(found, as_json=as_json)
    return Exit.OK


def _stated(prefixes: tuple[str, ...]) -> list[str] | None:
    return [prefix for prefix in prefixes if prefix] if prefixes else None


def _print(tenant: Tenant, *, as_json: bool) -> None:
    if as_json:
        print_json(_shown(tenant))
        return
    print(f"name             {tenant.name}")
    print(f"created          {time_of(moment_of(tenant.created_at))}")
    print(f"input prefixes   {' '.join(tenant.input_prefixes) or '(nowhere)'}")
    print(f"output prefixes  {' '.join(tenant.output_prefixes) or '(nowhere)'}")


def _shown(tenant: Tenant) -> dict[str, Any]:
    return {
        "name": tenant.name,
        "input_prefixes": tenant.input_prefixes,
        "output_prefixes": tenant.output_prefixes,
        "created_at": moment_of(tenant.created_at),
    }


def _row(tenant: Tenant) -> tuple[str, ...]:
    created = time_of(moment_of(tenant.created_at))
    return (tenant.name, created, " ".join(tenant.input_prefixes) or "-", " ".join(tenant.output_prefixes) or "-")

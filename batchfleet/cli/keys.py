"""`batchfleet keys`: API keys, in the database itself: who can reach it needs no key."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from batchfleet.access.keys import DEFAULT_ROLES, ROLES, ApiKey, Role, new_key
from batchfleet.access.store import AccessStore
from batchfleet.access.tenants import DEFAULT_TENANT
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


@contextmanager
def access(database_url: str) -> Iterator[AccessStore]:
    """Opens keys and tenants of a database."""
    from batchfleet.access.sql import SqlAccess  # noqa: PLC0415 - not for `--help`

    store = SqlAccess(database_url)
    try:
        yield store
    finally:
        store.close()


@click.group(cls=SuggestingGroup)
def keys() -> None:
    """Make, list and revoke API keys."""


@keys.command()
@click.option("--name", default="", show_envvar=True, help="For people: whose it is, or what for.")
@click.option("--tenant", default=DEFAULT_TENANT, show_default=True, show_envvar=True, help="Whom its jobs belong to.")
@click.option(
    "--role",
    "roles",
    multiple=True,
    type=click.Choice([role.value for role in ROLES]),
    envvar="BATCHFLEET_KEYS_CREATE_ROLE",
    show_envvar=True,
    show_default=" and ".join(sorted(DEFAULT_ROLES)),
    help="What it may do; may be repeated.",
)
@click.option(
    "--ttl",
    "ttl_s",
    type=click.FloatRange(min=0, min_open=True),
    envvar="BATCHFLEET_KEYS_CREATE_TTL",
    show_envvar=True,
    show_default="for good",
    help="Seconds for which it works.",
)
@database_option()
@as_json_option
def create(
    name: str, tenant: str, roles: tuple[str, ...], ttl_s: float | None, database_url: str, as_json: bool
) -> None:
    """Make a key, and print it: once, here; only a digest of it is stored."""
    written = new_key()
    wanted = frozenset(Role(role) for role in roles) or DEFAULT_ROLES
    with access(database_url) as store, told_as_options(tenant="--tenant", name="--name", roles="--role"):
        made = store.create_key(written, tenant=tenant, name=name, roles=wanted, ttl_s=ttl_s)
    if as_json:
        print_json({"key": written.text, **_shown(made)})
        return
    print(written.text)
    roles_text = ", ".join(sorted(made.roles))
    click.echo(f"key {made.id} of tenant {made.tenant}: {roles_text}. It is not shown again.", err=True)


@keys.command("list")
@click.option("--tenant", show_envvar=True, help="Only keys of this tenant.")
@click.option(
    "--all",
    "every",
    is_flag=True,
    envvar="BATCHFLEET_KEYS_LIST_ALL",
    show_envvar=True,
    help="Those that are revoked or expired as well.",
)
@database_option()
@as_json_option
def list_(tenant: str | None, every: bool, database_url: str, as_json: bool) -> None:
    """List keys, newest first; never the keys themselves."""
    with access(database_url) as store:
        found = store.list_keys(tenant)
    now = time.time()  # as the API judges
    shown = [key for key in found if every or key.usable(now)]
    if as_json:
        print_json({"keys": [{**_shown(key), "usable": key.usable(now)} for key in shown]})
    elif not shown:
        hint = "" if every or not found else f" that work ({len(found)} do not any more: --all)"
        print(f"no keys{hint}; `batchfleet keys create` makes one")
    else:
        header = ("ID", "TENANT", "NAME", "ROLES", "CREATED", "LAST USED", "STATE")
        print_table(header, [_row(key, now) for key in shown])


@keys.command()
@click.argument("ids", nargs=-1, required=True)
@database_option()
@as_json_option
def revoke(ids: tuple[str, ...], database_url: str, as_json: bool) -> int:
    """Make keys useless for good.

    A key works on for BATCHFLEET_KEY_CACHE_S at most. Exits 8 if one is unknown; the others are revoked all the same.
    """
    with access(database_url) as store:
        found = {key_id: store.revoke_key(id_of(key_id)) for key_id in ids}
    known = [key for key in found.values() if key is not None]
    unknown = [id_of(key_id) for key_id, key in found.items() if key is None]
    if as_json:
        print_json({"keys": [_shown(key) for key in known]})
    else:
        for key in known:
            print(f"{key.id} is revoked")
    if unknown:
        tell_error(f"{', '.join(unknown)}: no such key", code="key_not_found", as_json=as_json)
        return Exit.NOT_FOUND
    return Exit.OK


def id_of(text: str) -> str:
    """Returns the id in what a person gives: the id itself, or (by mistake) a whole key, which must not be shown."""
    parts = text.split("_", 2)
    return parts[1] if len(parts) == 3 and parts[0] == "bf" else text


def _shown(key: ApiKey) -> dict[str, Any]:
    members = {
        "id": key.id,
        "tenant": key.tenant,
        "name": key.name,
        "roles": sorted(key.roles),
        "created_at": moment_of(key.created_at),
        "expires_at": moment_of(key.expires_at),
        "revoked_at": moment_of(key.revoked_at),
        "last_used_at": moment_of(key.last_used_at),
    }
    return {name: value for name, value in members.items() if value is not None}


def _row(key: ApiKey, now: float) -> tuple[str, ...]:
    state = "revoked" if key.revoked_at is not None else "works" if key.usable(now) else "expired"
    roles = ",".join(sorted(key.roles))
    used = time_of(moment_of(key.last_used_at)) or "never"
    return (key.id, key.tenant, key.name, roles, time_of(moment_of(key.created_at)), used, state)

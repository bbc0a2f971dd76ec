"""`batchfleet db`: the database."""

import click

from batchfleet.cli.options import as_json_option, checked_setting, print_json


def _usable(ctx: click.Context, param: click.Parameter, value: str) -> str:
    from batchfleet.embedded.database import require_usable_database  # noqa: PLC0415 - not for `--help`

    url = str(checked_setting("database_url")(ctx, param, value))
    try:
        require_usable_database(url)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return url


@click.group()
def db() -> None:
    """Look after the database."""


@db.command()
@click.option(
    "--database-url",
    envvar="BATCHFLEET_DATABASE_URL",
    required=True,
    callback=_usable,
    show_envvar=True,
    help="For example sqlite:////var/lib/batchfleet/batchfleet.db or postgresql+psycopg://…",
)
@as_json_option
def upgrade(database_url: str, as_json: bool) -> None:
    """Bring the database to this version's schema; may be run at every start, and by several at once."""
    from batchfleet.logs import mask_url  # noqa: PLC0415 - with the next one: not for `--help`
    from migrations import upgrade as run  # noqa: PLC0415

    run(database_url)
    shown = mask_url(database_url)
    if as_json:
        print_json({"database_url": shown, "status": "upgraded"})
    else:
        print(f"{shown} is up to date")

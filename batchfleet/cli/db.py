"""`batchfleet db`: the database."""

import click

from batchfleet.cli.options import as_json_option, database_option, print_json
from batchfleet.cli.suggesting import SuggestingGroup
from batchfleet.embedded.exits import Exit


@click.group(cls=SuggestingGroup)
def db() -> None:
    """Look after the database."""


@db.command()
@database_option(required=True)
@click.option(
    "--post",
    is_flag=True,
    show_envvar=True,
    help="Take the steps too that are for afterwards, when no process of the version before runs.",
)
@as_json_option
def upgrade(database_url: str, post: bool, as_json: bool) -> None:
    """Bring the database to this version's schema; may be run at every start, and by several at once.

    Without --post only what adds: processes of the version before go on working, and those of this one can start.
    """
    from batchfleet.masking import mask_url  # noqa: PLC0415 - with the next one: not for `--help`
    from migrations import upgrade as run  # noqa: PLC0415

    left = run(database_url, post=post)
    shown = mask_url(database_url)
    if as_json:
        print_json({"database_url": shown, "status": "upgraded", "post": left})
    elif left:
        print(f"{shown} is ready for this version; once no older process runs: batchfleet db upgrade --post")
    else:
        print(f"{shown} is up to date")


@db.command()
@database_option()
@as_json_option
def status(database_url: str, as_json: bool) -> int:
    """Say whether the database has this version's schema; changes nothing.

    Exits 0 if so, 1 if not.
    """
    from batchfleet.cli.schema_state import read_schema  # noqa: PLC0415 - with the next one: not for `--help`
    from batchfleet.masking import mask_url  # noqa: PLC0415

    state = read_schema(database_url)
    shown = mask_url(database_url)
    if as_json:
        print_json(
            {
                "database_url": shown,
                "status": state.status,
                "current": state.current,
                "newest": state.newest,
                "missing": state.missing,
            }
        )
    else:
        missing = f", {len(state.missing)} to apply ({', '.join(state.missing)})" if state.missing else ""
        hint = "; run `batchfleet db upgrade`" if state.status in {"behind", "empty"} else ""
        if state.status == "current" and state.afterwards:
            hint = " once no older process runs: batchfleet db upgrade --post"
        print(f"{shown}: {state.status}{missing}{hint}")
    return Exit.OK if state.status == "current" else Exit.FAILED

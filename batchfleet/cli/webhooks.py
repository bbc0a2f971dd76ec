"""`batchfleet webhooks`: what became of callbacks and outputs, and what callbacks are signed with."""

import click

from batchfleet.cli.options import fleet, fleet_options, print_json, print_table, time_of
from batchfleet.cli.suggesting import SuggestingGroup
from batchfleet.client import Delivery, SigningSecret
from batchfleet.embedded.exits import Exit

_STATES = ("pending", "delivered", "failed")
_KINDS = ("webhook", "output")


@click.group(cls=SuggestingGroup)
def webhooks() -> None:
    """Look at deliveries, repeat them, change signing secrets."""


@webhooks.command("list")
@click.option("--job-id", show_envvar=True, help="Only those of this job.")
@click.option("--state", type=click.Choice(_STATES), show_envvar=True, help="Only those in this state.")
@click.option("--kind", type=click.Choice(_KINDS), show_envvar=True, help="Only those of this kind.")
@click.option("--after", show_envvar=True, help="The last id of the page before.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, show_envvar=True, help="At most so many."
)
@fleet_options
def list_(
    job_id: str | None,
    state: str | None,
    kind: str | None,
    after: str | None,
    limit: int,
    url: str,
    api_key: str | None,
    as_json: bool,
) -> None:
    """List deliveries, newest first."""
    with fleet(url, api_key) as client:
        page = client.webhooks.list_deliveries(job_id=job_id, state=state, kind=kind, after=after, limit=limit)
    if as_json:
        print_json(page)
    elif not page.deliveries:
        print("no deliveries")
    else:
        header = ("ID", "KIND", "STATE", "TRIES", "EVENT", "JOB", "TARGET", "NOTE")
        print_table(header, [_row(delivery) for delivery in page.deliveries])


@webhooks.command()
@click.argument("delivery_id")
@fleet_options
def show(delivery_id: str, url: str, api_key: str | None, as_json: bool) -> None:
    """Show a delivery and its log."""
    with fleet(url, api_key) as client:
        found = client.webhooks.delivery(delivery_id)
    if as_json:
        print_json(found)
        return
    _print(found)
    if found.log:
        header = ("TRY", "AT", "TOOK", "STATUS", "ERROR")
        rows = [
            (entry.number, time_of(entry.began_at), _took(entry.duration_s), entry.status, entry.error)
            for entry in found.log
        ]
        print_table(header, rows)


@webhooks.command()
@click.argument("delivery_id")
@fleet_options
def replay(delivery_id: str, url: str, api_key: str | None, as_json: bool) -> None:
    """Send a delivery once more, with the same id."""
    with fleet(url, api_key) as client:
        found = client.webhooks.replay(delivery_id)
    if as_json:
        print_json(found)
    else:
        print(f"{found.id} {found.state}")


@webhooks.command()
@click.option("--reveal", is_flag=True, show_envvar=True, help="Show the secrets themselves.")
@fleet_options
def secrets(reveal: bool, url: str, api_key: str | None, as_json: bool) -> None:
    """List what webhooks are signed with, newest first."""
    with fleet(url, api_key) as client:
        found = client.webhooks.secrets()
    if as_json:
        print_json({"secrets": [_shown(secret, reveal=reveal) for secret in found]})
        return
    rows = [
        (secret.id, time_of(secret.created_at), time_of(secret.expires_at) or "never", _text(secret, reveal=reveal))
        for secret in found
    ]
    print_table(("ID", "CREATED", "EXPIRES", "SECRET"), rows)


@webhooks.command()
@click.option(
    "--keep-old",
    "keep_old_s",
    type=click.FloatRange(min=0),
    envvar="BATCHFLEET_WEBHOOKS_ROTATE_KEEP_OLD",
    show_envvar=True,
    show_default="a day",
    help="Seconds for which the old secrets go on signing.",
)
@fleet_options
def rotate(keep_old_s: float | None, url: str, api_key: str | None, as_json: bool) -> int:
    """Make a new signing secret, and print it."""
    with fleet(url, api_key) as client:
        made = client.webhooks.rotate_secret(keep_old_s=keep_old_s)
    if as_json:
        print_json(_shown(made, reveal=True))
    else:
        print(made.secret)
    return Exit.OK


def _shown(secret: SigningSecret, *, reveal: bool) -> dict[str, object]:
    members = {
        "id": secret.id,
        "secret": _text(secret, reveal=reveal),
        "created_at": secret.created_at,
        "expires_at": secret.expires_at,
    }
    return {name: value for name, value in members.items() if value is not None}


def _text(secret: SigningSecret, *, reveal: bool) -> str:
    return secret.secret if reveal else "whsec_***"


def _print(delivery: Delivery) -> None:
    print(f"id       {delivery.id}")
    print(f"job      {delivery.job_id}")
    print(f"event    {delivery.event}")
    print(f"kind     {delivery.kind}")
    print(f"target   {delivery.target}")
    print(f"state    {delivery.state}, {_tries(delivery)}{_due(delivery)}")


def _tries(delivery: Delivery) -> str:
    """The log has all tries; the delivery counts those since it was replayed, which bound what is still to come."""
    tries = max(len(delivery.log or ()), delivery.attempts)
    told = f"{tries} {'try' if tries == 1 else 'tries'}"
    return told if tries == delivery.attempts else f"{told} ({delivery.attempts} since the replay)"


def _took(seconds: float | None) -> str:
    return "not finished" if seconds is None else f"{seconds:.3f} s"


def _due(delivery: Delivery) -> str:
    return f", next at {time_of(delivery.due_at)}" if delivery.state == "pending" and delivery.due_at else ""


def _row(delivery: Delivery) -> tuple[object, ...]:
    note = "" if delivery.state == "delivered" else delivery.last_error or ""
    return (
        delivery.id,
        delivery.kind,
        delivery.state,
        delivery.attempts,
        delivery.event,
        delivery.job_id,
        delivery.target,
        note,
    )

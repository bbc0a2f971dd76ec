"""`batchfleet healthy`: asks a process of this machine, as container engines do every few seconds."""

import http.client
import os
import socket
import sys
import time

import click

from batchfleet.cli.options import as_json_option, print_json
from batchfleet.cli.running import running_environment, running_workers, settings_of
from batchfleet.embedded.exits import Exit
from batchfleet.pulse import WORST_GAP_S, age_of, is_idle, pulse_path
from batchfleet.settings import Settings, read_settings

_ANSWER_S = 5.0
_OWN = ("BATCHFLEET_DATABASE_URL", "BATCHFLEET_STATE_DIR", "BATCHFLEET_WORKER_NAME", "BATCHFLEET_API_PORT")
"""Who states one of these means a process of his own."""
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - not where we listen


@click.command(epilog="The process and this command read the same settings: docs/reference/settings.md.")
@click.argument("part", type=click.Choice(("api", "worker", "scheduler")))
@as_json_option
def healthy(part: str, as_json: bool) -> int:
    """Ask whether a process of this machine is well.

    The API must be ready (`/readyz`); a worker must have loaded a model and hold its lease; a scheduler's loop must go
    round. Where the environment names none and `batchfleet up` runs here, its processes are asked: all its workers.
    Exits 0 if so, 1 if not.
    """
    settings, workers = _asked()
    if part == "api":
        wrong = _api(settings)
    elif part == "worker":
        found = (_beats(settings, part, name) for name in workers)
        wrong = "; ".join(reason for reason in found if reason is not None) or None
    else:
        wrong = _beats(settings, part, "")
    if as_json:
        print_json({"part": part, "healthy": wrong is None, **({"reason": wrong} if wrong else {})})
    else:
        print("healthy" if wrong is None else f"not healthy: {wrong}", file=sys.stdout if wrong is None else sys.stderr)
    return Exit.OK if wrong is None else Exit.FAILED


def _asked() -> tuple[Settings, list[str]]:
    """Returns the settings of the processes that are meant, and what the workers among them are called.

    Raises:
        SettingsError: If a setting cannot work.
    """
    if not any(name in os.environ for name in _OWN):
        running = running_environment()
        if running:
            return settings_of(running), running_workers()
    settings = read_settings()
    return settings, [settings.worker_name or socket.gethostname()]


def _api(settings: Settings) -> str | None:
    """Returns what keeps the API from its work, or None."""
    host = _ANY_ADDRESS.get(settings.api_host, settings.api_host)
    named = [name for name in settings.api_hosts if name != "*"]
    connection = http.client.HTTPConnection(host, settings.api_port, timeout=_ANSWER_S)
    try:
        connection.request("GET", "/readyz", headers={"Host": named[0]} if named else {})
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        return f"no answer from {host}:{settings.api_port}: {error}"
    finally:
        connection.close()
    return None if answer.status == http.client.OK else f"{answer.status} {text.strip()}"


def _beats(settings: Settings, part: str, name: str) -> str | None:
    """Returns why a process without HTTP is not well, or None."""
    path = pulse_path(settings.state_dir, part, name)
    if is_idle(path):
        return f"worker {name} has no model to serve: none could be loaded from {settings.models_url}"
    age_s = age_of(path, time.monotonic())
    if age_s is None:
        return f"no {part} beats in {path}: it is not there, not ready yet, or stopping"
    patience_s = WORST_GAP_S + (settings.sweep_s if part == "scheduler" else 0.0)
    return f"{path} is {age_s:.0f} s old" if age_s > patience_s else None

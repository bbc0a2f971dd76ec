"""Who runs the embedded Postgres: ourselves, or, where we are root, which it refuses to be run by, a system user."""

import contextlib
import os
import pwd
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from batchfleet.errors import BatchfleetError

_SYSTEM_USERS = ("postgres", "batchfleet")
"""The first that exists is taken."""


class PostgresServerError(BatchfleetError):
    """The embedded Postgres cannot be set up."""

    code = "postgres_unusable"


@dataclass(frozen=True, slots=True)
class ServerUser:
    """The system user that runs the server."""

    name: str
    uid: int
    gid: int


def server_user() -> ServerUser | None:
    """Returns who must run the server: None for ourselves, or a system user where we are root.

    Raises:
        PostgresServerError: If there is none and none can be made.
    """
    if os.geteuid() != 0:
        return None
    found = _existing_user()
    if found is None:
        command = ["useradd", "--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin"]
        with contextlib.suppress(OSError):  # another process may be quicker to it: what counts is that there is one
            subprocess.run([*command, _SYSTEM_USERS[-1]], check=False, capture_output=True)
        found = _existing_user()
    if found is None:
        raise PostgresServerError(
            "Postgres refuses to be run by root, and the system user 'batchfleet' for it could not be made: "
            "make it (useradd --system batchfleet), or run as an ordinary user"
        )
    return found


def own(user: ServerUser | None, *paths: Path) -> None:
    """Gives files to the server's user."""
    if user is not None:
        for path in paths:
            os.chown(path, user.uid, user.gid)


def run_as(user: ServerUser | None, command: Sequence[str], timeout_s: float) -> "subprocess.CompletedProcess[str]":
    """Runs a program of the server's to its end.

    Raises:
        PostgresServerError: If it cannot be started or does not end.
    """
    try:
        return subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            cwd="/",
            env=server_environment(),
            user=user.uid if user else None,
            group=user.gid if user else None,
            extra_groups=[] if user else None,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        who = f" as the user {user.name}" if user else ""
        raise PostgresServerError(f"{command[0]} cannot be run{who}: {error}") from error


def server_environment() -> dict[str, str]:
    """Returns the environment of the server: a locale or a PGDATA of the user's means nothing to it."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}


def _existing_user() -> ServerUser | None:
    for name in _SYSTEM_USERS:
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return ServerUser(name, entry.pw_uid, entry.pw_gid)
    return None

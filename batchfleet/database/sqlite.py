"""SQLite: one file shared by the processes of a machine; one writer at a time, readers never wait."""

import os
import sqlite3
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import orjson
import sqlalchemy as sa
from sqlalchemy.dialects import sqlite as sqlite_dialect

from batchfleet import clock
from batchfleet.database.statements import Dialect, Sql
from batchfleet.database.transaction import DuplicateRowError, Parameters, Row, Transaction
from batchfleet.database.trouble import unusable
from batchfleet.database.write_lock import WriteLock

T = TypeVar("T")

BUSY_TIMEOUT_S = 10.0
"""Only strangers to the write lock (a shell, a backup) can make a writer wait in SQLite itself."""

_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    # A commit that was answered survives a power cut.
    "PRAGMA synchronous = FULL",
    "PRAGMA cache_size = -16000",
    "PRAGMA temp_store = MEMORY",
    # Checkpoints copy each page once, however often it was written since the last one: fewer are cheaper.
    "PRAGMA wal_autocheckpoint = 2000",
    "PRAGMA journal_size_limit = 67108864",
    # Overwriting freed space with zeros costs CPU on every index change.
    "PRAGMA secure_delete = OFF",
)
_DIALECT = sqlite_dialect.dialect(paramstyle="named")


def database_file(database_url: str) -> Path:
    """Returns the file that a `sqlite:///path` URL names.

    Raises:
        ValueError: If it names none: a database in memory cannot be shared.
    """
    url = sa.make_url(database_url)
    if url.get_backend_name() != "sqlite" or not url.database or url.database == ":memory:":
        raise ValueError(f"not a SQLite file: {database_url}")
    return Path(url.database)


def make_private(database: Path) -> None:
    """Makes the file of a database, where there is none, so that nobody else can read it: secrets lie in it.

    What SQLite puts beside it gets the same mode.

    Raises:
        OSError: If it cannot be made.
    """
    with suppress(FileExistsError):
        # Not opened: to close it again would drop the locks that SQLite holds on it in this process.
        os.mknod(database, 0o600 | stat.S_IFREG)


def lock_file(database: Path) -> Path:
    """Returns the side file that writers of a database lock."""
    return database.with_name(database.name + ".lock")


class SqliteTransaction:
    """One connection in use; see `Transaction`."""

    dialect: Dialect = "sqlite"

    def __init__(self, connection: sqlite3.Connection, now: float) -> None:
        self._connection = connection
        self.now = now

    def rows(self, statement: Sql, parameters: Parameters) -> list[Row]:
        """Runs a statement and returns all its rows."""
        return self._connection.execute(statement.sqlite, parameters).fetchall()

    def change(self, statement: Sql, parameters: Parameters) -> int:
        """Runs a statement and returns how many rows it changed."""
        return self._connection.execute(statement.sqlite, parameters).rowcount

    def select(self, query: sa.Select[Any]) -> list[Row]:
        """Runs a query built with SQLAlchemy Core."""
        compiled = query.compile(dialect=_DIALECT, compile_kwargs={"render_postcompile": True})
        return self._connection.execute(str(compiled), compiled.params).fetchall()

    def insert(self, table: sa.Table, rows: Sequence[Row]) -> None:
        """Inserts many rows through one prepared statement."""
        try:
            self._connection.executemany(_insert_text(table), rows)
        except sqlite3.IntegrityError as exc:
            raise DuplicateRowError(str(exc)) from exc

    def ids(self, ids: Sequence[str]) -> str:
        """Returns ids as a JSON array."""
        return orjson.dumps(ids).decode()


class SqliteDatabase:
    """One writer connection, as many reader connections as threads read at once; see `Database`."""

    def __init__(self, path: Path, wall: clock.Wall) -> None:
        self._path = path
        self._wall = wall
        self._open_lock = threading.Lock()
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._lock = WriteLock(lock_file(self._path))
        self._writer: sqlite3.Connection | None = None
        self._flushes = True
        self._readers: deque[sqlite3.Connection] = deque()

    def write(self, work: Callable[[Transaction], T], *, durable: bool = True) -> T:
        """Runs work between `BEGIN IMMEDIATE` and `COMMIT`, in its turn among all writers."""
        self._notice_fork()
        with _translated(), self._lock.held():
            connection = self._writer_for(durable=durable)
            connection.execute("BEGIN IMMEDIATE")
            try:
                done = work(SqliteTransaction(connection, self._wall()))
                connection.execute("COMMIT")
            except BaseException:
                self._roll_back(connection)
                raise
            return done

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Runs work on a connection of its own, while others write."""
        self._notice_fork()
        with _translated():
            try:
                connection = self._readers.pop()
            except IndexError:
                connection = self._connect()
            try:
                return work(SqliteTransaction(connection, self._wall()))
            finally:
                self._readers.append(connection)

    def close(self) -> None:
        """Closes all connections and the side file."""
        self._notice_fork()
        with self._lock.held():
            if self._writer is not None:
                self._writer.close()
                self._writer = None
        self._lock.close()
        while self._readers:
            self._readers.pop().close()

    def _writer_for(self, *, durable: bool) -> sqlite3.Connection:
        """Returns the writer; without `durable` its commits wait for no disk, and go there with the next that does."""
        if self._writer is None:
            self._writer, self._flushes = self._connect(), True
        if self._flushes is not durable:
            self._writer.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._flushes = durable
        return self._writer

    def _connect(self) -> sqlite3.Connection:
        make_private(self._path)
        # isolation_level None is the driver's autocommit mode: transactions are ours alone.
        connection = sqlite3.connect(
            self._path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False, cached_statements=128
        )
        try:
            for pragma in _PRAGMAS:
                connection.execute(pragma)
        except BaseException:
            connection.close()
            raise
        return connection

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            # It cannot be trusted any more; the next writer opens another.
            self._writer = None
            connection.close()

    def _notice_fork(self) -> None:
        """Starts afresh in a forked child: it would share the parent's lock and corrupt its connections.

        The inherited connections are kept alive, unused: closing them here would drop the parent's file locks.
        """
        if os.getpid() == self._pid:
            return
        _inherited.append((self._writer, self._readers, self._lock))
        self._start()


_inherited: list[object] = []


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (sqlite3.OperationalError, sqlite3.DatabaseError, OSError) as exc:
        if isinstance(exc, sqlite3.ProgrammingError | sqlite3.IntegrityError | sqlite3.DataError):
            raise
        raise unusable(exc) from exc


@cache
def _insert_text(table: sa.Table) -> str:
    columns = ", ".join(f'"{column.name}"' for column in table.columns)
    marks = ", ".join("?" for _ in table.columns)
    return f"INSERT INTO {table.name} ({columns}) VALUES ({marks})"  # noqa: S608 - names from our metadata

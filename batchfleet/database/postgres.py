"""Postgres through psycopg: any number of writers; rows are locked, never the table."""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import psycopg
import sqlalchemy as sa
from psycopg import adapt, errors, pq
from sqlalchemy.dialects.postgresql.psycopg import dialect as psycopg_dialect

from batchfleet.database.metadata import HexId
from batchfleet.database.statements import Dialect, Sql
from batchfleet.database.transaction import DuplicateRowError, Parameters, Row, Transaction
from batchfleet.database.trouble import unusable
from batchfleet.errors import StoreUnavailableError

T = TypeVar("T")

TRIES = 5
"""How often a transaction is run that the server ended to let others on (deadlock, serialisation)."""

_SESSION = {
    # Nothing waits for ever: not a statement, not for a lock, nor a transaction whose process hangs.
    "statement_timeout": "30000",
    "lock_timeout": "10000",
    "idle_in_transaction_session_timeout": "60000",
    # Every statement of ours is written for an index. On a table that grew faster than it was analysed the planner
    # takes it for small and scans it, once per flow: measured, 28 s for a choice of jobs instead of 20 ms.
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    # Where an index has the order that a statement asks for, the statement was written for that index. A planner that
    # has seen the queue empty reads it through any index, and sorts.
    "enable_sort": "off",
    "enable_incremental_sort": "off",
    # Compiling costs more than any of them.
    "jit": "off",
    # One plan serves all parameters, since each leads through the same index: planning anew each time costs a settle
    # of sixteen jobs half of its time.
    "plan_cache_mode": "force_generic_plan",
}
_DEFAULTS = {
    "connect_timeout": "5",
    "tcp_user_timeout": "10000",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "application_name": "batchfleet",
}
_OPTIONS = " ".join(f"-c {name}={value}" for name, value in _SESSION.items())
# One message, one answer: the transaction and its time.
_BEGIN = "BEGIN; SELECT CAST(extract(epoch FROM clock_timestamp()) AS float8)"
_NOW = "SELECT CAST(extract(epoch FROM clock_timestamp()) AS float8)"
_UUID_OID = psycopg.adapters.types["uuid"].oid
_DIALECT = psycopg_dialect()  # type: ignore[no-untyped-call]

_AGAIN = (errors.DeadlockDetected, errors.SerializationFailure)
_AWAY = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    # After a failover, a connection to what is now a replica: the next one finds the new primary.
    errors.ReadOnlySqlTransaction,
    # We were stopped in the middle of a transaction, and are going on.
    errors.IdleInTransactionSessionTimeout,
)
_OLD_SCHEMA = (errors.UndefinedTable, errors.UndefinedColumn)

# First match: BigInteger is an Integer.
_COPY_TYPES: tuple[tuple[type[sa.types.TypeEngine[Any]], str], ...] = (
    (HexId, "uuid"),
    (sa.BigInteger, "int8"),
    (sa.Integer, "int4"),
    (sa.Double, "float8"),
    (sa.Text, "text"),
    (sa.LargeBinary, "bytea"),
)


class _HexDumper(adapt.Dumper):
    """Writes an id into a uuid column in binary."""

    format = pq.Format.BINARY
    oid = _UUID_OID

    def dump(self, obj: str) -> bytes:
        """Returns the 16 bytes."""
        return bytes.fromhex(obj)


class _HexLoader(adapt.Loader):
    """Reads a uuid as an id: 32 digits."""

    format = pq.Format.BINARY

    def load(self, data: adapt.Buffer) -> str:
        """Returns the digits."""
        return bytes(data).hex()


class PostgresTransaction:
    """One connection in use; see `Transaction`."""

    dialect: Dialect = "postgresql"

    def __init__(self, connection: psycopg.Connection[Row], now: float | None = None) -> None:
        self._connection = connection
        self._now = now

    @property
    def now(self) -> float:
        """Unix time of the server: of the start of a write, or when a read first asks."""
        if self._now is None:
            self._now = float(self._connection.execute(_NOW).fetchall()[0][0])
        return self._now

    def rows(self, statement: Sql, parameters: Parameters) -> list[Row]:
        """Runs a statement and returns all its rows."""
        return self._connection.execute(statement.postgresql, parameters, binary=True).fetchall()

    def change(self, statement: Sql, parameters: Parameters) -> int:
        """Runs a statement and returns how many rows it changed."""
        return self._connection.execute(statement.postgresql, parameters).rowcount

    def select(self, query: sa.Select[Any]) -> list[Row]:
        """Runs a query built with SQLAlchemy Core."""
        compiled = query.compile(dialect=_DIALECT, compile_kwargs={"render_postcompile": True})
        return self._connection.execute(str(compiled), compiled.params, binary=True).fetchall()

    def insert(self, table: sa.Table, rows: Sequence[Row]) -> None:
        """Inserts many rows by a binary COPY."""
        text, types = _copy(table)
        try:
            with self._connection.cursor() as cursor, cursor.copy(text) as copy:
                copy.set_types(types)
                for row in rows:
                    copy.write_row(row)
        except errors.UniqueViolation as exc:
            raise DuplicateRowError(str(exc)) from exc

    def ids(self, ids: Sequence[str]) -> str:
        """Returns ids as the text of an array."""
        return "{" + ",".join(ids) + "}"


class PostgresDatabase:
    """As many connections as threads use at once; see `Database`."""

    def __init__(self, url: sa.URL) -> None:
        self._conninfo = _with_defaults(conninfo(url))
        self._open_lock = threading.Lock()
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._idle: deque[psycopg.Connection[Row]] = deque()

    def write(self, work: Callable[[Transaction], T], *, durable: bool = True) -> T:  # noqa: ARG002 - see below
        """Runs work between `BEGIN` and `COMMIT`; again if the server ended it in favour of others.

        All of it is durable here: workers outlive the server's machine, and would go on with a claim that it forgot.
        """
        for left in reversed(range(TRIES)):
            try:
                with _translated(), self._begun() as (connection, now):
                    done = work(PostgresTransaction(connection, now))
                    connection.execute("COMMIT")
                    return done
            except _AGAIN as exc:
                if not left:
                    raise StoreUnavailableError("the database is too busy", detail=str(exc)) from exc
        raise AssertionError("unreachable")

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Runs work in autocommit; on another connection if an idle one turns out to be broken."""
        with _translated():
            while True:
                connection, fresh = self._take()
                try:
                    done = work(PostgresTransaction(connection))
                except psycopg.OperationalError:
                    connection.close()
                    if fresh:
                        raise
                except BaseException:
                    self._give_back(connection)
                    raise
                else:
                    self._give_back(connection)
                    return done

    def close(self) -> None:
        """Closes all idle connections."""
        self._notice_fork()
        while self._idle:
            self._idle.pop().close()

    @contextmanager
    def _begun(self) -> Iterator[tuple[psycopg.Connection[Row], float]]:
        connection, now = self._begin()
        try:
            yield connection, now
        except errors.ReadOnlySqlTransaction:
            connection.close()  # it would lead to the replica again
            raise
        finally:
            self._give_back(connection)

    def _begin(self) -> tuple[psycopg.Connection[Row], float]:
        """Begins a transaction; what breaks here has changed nothing, so that a stale connection is replaced."""
        while True:
            connection, fresh = self._take()
            try:
                cursor = connection.execute(_BEGIN)
                cursor.nextset()
                return connection, float(cursor.fetchall()[0][0])
            except BaseException as exc:
                connection.close()
                if fresh or not isinstance(exc, psycopg.OperationalError):
                    raise

    def _take(self) -> tuple[psycopg.Connection[Row], bool]:
        """Returns a connection, and whether it was opened just now."""
        self._notice_fork()
        try:
            return self._idle.pop(), False
        except IndexError:
            return self._connect(), True

    def _give_back(self, connection: psycopg.Connection[Row]) -> None:
        """Keeps a connection that is whole; whatever it was in the middle of is rolled back."""
        status = connection.info.transaction_status
        try:
            if status in {pq.TransactionStatus.INTRANS, pq.TransactionStatus.INERROR}:
                connection.execute("ROLLBACK")
                status = connection.info.transaction_status
        except psycopg.Error:
            status = pq.TransactionStatus.UNKNOWN
        if status is pq.TransactionStatus.IDLE:
            self._idle.append(connection)
        else:
            connection.close()

    def _connect(self) -> psycopg.Connection[Row]:
        # Autocommit mode of the driver: transactions are ours alone.
        connection: psycopg.Connection[Row] = psycopg.connect(self._conninfo, autocommit=True)
        connection.adapters.register_loader("uuid", _HexLoader)
        connection.adapters.register_dumper(None, _HexDumper)
        return connection

    def _notice_fork(self) -> None:
        """Starts afresh in a forked child; the inherited sockets are the parent's, and left alone."""
        if os.getpid() != self._pid:
            _inherited.append(self._idle)
            self._start()


_inherited: list[object] = []


def conninfo(url: sa.URL) -> str:
    """Returns a URL as libpq reads it, which knows nothing of `+` for a space or of several hosts in the query."""
    positional, named = _DIALECT.create_connect_args(url)  # type: ignore[no-untyped-call]
    return psycopg.conninfo.make_conninfo(*positional, **named)


def _with_defaults(given: str) -> str:
    """Returns connection parameters with ours, where the URL does not say otherwise."""
    stated = psycopg.conninfo.conninfo_to_dict(given)
    # Of two settings of one name the later one counts.
    options = " ".join(filter(None, (_OPTIONS, str(stated.get("options") or ""))))
    merged: dict[str, Any] = {**_DEFAULTS, **stated, "options": options}
    return psycopg.conninfo.make_conninfo(**merged)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except _AGAIN:
        raise
    except (*_AWAY, *_OLD_SCHEMA) as exc:
        raise unusable(exc) from exc


@cache
def _copy(table: sa.Table) -> tuple[str, list[str]]:
    columns = ", ".join(f'"{column.name}"' for column in table.columns)
    types = [_copy_type(column.type) for column in table.columns]
    return f"COPY {table.name} ({columns}) FROM STDIN (FORMAT BINARY)", types


def _copy_type(kind: sa.types.TypeEngine[Any]) -> str:
    return next(name for python, name in _COPY_TYPES if isinstance(kind, python))

"""Transactions, whichever the database: work is a function of a transaction, so that it can be run again.

`Database.write` gives work the database's time under its write lock and commits when it returns;
`Database.read` runs it without one. Operations are written against `Transaction` alone.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import sqlalchemy as sa

from batchfleet.database.statements import Dialect, Sql

T = TypeVar("T")
Row: TypeAlias = tuple[Any, ...]
Parameters: TypeAlias = Mapping[str, Any]


class DuplicateRowError(Exception):
    """A row with this key exists already; nothing of the transaction was applied."""


class Transaction(Protocol):
    """What an operation may ask for."""

    @property
    def dialect(self) -> Dialect:
        """Which database this is."""
        ...

    @property
    def now(self) -> float:
        """Unix time by the database's clock; in a write the same throughout."""
        ...

    def rows(self, statement: Sql, parameters: Parameters) -> list[Row]:
        """Runs a statement and returns all its rows."""
        ...

    def change(self, statement: Sql, parameters: Parameters) -> int:
        """Runs a statement and returns how many rows it changed."""
        ...

    def select(self, query: sa.Select[Any]) -> list[Row]:
        """Runs a query built with SQLAlchemy Core, for those whose conditions vary."""
        ...

    def insert(self, table: sa.Table, rows: Sequence[Row]) -> None:
        """Inserts many rows, values in the order of the table's columns.

        Raises:
            DuplicateRowError: If one exists.
        """
        ...

    def ids(self, ids: Sequence[str]) -> str:
        """Returns ids as the one parameter that `{in_ids}` reads."""
        ...


class Database(Protocol):
    """Where transactions come from. No connection is opened before the first one."""

    def write(self, work: Callable[[Transaction], T], *, durable: bool = True) -> T:
        """Runs work that changes rows; all of it is applied or nothing.

        Args:
            work: Run between begin and commit.
            durable: Whether a machine that loses its power must find it applied. Unset only for what is worthless once
                every process that could have seen it is gone (record 0024). The death of processes loses nothing.

        Raises:
            StoreUnavailableError: If the database cannot be reached.
        """
        ...

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Runs work that only reads; each statement sees what is committed when it starts.

        Raises:
            StoreUnavailableError: If the database cannot be reached.
        """
        ...

    def close(self) -> None:
        """Closes all connections."""
        ...

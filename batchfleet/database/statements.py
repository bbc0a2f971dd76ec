"""SQL text for two databases: written once where they agree, twice where they do not.

Parameters are written `:name`. A list of ids or of rows travels as one parameter; these are the fragments:

`{in_ids}`
    Follows a column: it is one of `:ids` (made by `Transaction.ids`).
`{state}`, `{jobs_state}`
    The state as a mere value. Where ids are given, only they should lead to rows; a plain `state = 'running'` lets
    a planner that takes the table for small walk a partial index instead, once per row (measured: 4 ms a row).
`{named}`
    The row of `jobs` is that of `r`, one of the rows of `:rows`; see `same`.
`{one_of}` … `{end}`
    Follow a column and enclose a selection of ids: it is one of these, which are found first. As a join of the two
    Postgres could turn it round.
`{skip_locked}`
    Ends a selection of rows that the same transaction changes next. SQLite has one writer and needs nothing.
`{no_bytes}`
    A value of zero bytes, which is not NULL. (SQLite's `substr` of an empty block is NULL.)
`{statement_now}`
    The time, in a read that asks for nothing else: on SQLite the parameter `:now`, on Postgres its own.
"""

import re
from dataclasses import dataclass
from typing import Literal

Dialect = Literal["sqlite", "postgresql"]

_PARAMETER = re.compile(r"(?<![:\w]):(\w+)")
_FRAGMENTS: dict[Dialect, dict[str, str]] = {
    "sqlite": {
        "in_ids": "IN (SELECT value FROM json_each(:ids))",
        "state": "+state",
        "jobs_state": "+jobs.state",
        "named": "jobs.id = r.id",
        "one_of": "IN (",
        "end": ")",
        "skip_locked": "",
        "no_bytes": "x''",
        "statement_now": ":now",
    },
    "postgresql": {
        "in_ids": "= ANY(CAST(:ids AS uuid[]))",
        "state": "state || ''",
        "jobs_state": "jobs.state || ''",
        "named": "jobs.id = ANY (ARRAY[r.id])",
        "one_of": "= ANY (ARRAY(",
        "end": "))",
        "skip_locked": "FOR UPDATE SKIP LOCKED",
        "no_bytes": "CAST('' AS bytea)",
        "statement_now": "CAST(extract(epoch FROM statement_timestamp()) AS float8)",
    },
}


@dataclass(frozen=True, slots=True)
class Sql:
    """One statement, ready for either driver."""

    sqlite: str
    postgresql: str

    def of(self, dialect: Dialect) -> str:
        """Returns the text for one driver."""
        return self.sqlite if dialect == "sqlite" else self.postgresql


def sql(sqlite: str, postgresql: str | None = None, **fragments: Sql) -> Sql:
    """Makes a statement; without a second text the first serves both. `{name}` inserts a fragment."""
    return Sql(_fill("sqlite", sqlite, fragments), _drive(_fill("postgresql", postgresql or sqlite, fragments)))


def fragment(text: str) -> Sql:
    """Makes a part of a statement, to be named in `sql`."""
    return Sql(_fill("sqlite", text, {}), _fill("postgresql", text, {}))


def same(reached: str, known: str) -> Sql:
    """Returns an equation of ids in a join that leads from one row to the other, and never back.

    Written plainly it could be turned round: on a table that Postgres takes for small, it walks the whole primary key
    and looks each row up among the known ones. This condition has an index, and no order worth walking along.

    Args:
        reached: Column of the table that is looked into.
        known: Where the id comes from.
    """
    return Sql(f"{reached} = {known}", f"{reached} = ANY (ARRAY[{known}])")


def records(name: str, **columns: str) -> Sql:
    """Returns a FROM item: the rows of the parameter `:rows`, a JSON array of arrays, by position.

    Args:
        name: Alias of the item.
        columns: Column names and their Postgres types.
    """
    lite = ", ".join(f"value ->> {at} AS {column}" for at, column in enumerate(columns))
    post = ", ".join(f"CAST(v ->> {at} AS {kind}) AS {column}" for at, (column, kind) in enumerate(columns.items()))
    return Sql(
        f"(SELECT {lite} FROM json_each(:rows)) AS {name}",  # noqa: S608 - names of ours
        f"(SELECT {post} FROM jsonb_array_elements(CAST(:rows AS jsonb)) AS e(v)) AS {name}",  # noqa: S608
    )


def _fill(dialect: Dialect, text: str, fragments: dict[str, Sql]) -> str:
    known = _FRAGMENTS[dialect] | {name: fragment.of(dialect) for name, fragment in fragments.items()}
    return text.format_map(known)


def _drive(text: str) -> str:
    """Writes parameters as psycopg wants them; `:block` travels as binary, since text would double its size."""
    escaped = text.replace("%", "%%")
    return _PARAMETER.sub(lambda match: f"%({match[1]}){'b' if match[1] == 'block' else 's'}", escaped)

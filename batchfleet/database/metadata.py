"""What all table definitions share: the one collection that migrations are compared with, and a type for ids."""

from typing import Any

import sqlalchemy as sa

metadata = sa.MetaData()


class HexId(sa.types.TypeDecorator[str]):
    """A job id: 32 hexadecimal digits in Python and on SQLite, a native uuid on Postgres."""

    impl = sa.Uuid(as_uuid=False)
    cache_ok = True

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> str | None:
        """Takes the dashes out that some drivers put in."""
        del dialect
        return None if value is None else value.replace("-", "")


def required(name: str, kind: Any) -> sa.Column[Any]:
    """Returns a column that is never NULL."""
    return sa.Column(name, kind, nullable=False)

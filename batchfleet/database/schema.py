"""Whether a database has a schema that this code can work with: one read of one row, cheap enough for every probe."""

from typing import Final

from batchfleet.database.statements import sql
from batchfleet.database.transaction import Transaction
from batchfleet.database.trouble import NO_SCHEMA
from batchfleet.errors import StoreUnavailableError

NEEDED: Final = "0005"
"""The newest revision that only adds: this code works from it on. Newer ones, of later versions, only add to it."""

_REVISION = sql("SELECT version_num FROM alembic_version")


def require_schema(tx: Transaction) -> None:
    """Returns if the schema is new enough.

    Raises:
        StoreUnavailableError: If the database was never brought to a schema, or not to this version's.
    """
    found = [str(revision) for (revision,) in tx.rows(_REVISION, {})]
    if not found or max(found) < NEEDED:
        detail = f"it has revision {max(found)}, and {NEEDED} is needed" if found else "it has no revision"
        raise StoreUnavailableError(NO_SCHEMA, detail=detail)

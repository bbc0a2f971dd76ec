"""What is wrong with a database, in words that anybody may read.

Drivers tell of hosts, users, files and the statement at hand. That belongs in the log; callers of the API and users of
the command line are told in one line what is wrong and, where there is something, what to do.
"""

import sqlite3
from typing import Final

from batchfleet.errors import StoreUnavailableError

NO_SCHEMA: Final = "the database has no (or an old) schema: run 'batchfleet db upgrade'"

_UNKNOWN: Final = "the log has more"
_BY_STATE: Final = {
    "28": "it refuses our user or password",
    "3D000": "there is no such database",
    "25006": "it takes no writes (a replica?)",
    "25P03": "a transaction of ours stood still for too long",
    "42501": "our user may not do this there",
    "53100": "its disk is full",
    "53200": "it is out of memory",
    "53300": "it has no connection left for us",
    "55P03": "a lock was held for too long",
    "57014": "a statement took too long",
    "57P01": "it is shutting down",
    "57P02": "it has crashed and is recovering",
    "57P03": "it is starting up or shutting down",
    "58030": "it cannot read or write its disk",
    "08": "the connection broke",
}
"""By SQLSTATE, or its class."""
_BY_TEXT: Final = (
    ("connection refused", "connection refused"),
    ("authentication failed", "it refuses our user or password"),
    ("no password supplied", "it refuses our user or password"),
    ("no pg_hba.conf entry", "it refuses our user or password"),
    ("starting up", "it is starting up"),
    ("shutting down", "it is shutting down"),
    ("recovery mode", "it has crashed and is recovering"),
    ("too many clients", "it has no connection left for us"),
    ("connection slots", "it has no connection left for us"),
    ("too many connections", "it has no connection left for us"),
    ("terminating connection", "the connection was ended"),
    ("connection reset", "the connection broke"),
    ("server closed the connection", "the connection broke"),
    ("the connection is closed", "the connection broke"),
    ("connection is lost", "the connection broke"),
    ("consuming input failed", "the connection broke"),
    ("failed to resolve host", "its host name is unknown"),
    ("could not translate host name", "its host name is unknown"),
    ("name or service not known", "its host name is unknown"),
    ("timeout expired", "no answer in time"),
    ("timed out", "no answer in time"),
    ("no route to host", "its host cannot be reached"),
    ("network is unreachable", "its host cannot be reached"),
    ("ssl", "no encrypted connection could be made"),
    ("certificate", "no encrypted connection could be made"),
    ("no such file or directory", "nothing listens on its socket"),
    ("no space left", "its disk is full"),
    ("does not exist", "there is no such database or user"),
    # SQLite
    ("database is locked", "another program has locked it"),
    ("database table is locked", "another program has locked it"),
    ("unable to open database file", "its file cannot be opened"),
    ("readonly database", "its file cannot be written"),
    ("disk is full", "its disk is full"),
    ("disk i/o error", "its disk cannot be read or written"),
    ("malformed", "its file is damaged"),
    ("not a database", "its file is no database"),
)
_OLD_STATES: Final = frozenset({"42P01", "42703"})
_OLD_TEXTS: Final = ("no such table", "no such column", "has no column named")


def unusable(error: BaseException, what: str = "the database does not answer") -> StoreUnavailableError:
    """Returns what to raise for a failure of a driver's or of the system's; what they said is its `detail`."""
    detail = " ".join(str(error).split())
    if lacks_schema(error):
        return StoreUnavailableError(NO_SCHEMA, detail=detail)
    return StoreUnavailableError(f"{what}: {words_for(error)}", detail=detail)


def lacks_schema(error: BaseException) -> bool:
    """Returns whether a table or a column is not there."""
    if getattr(error, "sqlstate", None) in _OLD_STATES:
        return True
    return isinstance(error, sqlite3.Error) and any(text in str(error) for text in _OLD_TEXTS)


def words_for(error: BaseException) -> str:
    """Returns what is wrong, without a word of the driver's."""
    state = getattr(error, "sqlstate", None) or ""
    if told := _BY_STATE.get(state) or _BY_STATE.get(state[:2]):
        return told
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    text = str(error).lower()
    return next((told for part, told in _BY_TEXT if part in text), _UNKNOWN)

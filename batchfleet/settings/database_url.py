"""The database's URL: what can be known of it without connecting. The text of an error shows no password."""

from typing import Final
from urllib.parse import quote, urlsplit

from batchfleet.settings.errors import PREFIX
from batchfleet.settings.urls import port_of

_DATABASES: Final = ("sqlite:///", "postgresql+psycopg://")
_WHOLE: Final = frozenset(
    {"connect_timeout", "tcp_user_timeout", "keepalives_idle", "keepalives_interval", "keepalives_count"}
)
_PLACE: Final = frozenset({"host", "hostaddr", "port", "password", "passfile", "service"})
_NOWHERE: Final = "/nonexistent/batchfleet"
"""A folder of Unix sockets that nobody has: libpq judges all options before it finds out."""


def check_database_url(url: str) -> str:
    """Returns the URL if a driver can use it.

    Raises:
        ValueError: If none can, whatever answers there.
    """
    if not url.startswith(_DATABASES):
        raise ValueError("must be sqlite:///path or postgresql+psycopg://user@host/database")
    if not url.startswith("sqlite"):
        _check_postgres(url)
    return url


def with_password(url: str, password: str) -> str:
    """Returns the URL with a password, which it must have room for."""
    parts = urlsplit(url)
    if parts.username is None or parts.password is not None:
        raise ValueError(f"must name a user and no password where {PREFIX}DATABASE_PASSWORD is set")
    user, _, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}:{quote(password, safe='')}@{host}").geturl()


def _check_postgres(url: str) -> None:
    if port_of(url) is None:
        raise ValueError("has no valid port (1 to 65535)")
    # Loaded only where Postgres is used, by whoever will use it anyway.
    import sqlalchemy as sa  # noqa: PLC0415
    from psycopg import Error, conninfo, pq  # noqa: PLC0415
    from sqlalchemy.dialects.postgresql.psycopg import dialect  # noqa: PLC0415

    try:
        positional, named = dialect().create_connect_args(sa.make_url(url))  # type: ignore[no-untyped-call]
        stated = conninfo.conninfo_to_dict(conninfo.make_conninfo(*positional, **named))
    except (sa.exc.ArgumentError, ValueError):
        raise ValueError("must be postgresql+psycopg://user@host:port/database?option=value") from None
    except Error as error:
        raise ValueError(_line(str(error))) from None
    ports = [port for port in str(stated.get("port") or "").split(",") if port]
    if any(not port.isdecimal() or not 0 < int(port) < 2**16 for port in ports):
        raise ValueError("has no valid port (1 to 65535)")
    for name in _WHOLE & stated.keys():
        if not str(stated[name]).removeprefix("-").isdecimal():
            raise ValueError(f"its {name} must be a whole number")
    others = {name: str(value) for name, value in stated.items() if value is not None and name not in _PLACE}
    # libpq knows best which values its options have; it looks at them before it looks for the server.
    tried = pq.PGconn.connect_start(conninfo.make_conninfo(host=_NOWHERE, **others).encode())
    said = tried.get_error_message() if tried.status == pq.ConnStatus.BAD else ""
    tried.finish()
    if said and _NOWHERE not in said:
        raise ValueError(_line(said))


def _line(text: str) -> str:
    return " ".join(text.split())

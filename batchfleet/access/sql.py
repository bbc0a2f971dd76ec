"""Keys and tenants in the database; see `AccessStore`."""

from collections.abc import Iterable, Sequence

import orjson
import sqlalchemy as sa

from batchfleet import clock
from batchfleet.access.keys import ApiKey, Role, WrittenKey
from batchfleet.access.tables import api_keys, tenants
from batchfleet.access.tenants import Tenant, is_tenant_name
from batchfleet.database.opening import open_database
from batchfleet.database.statements import records, sql
from batchfleet.database.transaction import Row, Transaction
from batchfleet.errors import InvalidRequestError
from batchfleet.objects.uri import parse_prefix

MAX_NAME_LENGTH = 100

_NAMED = records("named", id="text")
_COLUMNS = ", ".join(f"api_keys.{column.name}" for column in api_keys.columns)
_FIND = sql(f"SELECT DISTINCT {_COLUMNS} FROM {{named}} JOIN api_keys ON api_keys.id = named.id", named=_NAMED)  # noqa: S608 - names of ours
_REVOKE = sql("UPDATE api_keys SET revoked_at = :now WHERE id = :id AND revoked_at IS NULL")
_TOUCH = sql("UPDATE api_keys SET last_used_at = :now WHERE id IN (SELECT id FROM {named})", named=_NAMED)
_ADD_TENANT = sql("""
    INSERT INTO tenants (name, input_prefixes, output_prefixes, created_at) VALUES (:name, '[]', '[]', :now)
    ON CONFLICT (name) DO NOTHING
""")
_CHANGE_TENANT = sql("""
    UPDATE tenants SET input_prefixes = coalesce(CAST(:inputs AS text), input_prefixes),
                       output_prefixes = coalesce(CAST(:outputs AS text), output_prefixes)
    WHERE name = :name
""")


class SqlAccess:
    """Keys and tenants of one database. Nothing is connected before it is used.

    Args:
        database_url: `sqlite:///path` or `postgresql+psycopg://…`.
        wall: The time on SQLite. Postgres has its own.
    """

    def __init__(self, database_url: str, *, wall: clock.Wall = clock.wall) -> None:
        self._database = open_database(database_url, wall)

    def create_key(
        self, key: WrittenKey, *, tenant: str, name: str, roles: frozenset[Role], ttl_s: float | None = None
    ) -> ApiKey:
        """Stores a key's digest; makes the tenant if there is none of that name.

        Raises:
            InvalidRequestError: If the tenant's or the key's name cannot be one, or there is no role.
        """
        _check_names(tenant, name)
        if not roles:
            raise InvalidRequestError("a key needs at least one role", field="roles")

        def create(tx: Transaction) -> ApiKey:
            tx.change(_ADD_TENANT, {"name": tenant, "now": tx.now})
            expires_at = None if ttl_s is None else tx.now + ttl_s
            tx.insert(
                api_keys, [(key.id, tenant, name, _dump(sorted(roles)), key.digest, tx.now, expires_at, None, None)]
            )
            return _keys(tx, [key.id])[0]

        return self._database.write(create)

    def find_key(self, key_id: str) -> ApiKey | None:
        """Returns a key, usable or not; None if there is none of that id."""
        return next(iter(self.find_keys([key_id])), None)

    def find_keys(self, key_ids: Sequence[str]) -> list[ApiKey]:
        """Returns those of the keys that exist, in no particular order."""
        return self._database.read(lambda tx: _keys(tx, key_ids))

    def list_keys(self, tenant: str | None = None) -> list[ApiKey]:
        """Returns the keys (of the tenant, if given), newest first, revoked ones among them."""
        query = sa.select(api_keys).order_by(api_keys.c.created_at.desc(), api_keys.c.id)
        if tenant is not None:
            query = query.where(api_keys.c.tenant == tenant)
        return [_key(row) for row in self._database.read(lambda tx: tx.select(query))]

    def revoke_key(self, key_id: str) -> ApiKey | None:
        """Makes a key useless for good; None if there is none of that id. Idempotent: the first time stays."""

        def revoke(tx: Transaction) -> ApiKey | None:
            tx.change(_REVOKE, {"id": key_id, "now": tx.now})
            return next(iter(_keys(tx, [key_id])), None)

        return self._database.write(revoke)

    def touch_keys(self, key_ids: Sequence[str]) -> None:
        """Notes that the keys are in use now."""
        self._database.write(lambda tx: tx.change(_TOUCH, {"rows": _rows(key_ids), "now": tx.now}))

    def tenant(self, name: str) -> Tenant | None:
        """Returns a tenant; None if there is none of that name."""
        query = sa.select(tenants).where(tenants.c.name == name)
        found = self._database.read(lambda tx: tx.select(query))
        return _tenant(found[0]) if found else None

    def list_tenants(self) -> list[Tenant]:
        """Returns all tenants, by name."""
        found = self._database.read(lambda tx: tx.select(sa.select(tenants)))
        return sorted(map(_tenant, found), key=lambda tenant: tenant.name)  # not in the database's collation

    def put_tenant(
        self,
        name: str,
        *,
        input_prefixes: Sequence[str] | None = None,
        output_prefixes: Sequence[str] | None = None,
    ) -> Tenant:
        """Makes or changes a tenant; None leaves that list as it is.

        Raises:
            InvalidRequestError: If the name cannot be a tenant's, or a prefix is none; `field` names it.
        """
        _check_names(name)
        inputs, outputs = _prefixes(input_prefixes, "input_prefixes"), _prefixes(output_prefixes, "output_prefixes")

        def put(tx: Transaction) -> Tenant:
            tx.change(_ADD_TENANT, {"name": name, "now": tx.now})
            tx.change(_CHANGE_TENANT, {"name": name, "inputs": inputs, "outputs": outputs})
            return _tenant(tx.select(sa.select(tenants).where(tenants.c.name == name))[0])

        return self._database.write(put)

    def close(self) -> None:
        """Gives up connections."""
        self._database.close()


def _check_names(tenant: str, key: str = "") -> None:
    if not is_tenant_name(tenant):
        raise InvalidRequestError("a tenant's name is 1 to 64 of letters, digits, '.', '_' and '-'", field="tenant")
    if len(key) > MAX_NAME_LENGTH or not key.isprintable():
        raise InvalidRequestError(f"must be printable, and {MAX_NAME_LENGTH} characters at most", field="name")


def _prefixes(stated: Sequence[str] | None, field: str) -> str | None:
    """Returns prefixes as they are stored, each once, or None to leave them."""
    if stated is None:
        return None
    parsed = {parse_prefix(text, field=f"{field}[{index}]"): None for index, text in enumerate(stated)}
    return _dump(parsed)


def _keys(tx: Transaction, key_ids: Sequence[str]) -> list[ApiKey]:
    return [_key(row) for row in tx.rows(_FIND, {"rows": _rows(key_ids)})]


def _key(row: Row) -> ApiKey:
    key_id, tenant, name, roles, digest, created_at, expires_at, revoked_at, last_used_at = row
    return ApiKey(
        id=key_id,
        tenant=tenant,
        name=name,
        # A role that a later version knows gives nothing here.
        roles=frozenset(role for role in Role if role in orjson.loads(roles)),
        digest=digest,
        created_at=created_at,
        expires_at=expires_at,
        revoked_at=revoked_at,
        last_used_at=last_used_at,
    )


def _tenant(row: Row) -> Tenant:
    name, inputs, outputs, created_at = row
    return Tenant(
        name=name,
        input_prefixes=tuple(orjson.loads(inputs)),
        output_prefixes=tuple(orjson.loads(outputs)),
        created_at=created_at,
    )


def _rows(key_ids: Sequence[str]) -> str:
    return orjson.dumps([[key_id] for key_id in key_ids]).decode()


def _dump(values: Iterable[str]) -> str:
    return orjson.dumps(list(values)).decode()

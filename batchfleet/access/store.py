"""The port to keys and tenants. Synchronous, safe to call from any thread; each method is one transaction.

Implementation: `batchfleet.access.sql`, on SQLite and Postgres. Every method raises `StoreUnavailableError` when the
database cannot be reached.
"""

from collections.abc import Sequence
from typing import Protocol

from batchfleet.access.keys import ApiKey, Role, WrittenKey
from batchfleet.access.tenants import Tenant


class AccessStore(Protocol):
    """Keys and tenants."""

    def create_key(
        self, key: WrittenKey, *, tenant: str, name: str, roles: frozenset[Role], ttl_s: float | None = None
    ) -> ApiKey:
        """Stores a key's digest; makes the tenant if there is none of that name.

        Raises:
            InvalidRequestError: If the tenant's or the key's name cannot be one, or there is no role.
        """
        ...

    def find_key(self, key_id: str) -> ApiKey | None:
        """Returns a key, usable or not; None if there is none of that id."""
        ...

    def find_keys(self, key_ids: Sequence[str]) -> list[ApiKey]:
        """Returns those of the keys that exist, in no particular order: one statement, however many are asked for."""
        ...

    def list_keys(self, tenant: str | None = None) -> list[ApiKey]:
        """Returns the keys (of the tenant, if given), newest first, revoked ones among them."""
        ...

    def revoke_key(self, key_id: str) -> ApiKey | None:
        """Makes a key useless for good; None if there is none of that id. Idempotent: the first time stays."""
        ...

    def touch_keys(self, key_ids: Sequence[str]) -> None:
        """Notes that the keys are in use now."""
        ...

    def tenant(self, name: str) -> Tenant | None:
        """Returns a tenant; None if there is none of that name."""
        ...

    def list_tenants(self) -> list[Tenant]:
        """Returns all tenants, by name."""
        ...

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
        ...

    def close(self) -> None:
        """Gives up connections."""
        ...

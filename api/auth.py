"""Who asks: the API key of a request → a tenant and roles, or a refusal.

Each handler asks first, before it looks at anything else of the request, so that strangers learn nothing but that
they are strangers. Open to all are `/healthz` and `/readyz` (load balancers and supervisors have no keys, and learn
only whether the process works) and `/docs` and `/openapi.json` (they are the same for everybody, and published).

A request costs a look into a cache, a digest and a comparison: some microseconds.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from api.coalesce import Coalescer
from api.known import KnownRows
from api.problems import ForbiddenError, UnauthenticatedError
from api.respond import AnyRequest
from batchfleet.access.keys import ROLES, ApiKey, Role, read_key
from batchfleet.access.store import AccessStore
from batchfleet.access.tenants import DEFAULT_TENANT
from batchfleet.clock import Monotonic, Wall, monotonic
from batchfleet.errors import BatchfleetError
from batchfleet.logs import bind_fields

logger = logging.getLogger(__name__)

MAX_KEYS_PER_READ = 1_000
MAX_KEYS_WAITING = 10_000
"""Keys that wait to be looked up; over this a request with yet another one is answered 429."""

TOUCH_EVERY_S = 60.0
"""How often the use of a key is noted."""

_NOBODYS = ApiKey(id="", tenant="", name="", roles=frozenset(), digest="0" * 64, created_at=0.0, revoked_at=0.0)
"""Compared with where there is no key, so that the time tells nothing."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Whom a request is from.

    Attributes:
        tenant: Whose jobs it may see and make.
        roles: What it may do; `admin` holds all.
        key_id: The key it came with; None where it needed none.
    """

    tenant: str
    roles: frozenset[Role]
    key_id: str | None


ANYBODY = Caller(DEFAULT_TENANT, frozenset(ROLES), None)
"""A request without a key, where none is asked for."""


class Authenticator:
    """Knows callers by their keys.

    Args:
        access: Where keys are.
        required: Whether a request without a key is refused.
        fresh_s: For how long what is known of a key is trusted.
        clock: Measures that.
        wall: The time, for keys that expire.
    """

    def __init__(
        self,
        access: AccessStore,
        *,
        required: bool,
        fresh_s: float,
        clock: Monotonic = monotonic,
        wall: Wall = time.time,
    ) -> None:
        self.required = required
        self._access = access
        self._clock = clock
        self._wall = wall
        # One statement at a time, whatever comes: a flood of made-up keys cannot fill the database.
        self._reader: Coalescer[str, ApiKey | None] = Coalescer(
            "keys", self._find, max_group=MAX_KEYS_PER_READ, max_waiting=MAX_KEYS_WAITING
        )
        self._keys: KnownRows[ApiKey] = KnownRows(self._reader.ask, fresh_s=fresh_s, clock=clock)
        self._touched: dict[str, float] = {}
        self._untold: list[str] = []
        self._telling: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts the reader; call it on the running event loop."""
        self._reader.start()
        if self.required:
            self._telling = asyncio.ensure_future(self._warn_if_none())

    async def close(self) -> None:
        """Notes the last uses and ends the reader; idempotent."""
        if self._telling is not None:
            await asyncio.wait([self._telling])
        await self._reader.close()

    async def caller(self, request: AnyRequest, role: Role) -> Caller:
        """Returns whom a request is from.

        Raises:
            UnauthenticatedError: If it has no key and needs one, or a key that does not open anything (any more).
            ForbiddenError: If its key does not have the role.
            UnavailableError: If the key is not known here yet, and the database cannot be asked.
        """
        stated = _stated(request.scope["headers"])
        if stated is None and not self.required:
            return ANYBODY
        written = read_key(stated) if stated is not None else None
        if written is None:
            raise UnauthenticatedError
        key = await self._keys.get(written.id)
        if not written.opens(key or _NOBODYS) or key is None or not key.usable(self._wall()):
            raise UnauthenticatedError
        if not key.allows(role):
            raise ForbiddenError(f"this needs the role '{role}', which the key {key.id} does not have")
        if self._clock() >= self._touched.get(key.id, 0.0):
            self._touch(key.id)
        bind_fields(tenant=key.tenant, key=key.id)
        return Caller(key.tenant, key.roles, key.id)

    def _find(self, group: list[str]) -> Sequence[ApiKey | None]:
        found = {key.id: key for key in self._access.find_keys(group)}
        return [found.get(key_id) for key_id in group]

    def _touch(self, key_id: str) -> None:
        """Has the use of a key noted in a moment, together with others'."""
        self._touched[key_id] = self._clock() + TOUCH_EVERY_S
        self._untold.append(key_id)
        if self._telling is None:
            self._telling = asyncio.ensure_future(self._tell())

    async def _warn_if_none(self) -> None:
        """Says once what the first 401 would leave its reader to find out."""
        try:
            if not any(key.usable(self._wall()) for key in await asyncio.to_thread(self._access.list_keys)):
                logger.warning("API keys are required and there is none: make one with 'batchfleet keys create'")
        except BatchfleetError as exc:
            logger.debug("cannot tell whether there are keys: %s", exc)
        await self._tell()

    async def _tell(self) -> None:
        while self._untold:
            told, self._untold = self._untold, []
            try:
                await asyncio.to_thread(self._access.touch_keys, told)
            except BatchfleetError as exc:
                logger.debug("the use of %d keys was not noted: %s", len(told), exc)
        self._telling = None


def _stated(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Returns the key that a request states, None if none; one that states two different ones states a wrong one.

    An `Authorization` of another scheme is not for us: a proxy before us may ask for a password.
    """
    found: bytes | None = None
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            stated = value[7:].strip()
        elif name == b"x-api-key":
            stated = value
        else:
            continue
        if found is not None and found != stated:
            return ""
        found = stated
    return None if found is None else found.decode("latin-1")

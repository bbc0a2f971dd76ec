"""API keys: made, written, read and compared; nothing here is stored in the clear.

A key is `bf_<16 hex>_<43 characters>`: the first part names its row, the second is 256 random bits. Of the second
only a digest is kept. A plain SHA-256 serves: what is guessed is not a password but 256 bits.
"""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_FORM: Final = re.compile(r"bf_([0-9a-f]{16})_([A-Za-z0-9_-]{43})", re.ASCII)


class Role(StrEnum):
    """What a key may do for its tenant."""

    SUBMIT = "submit"
    """Submit, cancel and delete jobs."""
    READ = "read"
    """Look at jobs, results, models and figures."""
    ADMIN = "admin"
    """All of that, and the secrets that the tenant's webhooks are signed with."""


ROLES: Final = tuple(Role)
DEFAULT_ROLES: Final = frozenset({Role.SUBMIT, Role.READ})


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key as stored. Times are Unix seconds of the database's clock.

    Attributes:
        id: 16 hexadecimal digits; safe to show and to log.
        name: For people.
        digest: SHA-256 of the secret part, hexadecimal.
        last_used_at: Accurate to about a minute; None if never.
    """

    id: str
    tenant: str
    name: str
    roles: frozenset[Role]
    digest: str
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    last_used_at: float | None = None

    def usable(self, now: float) -> bool:
        """Returns whether it still opens anything."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def allows(self, role: Role) -> bool:
        """Returns whether it has the role; `admin` has all."""
        return role in self.roles or Role.ADMIN in self.roles


@dataclass(frozen=True, slots=True)
class WrittenKey:
    """A key as its owner writes it, taken apart."""

    id: str
    secret: str

    @property
    def text(self) -> str:
        """The key itself: shown once, when it is made."""
        return f"bf_{self.id}_{self.secret}"

    @property
    def digest(self) -> str:
        """What is stored of the secret."""
        return hashlib.sha256(self.secret.encode("ascii")).hexdigest()

    def opens(self, key: ApiKey) -> bool:
        """Returns whether it is this key, in a time that tells nothing."""
        return hmac.compare_digest(self.digest, key.digest)

    def __repr__(self) -> str:
        return f"WrittenKey(id={self.id!r}, secret=***)"


def new_key() -> WrittenKey:
    """Returns a fresh random key."""
    return WrittenKey(secrets.token_hex(8), secrets.token_urlsafe(32))


def read_key(text: str) -> WrittenKey | None:
    """Takes apart what a client sent; None if it is no key."""
    found = _FORM.fullmatch(text)
    return WrittenKey(found[1], found[2]) if found else None

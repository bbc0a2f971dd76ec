"""Signing secrets in the database: made at first need, rotated with an overlap, sealed where there is a key."""

import hashlib
from typing import Final

import uuid_utils

from batchfleet.database.statements import sql
from batchfleet.database.transaction import Transaction
from batchfleet.outbox.delivery import SigningSecret
from batchfleet.outbox.sealing import Sealer
from batchfleet.outbox.signature import new_secret

MOST_IN_USE: Final = 10
"""Secrets of a tenant that sign: each makes the header longer, and receivers bound theirs (often at 8 KiB)."""

_IN_USE = sql(
    """
    SELECT id, tenant, secret, created_at, expires_at FROM webhook_secrets
    WHERE tenant = :tenant AND (expires_at IS NULL OR expires_at > :now) ORDER BY created_at DESC, id DESC
    LIMIT :most
    """,
)
_ADD = sql(
    """
    INSERT INTO webhook_secrets (id, tenant, secret, created_at) VALUES (:id, :tenant, :secret, :now)
    ON CONFLICT (id) DO NOTHING
    """,
)
_RETIRE = sql(
    """
    UPDATE webhook_secrets SET expires_at = :until
    WHERE tenant = :tenant AND (expires_at IS NULL OR expires_at > :until)
    """,
)
_DROP = sql(
    """
    DELETE FROM webhook_secrets WHERE tenant = :tenant AND id NOT IN (
        SELECT id FROM webhook_secrets WHERE tenant = :tenant AND (expires_at IS NULL OR expires_at > :now)
        ORDER BY created_at DESC, id DESC LIMIT :most)
    """,
)
_FORGET = sql("DELETE FROM webhook_secrets WHERE expires_at < :now")


def in_use(tx: Transaction, tenant: str, sealer: Sealer) -> list[SigningSecret]:
    """Returns the secrets that sign now, newest first."""
    return [
        SigningSecret(id=key, tenant=owner, secret=sealer.open(secret), created_at=created_at, expires_at=expires_at)
        for key, owner, secret, created_at, expires_at in tx.rows(
            _IN_USE, {"tenant": tenant, "now": tx.now, "most": MOST_IN_USE}
        )
    ]


def make_first(tx: Transaction, tenant: str, sealer: Sealer) -> list[SigningSecret]:
    """Makes a tenant's first secret. Its id follows from the tenant, so that two who make it at once make one."""
    first = hashlib.sha256(f"first secret of {tenant}".encode()).hexdigest()[:32]
    secret = sealer.seal(new_secret())
    tx.change(_ADD, {"id": first, "tenant": tenant, "secret": secret, "now": tx.now})
    return in_use(tx, tenant, sealer)


def rotate(tx: Transaction, tenant: str, keep_old_s: float, sealer: Sealer) -> SigningSecret:
    """Makes a new secret; the old ones expire, and the oldest of more than `MOST_IN_USE` sign no more."""
    made = SigningSecret(id=uuid_utils.uuid7().hex, tenant=tenant, secret=new_secret(), created_at=tx.now)
    tx.change(_RETIRE, {"tenant": tenant, "until": tx.now + keep_old_s})
    tx.change(_ADD, {"id": made.id, "tenant": tenant, "secret": sealer.seal(made.secret), "now": tx.now})
    tx.change(_DROP, {"tenant": tenant, "now": tx.now, "most": MOST_IN_USE})
    return made


def forget_expired(tx: Transaction) -> None:
    """Removes secrets that sign no more."""
    tx.change(_FORGET, {"now": tx.now})

"""Signatures of webhooks, as the specification *Standard Webhooks* has them. Pure; receivers verify with it, too.

Three headers travel with each: `webhook-id` (the same over all attempts: what a receiver drops doubles by),
`webhook-timestamp` (Unix seconds of the attempt) and `webhook-signature`: for each secret in use
`v1,<base64 of HMAC-SHA256 over "id.timestamp.body">`, separated by spaces, so that secrets change without a gap.
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets as random
import time
from collections.abc import Mapping, Sequence
from typing import Final

from batchfleet.errors import BatchfleetError

SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - a prefix
TOLERANCE_S: Final = 300.0
"""How far the clocks of sender and receiver may differ; what is older may be a recording."""

ID_HEADER: Final = "webhook-id"
TIMESTAMP_HEADER: Final = "webhook-timestamp"
SIGNATURE_HEADER: Final = "webhook-signature"

_VERSION: Final = "v1"
_SECRET_BYTES: Final = 32
_LEAST_BYTES: Final = 24
_MOST_BYTES: Final = 64
"""What Standard Webhooks allows. Anybody signs with an empty key, or a guessed one."""
_SECONDS: Final = re.compile(r"[0-9]{1,15}", re.ASCII)


class WebhookVerificationError(BatchfleetError):
    """A webhook is not from who it should be from, was changed on its way, or is too old."""


def new_secret() -> str:
    """Returns a fresh random secret."""
    return SECRET_PREFIX + base64.b64encode(random.token_bytes(_SECRET_BYTES)).decode()


def webhook_id(delivery_id: str) -> str:
    """Returns a delivery's id as receivers see it."""
    return f"msg_{delivery_id}"


def sign(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """Returns one signature, `v1,…`.

    Args:
        secret: `whsec_` and the base64 of 24 to 64 bytes.
        message_id: The `webhook-id`.
        timestamp: Unix seconds.
        body: The bytes of the request's body, exactly.

    Raises:
        ValueError: If the secret is none.
    """
    return _signed_with(_keys_of([secret])[0], message_id, timestamp, body)


def signature_headers(secrets: Sequence[str], message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Returns the three headers of a webhook, signed with each of the secrets.

    Raises:
        ValueError: If one of the secrets is none.
    """
    keys = _keys_of(secrets)
    return {
        ID_HEADER: message_id,
        TIMESTAMP_HEADER: str(timestamp),
        SIGNATURE_HEADER: " ".join(_signed_with(key, message_id, timestamp, body) for key in keys),
    }


def verify_webhook(
    secrets: str | Sequence[str],
    headers: Mapping[str, str],
    body: bytes,
    *,
    tolerance_s: float = TOLERANCE_S,
    now: float | None = None,
) -> str:
    """Checks that a webhook comes from a holder of the secret, unchanged and fresh.

    Args:
        secrets: The secret, or several while they are being changed.
        headers: All headers of the request; their case does not matter.
        body: The bytes of its body, before anything parsed them.
        tolerance_s: How old (or how far in the future) it may be.
        now: Unix seconds; default: this machine's time.

    Returns:
        The `webhook-id`: the same for each repetition, so that a receiver can drop those.

    Raises:
        WebhookVerificationError: If it is not to be trusted.
        ValueError: If one of the secrets is none (an empty one, above all): whatever the message.
    """
    keys = _keys_of([secrets] if isinstance(secrets, str) else secrets)
    lower = {name.lower(): value for name, value in headers.items()}
    try:
        message_id, stated, signatures = (lower[name] for name in (ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER))
    except KeyError as exc:
        raise WebhookVerificationError(f"the header {exc.args[0]} is missing") from None
    if not _SECONDS.fullmatch(stated):
        raise WebhookVerificationError(f"{TIMESTAMP_HEADER} is no Unix time in seconds")
    timestamp = int(stated)
    if abs((time.time() if now is None else now) - timestamp) > tolerance_s:
        raise WebhookVerificationError("it is too old, or the clocks differ")
    expected = [_signed_with(key, message_id, timestamp, body).encode() for key in keys]
    # Each is compared with each, to the end: the time taken tells nothing.
    matches = [hmac.compare_digest(ours, theirs.encode()) for ours in expected for theirs in signatures.split(" ")]
    if not any(matches):
        raise WebhookVerificationError("no signature is of a secret at hand")
    return message_id


def _signed_with(key: bytes, message_id: str, timestamp: int, body: bytes) -> str:
    signed = b"%s.%d.%s" % (message_id.encode(), timestamp, body)
    return f"{_VERSION},{base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()}"


def _keys_of(secrets: Sequence[str]) -> list[bytes]:
    """Returns the keys of secrets. One that is none is named by its place: its text may be half a secret."""
    keys = [_key_of(secret) for secret in secrets]
    for place, key in enumerate(keys, 1):
        if key is None:
            which = "the secret" if len(keys) == 1 else f"secret {place} of {len(keys)}"
            raise ValueError(
                f"{which} is not a webhook secret: whsec_ and the base64 of {_LEAST_BYTES} to {_MOST_BYTES} bytes"
            )
    return [key for key in keys if key is not None]


def _key_of(secret: str) -> bytes | None:
    if not secret.startswith(SECRET_PREFIX):
        return None
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if _LEAST_BYTES <= len(key) <= _MOST_BYTES else None

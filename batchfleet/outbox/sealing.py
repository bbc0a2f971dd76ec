"""Secrets at rest: sealed with a key that is not in the database, so that a copy of it forges no webhook.

Stored is `sealed:<token>`, or `plain:<secret>` where there is no key; a deployment that gets one later reads the
latter still. The first of several keys seals and all of them open, so that keys can be changed.
"""

from collections.abc import Sequence
from typing import Final

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from batchfleet.errors import UnavailableError
from batchfleet.settings import Settings

_SEALED: Final = "sealed:"
_PLAIN: Final = "plain:"


class SealedError(UnavailableError):
    """What is stored was sealed with a key that this process does not have."""


class Sealer:
    """Seals and opens texts.

    Args:
        keys: Each 32 bytes in base64; none to store in the clear.

    Raises:
        ValueError: If one is no key.
    """

    def __init__(self, keys: Sequence[str] = ()) -> None:
        self._fernet = MultiFernet([Fernet(key.translate(_URL_SAFE)) for key in keys]) if keys else None

    def seal(self, text: str) -> str:
        """Returns what to store."""
        if self._fernet is None:
            return _PLAIN + text
        return _SEALED + self._fernet.encrypt(text.encode()).decode()

    def open(self, stored: str) -> str:
        """Returns the text of what is stored.

        Raises:
            SealedError: If no key at hand opens it.
        """
        if stored.startswith(_PLAIN):
            return stored.removeprefix(_PLAIN)
        if self._fernet is None:
            raise SealedError("a webhook secret is sealed, and BATCHFLEET_SECRET_KEY is not set here")
        try:
            return self._fernet.decrypt(stored.removeprefix(_SEALED).encode()).decode()
        except InvalidToken:
            raise SealedError("a webhook secret is sealed with a key that is not in BATCHFLEET_SECRET_KEY") from None


def sealer_of(settings: Settings) -> Sealer:
    """Returns the sealer with the keys of `BATCHFLEET_SECRET_KEY`."""
    stated = settings.secret_key.get_secret_value() if settings.secret_key else ""
    return Sealer([key.strip() for key in stated.split(",") if key.strip()])


_URL_SAFE: Final = str.maketrans("+/", "-_")

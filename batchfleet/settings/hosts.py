"""Where an API may listen without asking for keys."""

import ipaddress

from batchfleet.settings.errors import PREFIX, UnsafeHostError


def is_loopback(host: str) -> bool:
    """Returns whether only this machine can reach what listens there."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def keys_required(host: str, require_keys: bool | None) -> bool:
    """Returns whether requests need an API key: as set, and by default where others can reach the host."""
    return not is_loopback(host) if require_keys is None else require_keys


def check_host(host: str, *, require_keys: bool | None = None, named: str = f"{PREFIX}API_HOST") -> None:
    """Lets loopback pass, and any host where requests need keys.

    Args:
        host: Where to listen.
        require_keys: As the settings say.
        named: What the user knows the setting by.

    Raises:
        UnsafeHostError: If others could reach it without a key.
    """
    if not is_loopback(host) and not keys_required(host, require_keys):
        raise UnsafeHostError(
            f"{named} {host}: others could reach it without a key; leave out {PREFIX}REQUIRE_KEYS=false, or listen "
            "on loopback (127.0.0.1, ::1 or localhost)"
        )

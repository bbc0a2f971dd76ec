"""Values that are neither numbers nor URLs."""

import base64
import ipaddress
import re
from typing import Final

from pydantic import SecretStr

_GPU: Final = re.compile(r"[0-9]{1,4}|(GPU|MIG)-[A-Za-z0-9/-]+")
_URL_SAFE: Final = str.maketrans("+/", "-_")


def check_networks(networks: tuple[str, ...]) -> tuple[str, ...]:
    """Returns networks.

    Raises:
        ValueError: If one is none.
    """
    for text in networks:
        try:
            ipaddress.ip_network(text)
        except ValueError as exc:
            raise ValueError(f"each must be a network such as 10.0.0.0/8: {exc}") from None
    return networks


def check_devices(devices: str) -> str:
    """Returns which GPUs workers get: `auto`, `none`, or names separated by commas.

    Raises:
        ValueError: If it is neither.
    """
    if devices not in {"auto", "none"}:
        for name in devices.split(","):
            if not _GPU.fullmatch(name):
                raise ValueError(
                    f"must be auto, none, or GPUs by comma (numbers from 0, or ids GPU-… and MIG-…): {name!r} is no GPU"
                )
    return devices


def check_sealing_keys(keys: SecretStr) -> SecretStr:
    """Returns comma-separated keys, each 32 bytes in base64.

    Raises:
        ValueError: If one is none; it is not shown.
    """
    for key in keys.get_secret_value().split(","):
        try:
            raw = base64.b64decode(key.strip().translate(_URL_SAFE), altchars=b"-_", validate=True)
        except ValueError:
            raw = b""
        if len(raw) != 32:
            raise ValueError("each key must be 32 bytes in base64 (head -c 32 /dev/urandom | base64)")
    return keys

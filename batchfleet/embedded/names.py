"""What the workers of `batchfleet up` are called."""

import socket


def worker_names(count: int) -> list[str]:
    """Returns the names of so many workers of this machine."""
    return [f"{socket.gethostname()}-{slot}" for slot in range(count)]

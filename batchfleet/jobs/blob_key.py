"""Which run of which job a result blob belongs to, read from its key: `<job>/<epoch>`."""

import re

from batchfleet.jobs.job import JobId

MAX_EPOCH = 2**63 - 1
"""What a column holds; no job has a higher one."""

_KEY = re.compile(r"([0-9a-f]{32})/(0|[1-9][0-9]{0,18})", re.ASCII)


def read_blob_key(key: str) -> tuple[JobId, int] | None:
    """Returns the job and the epoch that a blob's key names; None where it is not the key of a result."""
    found = _KEY.fullmatch(key)
    if found is None or int(found[2]) > MAX_EPOCH:
        return None
    return found[1], int(found[2])

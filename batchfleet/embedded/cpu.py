"""CPU time by process of a running fleet, from `/proc`."""

import time
from collections.abc import Mapping

from batchfleet.embedded.processes import childrens_cpu_s, members, read_stat
from batchfleet.embedded.stack import StackInfo

ROLES = ("api", "worker", "scheduler", "valkey", "postgres", "supervisor", "client")


def snapshot(info: StackInfo) -> dict[str, float]:
    """Returns the CPU seconds used so far by role: workers (with their keepers) together, and this process as `client`.

    What ended (and was reaped by the supervisor) since the fleet started is `ended`: with it nothing that was
    spent is lost when a part is restarted.
    """
    used = dict.fromkeys((*ROLES, "ended"), 0.0)
    roles = {pid: role_of(name) for name, pid in info.pids.items()}
    for stat in members(roles):
        used[roles[stat.group]] += stat.cpu_s
        if roles[stat.group] == "postgres":  # a process a connection, each in a group of its own
            used["postgres"] += childrens_cpu_s(stat.pid)
    supervisor = read_stat(info.pid)
    if supervisor is not None:
        used["supervisor"] = supervisor.cpu_s
        used["ended"] = supervisor.reaped_cpu_s
    used["client"] = time.process_time()
    return used


def spent(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Returns what was used between two snapshots; roles that used nothing stay in, at 0.

    A part that ended in between counts in full as `ended`, what it had used before included.
    """
    return {role: max(0.0, after[role] - before[role]) for role in after}


def role_of(name: str) -> str:
    """Returns the role of a child: `worker-3` is a `worker`."""
    return name.partition("-")[0]

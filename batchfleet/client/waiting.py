"""Waiting for many jobs at little cost: when to look, and at which jobs. Pure, apart from the two calls it is given.

A fleet ends jobs roughly in the order of their submission, so only the oldest pending ones are looked up, a
thousand at a time. Between two looks the client does not sleep blindly but long-polls one of them: the server
answers the moment that job ends.
"""

import time
from collections.abc import Callable, Iterable, Sequence

from batchfleet.client.errors import WaitTimeoutError

LOOKUP_LIMIT = 1_000
_SHORTEST_S = 0.02
_LONGEST_S = 2.0

LookUp = Callable[[Sequence[str]], dict[str, str]]
"""Returns the status of each of the jobs that has ended."""
WaitFor = Callable[[str, float], None]
"""Returns when the job has ended, or after that many seconds."""


def wait_for_all(
    ids: Iterable[str],
    *,
    look_up: LookUp,
    wait_for: WaitFor,
    timeout_s: float | None,
    progress: Callable[[int], None],
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, str]:
    """Returns the final status of each job, in the order given.

    Args:
        ids: The jobs; repeated ids count once.
        look_up: Asks which have ended.
        wait_for: Waits for one.
        timeout_s: How long at most; None for ever.
        clock: Monotonic seconds.
        progress: Called with the number of jobs that have ended, whenever it grew.

    Raises:
        WaitTimeoutError: If they have not all ended after `timeout_s` seconds.
    """
    order = list(dict.fromkeys(ids))
    pending, ended = list(order), dict[str, str]()
    began = clock()
    while pending:
        head = pending[:LOOKUP_LIMIT]
        found = look_up(head)
        waiting = [job_id for job_id in head if job_id not in found]
        pending = waiting + pending[LOOKUP_LIMIT:]
        ended.update(found)
        if found:
            progress(len(ended))
        elapsed_s = clock() - began
        if timeout_s is not None and pending and elapsed_s >= timeout_s:
            raise WaitTimeoutError(pending)
        if waiting and (2 * len(waiting) > len(head) or len(waiting) == len(pending)):
            pause_s = pause(len(waiting), ended=len(ended), elapsed_s=elapsed_s)
            # Of this head, the last one: when it ends, most of the others have.
            wait_for(waiting[-1], pause_s if timeout_s is None else min(pause_s, timeout_s - elapsed_s))
    return {job_id: ended[job_id] for job_id in order}


def pause(left: int, *, ended: int, elapsed_s: float) -> float:
    """Returns how long `left` jobs may take, judged by the pace so far, within bounds."""
    if not ended or elapsed_s <= 0:
        return _SHORTEST_S * 10
    return min(_LONGEST_S, max(_SHORTEST_S, left * elapsed_s / ended))

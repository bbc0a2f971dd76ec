"""What a process says at its start of a database that it cannot work with: "listening" alone would hide it."""

import logging
import threading

from batchfleet.errors import StoreUnavailableError
from batchfleet.jobs.store import JobStore
from batchfleet.logs import Action, said_by

logger = logging.getLogger(__name__)


def tell_if_unusable(store: JobStore) -> threading.Thread:
    """Asks once, on a thread of its own: a database that is away keeps nobody from starting.

    Returns:
        The thread, which ends with the answer.
    """
    thread = threading.Thread(target=_look, args=(store,), name="first-look", daemon=True)
    thread.start()
    return thread


def _look(store: JobStore) -> None:
    try:
        store.ping()
    except StoreUnavailableError as error:
        extra = {"action": Action.STORE_UNAVAILABLE, **said_by(error)}
        logger.warning("no work can be done yet: %s", error, extra=extra)

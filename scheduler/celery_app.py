"""Celery, built by a function: the control plane's tasks, each a doorbell for rows of the database.

A task carries at most an id; what is to be done, by whom and whether at all, its row says (`OutboxStore.begin`,
`OutboxStore.take_duty`). So messages may be lost, doubled, late or out of order, and the broker may be emptied.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import celery
from celery.schedules import schedule

from batchfleet.broker.connect import has_broker
from batchfleet.outbox.delivery import DeliveryId
from batchfleet.settings import Settings

QUEUE: Final = "batchfleet.control"
DELIVER: Final = "batchfleet.deliver"
PURGE: Final = "batchfleet.purge"
SWEEP_ORPHANS: Final = "batchfleet.sweep_orphans"

BEAT_S: Final = {PURGE: 60.0, SWEEP_ORPHANS: 300.0}
"""How often each duty is asked for; how often it is done, its row says, so that a restart neither skips nor doubles."""

RING_EXPIRES_S: Final = 60.0
"""A ring that lay for longer is dropped: its row has been rung for again."""

_POLL_S: Final = 5
"""How long one BRPOP waits: kombu's own 1 s would be a command a second for nothing."""
_CONNECT_S: Final = 1.0
_SOCKET_S: Final = 2.0
"""Bounds each reply that is waited for; a BRPOP is not (it is read once there is something to read)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tasks:
    """What the tasks do.

    Attributes:
        deliver: Makes an attempt of a delivery, if one is due.
        duties: What is done periodically, by its task's name.
    """

    deliver: Callable[[DeliveryId], None]
    duties: Mapping[str, Callable[[], None]] = field(default_factory=dict)


def build_celery(settings: Settings, tasks: Tasks) -> celery.Celery:
    """Returns the application of one process. It is nobody's current one, and connects to nothing yet.

    Args:
        settings: `broker_url` counts. Without a broker its tasks are run by `run_here` only.
        tasks: What they do.
    """
    broker = settings.broker_url if has_broker(settings.broker_url) else "memory://"
    app = celery.Celery("batchfleet.control", set_as_current=False, broker=broker, backend="disabled://")
    app.conf.update(_OPTIONS)
    app.conf.beat_schedule = {
        name: {"task": name, "schedule": schedule(BEAT_S[name]), "args": ()} for name in tasks.duties
    }

    def deliver(delivery_id: str) -> None:
        tasks.deliver(delivery_id)

    # Not shared: Celery would give them to every other application of the process.
    app.task(deliver, name=DELIVER, shared=False)
    for name, duty in tasks.duties.items():
        app.task(_plain(duty), name=name, shared=False)
    app.finalize()
    return app


def run_here(app: celery.Celery, task: str, *args: str) -> None:
    """Runs a task on this thread, through Celery but without the broker; what it raises is logged."""
    app.tasks[task].apply(args, throw=False)


def _plain(duty: Callable[[], None]) -> Callable[[], None]:
    """Celery wants a function with a name of its own."""

    def run() -> None:
        duty()

    return run


_OPTIONS: Final[Mapping[str, Any]] = {
    "task_default_queue": QUEUE,
    "task_ignore_result": True,
    "task_store_errors_even_if_ignored": False,
    "result_expires": None,
    # A ring is consumed when it is read: the row's lease, not the message, says who works.
    "task_acks_late": False,
    "task_default_delivery_mode": "transient",
    "accept_content": ["json"],
    "task_publish_retry": False,
    # Unbounded: the doorbell bounds what is rung. With a bound, kombu polls for room only now and then (measured:
    # 5 tasks a second instead of 200).
    "worker_prefetch_multiplier": 0,
    # Nothing of a fleet of Celery workers is used: no broadcasts, no events, no remote control.
    "worker_enable_remote_control": False,
    "worker_send_task_events": False,
    "worker_hijack_root_logger": False,
    "worker_redirect_stdouts": False,
    "worker_cancel_long_running_tasks_on_connection_loss": False,
    "worker_soft_shutdown_timeout": 0.0,
    # A broker that is away is waited for, for ever: nobody starts a process by hand.
    "broker_connection_retry": True,
    "broker_connection_retry_on_startup": True,
    "broker_connection_max_retries": None,
    "broker_connection_timeout": _CONNECT_S,
    "broker_heartbeat": 0,
    "broker_transport_options": {
        "polling_interval": _POLL_S,
        "socket_connect_timeout": _CONNECT_S,
        "socket_timeout": _SOCKET_S,
        "socket_keepalive": True,
        # One list instead of four, and keys of our own where the broker is shared.
        "priority_steps": [0],
        "unacked_key": f"{QUEUE}.unacked",
        "unacked_index_key": f"{QUEUE}.unacked_index",
        "unacked_mutex_key": f"{QUEUE}.unacked_mutex",
        # Messages whose worker died between taking and acknowledging need not come back.
        "unacked_restore_interval": 3_600,
    },
}

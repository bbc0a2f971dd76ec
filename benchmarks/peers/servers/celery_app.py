"""What Celery and celery-batches share: the app, and the model of a process. The process that submits has it, too."""

from celery import Celery

from benchmarks.peers.servers.embed import Embedder, Setup

SETUP = Setup.from_environment()
app = Celery("peer", broker=SETUP.broker, backend=SETUP.broker)
app.conf.update(
    worker_prefetch_multiplier=SETUP.prefetch,
    worker_send_task_events=False,
    task_send_sent_event=False,
    worker_disable_rate_limits=True,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    result_expires=600,
)
_embedders: list[Embedder] = []


def embedder() -> Embedder:
    """Returns the model of this process, loaded at its first task: after Celery has forked."""
    if not _embedders:
        _embedders.append(Embedder(SETUP))
    return _embedders[0]

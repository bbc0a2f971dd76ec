"""Wires one scheduler process together and runs it until it is told to stop."""

import logging
import os
import socket
import sys

from batchfleet.broker.connect import connect_broker, connect_ring
from batchfleet.jobs.first_look import tell_if_unusable
from batchfleet.jobs.sql.store import SqlStore
from batchfleet.lifecycle import ParentWatch, ServiceThread, StopSignal, exit_process
from batchfleet.logs import Action
from batchfleet.pulse import Pulse, pulse_path
from batchfleet.results.blobs import BlobsUnavailableError
from batchfleet.settings import EXIT_CONFIG, Settings, SettingsError, read_settings
from batchfleet.telemetry import Metrics, listen_for_scrapes, setup_logging, setup_metrics
from batchfleet.tracing import Tracer, setup_tracing
from scheduler.expire import Expirer
from scheduler.postman import GAP_S
from scheduler.relay import Relay
from scheduler.rescue import Contact, Rescuer
from scheduler.sweep import Sweep
from scheduler.wiring import build_control

logger = logging.getLogger(__name__)

_STOP_S = 8.0
"""Whoever stops us has 10 s of patience."""
_CELERY_S = 1.5
_LEAST_GAP_S = 4.0
_TALKATIVE = ("celery.app.trace", "celery.worker.strategy", "celery.beat")
"""A line or two for each task: the deliveries have lines of their own."""


def main() -> int:
    """Runs the scheduler; returns the exit code."""
    try:
        settings = read_settings()
    except SettingsError as error:
        print(f"batchfleet scheduler: {error}", file=sys.stderr)  # noqa: T201 - logging is not set up yet
        return EXIT_CONFIG
    setup_logging(settings.log_level, settings.log_format, fields={"service": "scheduler"})
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        metrics = setup_metrics(settings.metrics_dir)
        listen_for_scrapes(metrics, settings.metrics_host, settings.metrics_port)
        tracer = setup_tracing(settings, "scheduler", f"{socket.gethostname()}-{os.getpid()}")
    except (OSError, SettingsError) as error:
        logger.critical("cannot start: %s", error, extra={"action": Action.START_REFUSED})
        return EXIT_CONFIG
    with StopSignal() as stop:
        ParentWatch(stop.request).start()
        try:
            return _run(settings, metrics, tracer, stop)
        except BlobsUnavailableError as error:
            logger.critical("cannot start: %s", error, extra={"action": Action.START_REFUSED})
            return EXIT_CONFIG


def _run(settings: Settings, metrics: Metrics, tracer: Tracer | None, stop: StopSignal) -> int:
    store = SqlStore(settings.database_url)
    broker = connect_broker(settings.broker_url, metrics=metrics)
    ring = connect_ring(settings.broker_url, metrics=metrics, rest_s=GAP_S)
    parts = build_control(settings, store, ring, metrics, tracer=tracer)
    pulse = Pulse(pulse_path(settings.state_dir, "scheduler"))
    contact = Contact(most_gap_s=max(_LEAST_GAP_S, 5 * settings.sweep_s))
    sweep = Sweep(
        store,
        Relay(store, broker, metrics, settings.announced_hints),
        Expirer(store, ring),
        Rescuer(store, ring, metrics, settings.lease_ttl_s, contact),
        contact,
        interval_s=settings.sweep_s,
        lease_ttl_s=settings.lease_ttl_s,
        pulse=pulse,
    )
    thread = ServiceThread("sweep", sweep.run)
    thread.start()
    parts.control.start()
    logger.info("scheduler is ready", extra={"action": Action.PROCESS_READY})
    tell_if_unusable(store)
    stop.wait()
    thread.stop()
    ended = parts.control.stop(_STOP_S) and thread.join(_STOP_S)
    pulse.end()
    if not ended:
        # What hangs is repeated by another once its lease is over; waiting for it would be waiting to be killed.
        logger.warning("tasks were still under way", extra={"action": Action.DRAIN_OVERRUN})
        exit_process(0)
    for part in (ring, broker, parts, store):
        part.close()
    if tracer is not None:
        tracer.close()
    if not parts.control.join(_CELERY_S):
        exit_process(0)  # it waits for a broker; the interpreter's own end would trip over it
    return 0

"""Wires one scheduler process together and runs it until it is told to stop."""

import logging
import sys

from batchfleet.broker.connect import connect_broker, connect_ring
from batchfleet.jobs.sql.store import SqlStore
from batchfleet.lifecycle import ParentWatch, ServiceThread, StopSignal
from batchfleet.logs import Action
from batchfleet.settings import EXIT_CONFIG, SettingsError, read_settings
from batchfleet.telemetry import setup_logging, setup_metrics
from scheduler.expire import Expirer
from scheduler.relay import Relay
from scheduler.rescue import Contact, Rescuer
from scheduler.sweep import Sweep

logger = logging.getLogger(__name__)

_STOP_S = 10.0
_LEAST_GAP_S = 4.0


def main() -> int:
    """Runs the scheduler; returns the exit code."""
    try:
        settings = read_settings()
    except SettingsError as error:
        print(f"batchfleet scheduler: {error}", file=sys.stderr)  # noqa: T201 - logging is not set up yet
        return EXIT_CONFIG
    setup_logging(settings.log_level, settings.log_format)
    try:
        metrics = setup_metrics(settings.metrics_dir)
    except OSError as error:
        logger.critical("cannot start: %s", error, extra={"action": Action.START_REFUSED})
        return EXIT_CONFIG
    with StopSignal() as stop:
        ParentWatch(stop.request).start()
        store = SqlStore(settings.database_url)
        broker = connect_broker(settings.broker_url, metrics=metrics)
        ring = connect_ring(settings.broker_url, metrics=metrics)
        contact = Contact(most_gap_s=max(_LEAST_GAP_S, 5 * settings.sweep_s))
        sweep = Sweep(
            store,
            Relay(store, broker, metrics, settings.announced_hints),
            Expirer(store, ring),
            Rescuer(store, ring, metrics, settings.lease_ttl_s, contact),
            contact,
            interval_s=settings.sweep_s,
            lease_ttl_s=settings.lease_ttl_s,
        )
        thread = ServiceThread("sweep", sweep.run)
        thread.start()
        logger.info("scheduler is ready", extra={"action": Action.PROCESS_READY})
        stop.wait()
        thread.stop()
        thread.join(_STOP_S)
        for part in (ring, broker, store):
            part.close()
    return 0

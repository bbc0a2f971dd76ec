"""`python -m api`: one process of the HTTP front.

Exit codes: 0 after a stop signal, 78 if the settings cannot be used, 1 if it could not start, 70 if it crashed.
"""

import logging
import os
import signal
import socket
import sys

from api.app import create_app
from api.parts import build_parts, close_parts
from api.server import Server
from batchfleet.errors import BatchfleetError
from batchfleet.jobs.first_look import tell_if_unusable
from batchfleet.lifecycle import PARENT_FD_VARIABLE, ParentWatch, die_with_parent
from batchfleet.logs import Action, setup_logging
from batchfleet.settings import EXIT_CONFIG, Settings, SettingsError, check_host, read_settings
from batchfleet.telemetry import setup_metrics
from batchfleet.tracing import setup_tracing

EXIT_NOT_STARTED = 1

logger = logging.getLogger("api")  # not "__main__"


def main() -> int:
    """Runs the process until it is told to stop; returns its exit code."""
    try:
        settings = read_settings()
        check_host(settings.api_host, require_keys=settings.require_keys)
    except SettingsError as exc:
        print(f"batchfleet api: {exc}", file=sys.stderr)  # noqa: T201 - logging is not set up yet
        return EXIT_CONFIG
    setup_logging(settings.log_level, settings.log_format, fields={"service": "api"})
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # we say ourselves when we start and stop
    _stay_with_parent()
    return _serve(settings)


def _serve(settings: Settings) -> int:
    try:
        metrics = setup_metrics(settings.metrics_dir)
        tracer = setup_tracing(settings, "api", f"{socket.gethostname()}-{os.getpid()}")
        parts = build_parts(settings, metrics, tracer)
    except (ValueError, OSError, BatchfleetError) as exc:
        logger.critical("cannot use the settings: %s", exc, extra={"action": Action.START_REFUSED})
        return EXIT_CONFIG
    try:
        server = Server(create_app(parts), settings)
        tell_if_unusable(parts.store)
        _survive_stop_signals()
        logger.info("starting", extra={"action": Action.PROCESS_STARTED, "pid": os.getpid()})
        server.run()
    except SystemExit:  # how uvicorn says that it could not listen or start; its log has the reason
        return EXIT_NOT_STARTED
    finally:
        close_parts(parts)
    logger.info("stopped", extra={"action": Action.PROCESS_STOPPED})
    return 0


def _survive_stop_signals() -> None:
    """Uvicorn raises the signal that stopped it once more at its end: it must not kill us before we have closed."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: None)


def _stay_with_parent() -> None:
    """Under a supervisor, ends with it; alone (from a shell) it is nobody's child."""
    if PARENT_FD_VARIABLE in os.environ:
        die_with_parent()
        ParentWatch(lambda: os.kill(os.getpid(), signal.SIGTERM)).start()


if __name__ == "__main__":
    sys.exit(main())

"""What the fleet says of itself: every metric, and (from `batchfleet.logs`) its log lines.

`metrics` defines them all, `queues` counts the database at each scrape, `sharing` lets the processes of one machine
be read as one. Labels are bounded: model, lane, state, reason, route, status; never a tenant, a job or a worker.
"""

from batchfleet.logs import Action, mask_url, setup_logging
from batchfleet.telemetry.listener import MetricsListener, listen_for_scrapes
from batchfleet.telemetry.metrics import METRICS_CONTENT_TYPE, Metrics, Stopwatch, setup_metrics
from batchfleet.telemetry.queues import Depth, ReadDepths
from batchfleet.telemetry.sharing import forget_dead_processes, process_alive

__all__ = [
    "METRICS_CONTENT_TYPE",
    "Action",
    "Depth",
    "Metrics",
    "MetricsListener",
    "ReadDepths",
    "Stopwatch",
    "forget_dead_processes",
    "listen_for_scrapes",
    "mask_url",
    "process_alive",
    "setup_logging",
    "setup_metrics",
]

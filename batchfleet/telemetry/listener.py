"""Shows a process's metrics on a port of its own, where no API process runs beside it to do so (a container)."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from batchfleet.lifecycle import ServiceThread
from batchfleet.telemetry.metrics import METRICS_CONTENT_TYPE, Metrics

_PATH: Final = "/metrics"
_READ_S: Final = 5.0
_POLL_S: Final = 1.0
"""How long a stop may take to be noticed."""


class MetricsListener:
    """Answers `GET /metrics`, and nothing else. There are no keys here: who can reach the port can read it.

    Args:
        metrics: What is shown.
        host: Where to listen.
        port: Where to listen; 0 takes a free one.

    Raises:
        OSError: If it cannot listen there.
    """

    def __init__(self, metrics: Metrics, host: str, port: int) -> None:
        class Handler(BaseHTTPRequestHandler):
            timeout = _READ_S

            def do_GET(self) -> None:
                found = self.path.partition("?")[0] == _PATH
                body = metrics.render() if found else b"only /metrics is here\n"
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", METRICS_CONTENT_TYPE if found else "text/plain; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_args: object) -> None:
                """Says nothing: who scrapes, scrapes all day."""

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self._thread = ServiceThread("metrics", self._run, wake=self._server.shutdown)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Starts to listen; once."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread and frees the port."""
        self._thread.stop()
        self._thread.join()
        self._server.server_close()

    def _run(self, _stopping: threading.Event) -> None:
        self._server.serve_forever(poll_interval=_POLL_S)


def listen_for_scrapes(metrics: Metrics, host: str, port: int | None) -> MetricsListener | None:
    """Starts a listener where a port is asked for.

    Raises:
        OSError: If it cannot listen there.
    """
    if port is None:
        return None
    listener = MetricsListener(metrics, host, port)
    listener.start()
    return listener

"""A process that shows its metrics itself."""

import socket

import httpx
import pytest

from batchfleet.telemetry import METRICS_CONTENT_TYPE, Metrics, MetricsListener, listen_for_scrapes


def test_it_shows_the_metrics_and_nothing_else() -> None:
    metrics = Metrics()
    listener = MetricsListener(metrics, "127.0.0.1", 0)
    listener.start()
    try:
        metrics.hints_pulled.inc(3)
        url = f"http://127.0.0.1:{listener.port}"
        answer = httpx.get(f"{url}/metrics?x=1")

        assert answer.headers["content-type"] == METRICS_CONTENT_TYPE
        assert "batchfleet_hints_pulled_total 3.0" in answer.text
        assert httpx.get(f"{url}/v1/jobs").status_code == 404
        assert httpx.post(f"{url}/metrics").status_code == 501
    finally:
        listener.close()


def test_without_a_port_nothing_listens() -> None:
    assert listen_for_scrapes(Metrics(), "127.0.0.1", None) is None


def test_a_port_that_is_taken_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        listen_for_scrapes(Metrics(), "127.0.0.1", taken.getsockname()[1])

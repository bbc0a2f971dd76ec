"""The access log, and what stands on every line that a request causes."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from batchfleet.logs import JsonFormatter
from tests.support.apiserver import running_api


class Lines(logging.Handler):
    """Keeps what is logged, as JSON would show it."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, Any]] = []
        self._formatter = JsonFormatter()

    def emit(self, record: logging.LogRecord) -> None:
        """Formats at once: what is bound to a request is bound no longer afterwards."""
        self.lines.append(json.loads(self._formatter.format(record)))

    def of(self, logger: str) -> list[dict[str, Any]]:
        """Returns the lines of one logger."""
        return [line for line in self.lines if line["logger"] == logger]


@pytest.fixture
def lines(request: pytest.FixtureRequest) -> Any:
    handler, root = Lines(), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(getattr(request, "param", "INFO"))
    yield handler
    root.removeHandler(handler)
    root.setLevel(level)


def test_at_info_only_answers_of_500_and_more_are_logged(tmp_path: Path, lines: Lines) -> None:
    with running_api(tmp_path) as api:
        api.client.get("/healthz")
        api.client.get("/v1/jobs/nonsense")
        api.submit()
        assert lines.of("api.access") == []
        api.store.down = True
        answer = api.client.get("/v1/jobs", headers={"X-Request-Id": "r-1"})
        assert answer.status_code == 503

    (line,) = lines.of("api.access")
    assert (line["level"], line["action"], line["status"], line["request_id"]) == ("info", "request", 503, "r-1")


@pytest.mark.parametrize("lines", ["DEBUG"], indirect=True)
def test_at_debug_all_are_logged_one_line_each(tmp_path: Path, lines: Lines) -> None:
    with running_api(tmp_path) as api:
        api.client.get("/healthz")
        api.client.get("/a%0Ab%1b[31m")

    told = [line["message"] for line in lines.of("api.access")]
    assert told[0].startswith("GET /healthz 200 ")
    assert told[1].startswith("GET /a\\nb\\x1b[31m 404 ")


def test_a_line_says_whose_request_it_is_about(tmp_path: Path, lines: Lines) -> None:
    with running_api(tmp_path) as api:
        logger = logging.getLogger("api.test")
        api.store.chokes_on = lambda job: logger.info("within") or True  # type: ignore[func-returns-value]
        answer = api.client.post("/v1/jobs", json={"model": "tiny", "inputs": ["a"]}, headers={"X-Request-Id": "r-2"})
        assert answer.status_code == 500

    (problem,) = (line for line in lines.of("api.problems") if line["level"] == "error")
    (access,) = lines.of("api.access")
    assert problem["request_id"] == access["request_id"] == "r-2"
    assert "ValueError: a bad member" in problem["exception"]

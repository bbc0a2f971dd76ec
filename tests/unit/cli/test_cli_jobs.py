"""Client commands against a fleet that is just a function."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import batchfleet.cli.jobs
from batchfleet.cli.main import main
from batchfleet.client import Client
from batchfleet.embedded.exits import Exit

Fleet = Callable[[httpx.Request], httpx.Response]
Install = Callable[[Fleet], None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    def put(fleet: Fleet) -> None:
        monkeypatch.setattr(
            batchfleet.cli.jobs, "Client", lambda url: Client(url, transport=httpx.MockTransport(fleet))
        )

    return put


def answer(status: int, body: Any) -> Fleet:
    return lambda _: httpx.Response(status, json=body)


def test_submit_prints_the_id(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install(answer(202, {"id": "job_1", "status": "queued"}))

    assert main(["submit", "m", "a text"]) == Exit.OK
    assert capsys.readouterr().out == "job_1\n"


@pytest.mark.parametrize(
    ("status", "code"), [("succeeded", Exit.OK), ("failed", Exit.FAILED), ("running", Exit.TIMEOUT)]
)
def test_submit_and_wait_exits_by_the_jobs_end(
    install: Install, status: str, code: Exit, capsys: pytest.CaptureFixture[str]
) -> None:
    install(answer(200, {"id": "job_1", "status": status}))

    assert main(["submit", "m", "a", "--wait", "5"]) == code
    assert capsys.readouterr().out == f"job_1 {status}\n"


def test_submit_a_file_line_by_line(install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("one\n\ntwo\r\n")

    def fleet(request: httpx.Request) -> httpx.Response:
        jobs = [json.loads(line) for line in request.content.splitlines()]
        assert [job["inputs"] for job in jobs] == [["one"], ["two"]]
        refused = {"index": 1, "error": {"code": "invalid_request", "message": "no"}}
        return httpx.Response(202, json={"jobs": [{"index": 0, "id": "job_1", "status": "queued"}, refused]})

    install(fleet)

    assert main(["submit", "m", "--file", str(file)]) == Exit.FAILED
    assert capsys.readouterr().out == "job_1\nline 2: invalid_request: no\n"


def test_a_result_is_written_as_a_numpy_file(install: Install, tmp_path: Path) -> None:
    expected = np.arange(4, dtype=np.float32).reshape(1, 4)
    buffer = io.BytesIO()
    np.save(buffer, expected)
    install(lambda _: httpx.Response(200, content=buffer.getvalue()))

    assert main(["result", "job_1", "--output", str(tmp_path / "out")]) == Exit.OK
    np.testing.assert_array_equal(np.load(tmp_path / "out"), expected)


def test_an_unknown_job_exits_8(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install(answer(200, {"jobs": [{"id": "job_1", "status": "unknown"}, {"id": "job_2", "status": "queued"}]}))

    assert main(["status", "job_1", "job_2", "--json"]) == Exit.NOT_FOUND
    assert [job["status"] for job in json.loads(capsys.readouterr().out)] == ["unknown", "queued"]


def test_a_refusal_is_told(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install(answer(404, {"title": "no", "detail": "no such job", "code": "job_not_found"}))

    assert main(["cancel", "job_1", "--json"]) == Exit.NOT_FOUND
    assert json.loads(capsys.readouterr().err)["error"] == {"code": "job_not_found", "message": "no such job"}

"""Client commands against a fleet that is just a function."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import batchfleet.cli.options
from batchfleet.cli.main import main
from batchfleet.client import Client
from batchfleet.embedded.exits import Exit
from batchfleet.embedded.stack import StackInfo

Fleet = Callable[[httpx.Request], httpx.Response]
Install = Callable[[Fleet], None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    def put(fleet: Fleet) -> None:
        monkeypatch.setattr(
            batchfleet.cli.options,
            "Client",
            lambda url, api_key, **options: Client(url, api_key, transport=httpx.MockTransport(fleet), **options),
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
    assert capsys.readouterr().out == "job_1\nline 3: invalid_request: no\n"
    assert main(["submit", "m", "--file", str(file), "--json"]) == Exit.FAILED
    assert json.loads(capsys.readouterr().out) == {
        "jobs": [
            {"line": 1, "index": 0, "id": "job_1", "status": "queued"},
            {"line": 3, "index": 1, "error": {"code": "invalid_request", "message": "no"}},
        ]
    }


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
    assert json.loads(capsys.readouterr().out) == {
        "jobs": [{"id": "job_1", "status": "unknown"}, {"id": "job_2", "status": "queued"}]
    }


def test_a_refusal_is_told(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install(answer(404, {"title": "no", "detail": "no such job", "code": "job_not_found"}))

    assert main(["cancel", "job_1", "--json"]) == Exit.NOT_FOUND
    said = capsys.readouterr()
    assert json.loads(said.err)["error"] == {"code": "job_not_found", "message": "job_1: no such job"}
    assert json.loads(said.out) == {"jobs": [{"id": "job_1", "status": "unknown"}]}


def test_one_unknown_job_does_not_keep_the_others_from_being_cancelled(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    def fleet(request: httpx.Request) -> httpx.Response:
        if "job_1" in request.url.path:
            return httpx.Response(404, json={"detail": "no such job", "code": "job_not_found"})
        return httpx.Response(200, json={"id": "job_2", "status": "cancelled"})

    install(fleet)

    assert main(["cancel", "job_1", "job_2"]) == Exit.NOT_FOUND
    said = capsys.readouterr()
    assert "job_2  cancelled" in said.out
    assert said.err == "batchfleet: job_1: no such job\n"


@pytest.mark.parametrize("options", [[], ["--json"], ["--output"]])
def test_a_result_of_a_job_that_has_not_ended(
    options: list[str], install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(answer(202, {"id": "job_1", "status": "queued"}))
    arguments = [*options, str(tmp_path / "x.npy")] if options == ["--output"] else options

    assert main(["result", "job_1", *arguments]) == Exit.FAILED

    said = capsys.readouterr()
    message = "job_1 has not ended yet (queued); wait with `batchfleet status job_1 --wait 60`"
    assert said.out == ""
    if options == ["--json"]:
        assert json.loads(said.err) == {"error": {"code": "result_not_ready", "message": message}}
    else:
        assert said.err == f"batchfleet: {message}\n"
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_made_is_told_before_anything_is_fetched(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    def fleet(request: httpx.Request) -> httpx.Response:
        raise AssertionError(request)

    install(fleet)

    assert main(["result", "job_1", "--output", "/nonexistent/x.npy"]) == Exit.USAGE
    assert capsys.readouterr().err == "batchfleet result: --output: there is no folder /nonexistent\n"


def test_a_listing_for_people_and_for_programs(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    job = {"id": "job_1", "status": "failed", "model": "m", "submitted_at": "2026-12-01T03:28:23.5Z", "attempts": 0}

    def fleet(request: httpx.Request) -> httpx.Response:
        assert request.url.params["status"] == "failed,expired,queued"
        return httpx.Response(200, json={"jobs": [job], "next": "job_1"})

    install(fleet)
    command = ["jobs", "--status", "failed,expired", "--status", "queued"]

    assert main([*command, "--json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out) == {
        "jobs": [{**job, "submitted_at": "2026-12-01T03:28:23.500000Z"}],
        "next": "job_1",
    }
    assert main(command) == Exit.OK
    assert "2026-12-01T03:28:23.500000Z" in capsys.readouterr().out
    assert main(["jobs", "--status", "failed,lost"]) == Exit.USAGE
    assert "--status: 'lost' is no state" in capsys.readouterr().err


def test_an_empty_listing_says_so(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install(answer(200, {"jobs": [], "next": None}))

    assert main(["jobs"]) == Exit.OK
    assert capsys.readouterr().out == "no jobs\n"
    assert main(["jobs", "--json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out) == {"jobs": [], "next": None}


def test_a_file_that_is_no_text_is_told(install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "lines.bin"
    file.write_bytes(b"one\n\xff\xfe\n")
    install(answer(202, {"jobs": []}))

    assert main(["submit", "m", "--file", str(file)]) == Exit.USAGE
    assert "--file" in capsys.readouterr().err


def test_ids_are_printed_though_the_wait_was_too_short(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("one\n")

    def fleet(request: httpx.Request) -> httpx.Response:
        job = {"index": 0, "id": "job_1", "status": "queued"}
        return httpx.Response(200, json={"jobs": [job]} if request.method == "POST" else job)

    install(fleet)

    assert main(["submit", "m", "--file", str(file), "--wait", "0.01"]) == Exit.TIMEOUT
    said = capsys.readouterr()
    assert said.out == "job_1 queued\n"
    assert said.err == "batchfleet: not ended in time: job_1\n"


def test_a_wait_that_was_too_short_names_the_jobs_and_shows_them_all(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    def fleet(request: httpx.Request) -> httpx.Response:
        jobs = [{"id": "job_1", "status": "running"}, {"id": "job_2", "status": "succeeded"}]
        return httpx.Response(200, json={"jobs": jobs} if request.method == "POST" else jobs[0])

    install(fleet)

    assert main(["status", "job_1", "job_2", "--wait", "0.01"]) == Exit.TIMEOUT
    said = capsys.readouterr()
    assert [line.split() for line in said.out.splitlines()[1:]] == [["job_1", "running"], ["job_2", "succeeded"]]
    assert said.err == "batchfleet: not ended in time: job_1\n"


@pytest.mark.parametrize("options", [[], ["--wait", "0.01"]])
def test_one_unknown_job_is_shown_as_one_of_many_is(
    install: Install, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    def fleet(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            return httpx.Response(200, json={"jobs": [{"id": "job_1", "status": "unknown"}]})
        return httpx.Response(404, json={"detail": "no job job_1", "code": "job_not_found"})

    install(fleet)

    assert main(["status", "job_1", "--json", *options]) == Exit.NOT_FOUND
    said = capsys.readouterr()
    assert json.loads(said.out) == {"jobs": [{"id": "job_1", "status": "unknown"}]}
    assert json.loads(said.err)["error"]["code"] == "job_not_found"


def test_a_job_is_named_once(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install(answer(404, {"detail": "no job job_1", "code": "job_not_found"}))

    assert main(["result", "job_1"]) == Exit.NOT_FOUND
    assert capsys.readouterr().err == "batchfleet: no job job_1\n"


def test_a_refusal_begins_with_its_field(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install(answer(400, {"detail": "its port must be 80", "code": "invalid_request", "field": "callback_url"}))

    assert main(["submit", "m", "x", "--callback-url", "http://x:1"]) == Exit.FAILED
    assert capsys.readouterr().err == "batchfleet: callback_url: its port must be 80\n"


@pytest.mark.parametrize("as_json", [False, True])
def test_who_waits_is_told_why_but_for_programs(
    install: Install, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    refusals = [httpx.Response(503, json={"detail": "no schema"}, headers={"Retry-After": "1"})] * 2

    install(lambda _: refusals.pop() if refusals else httpx.Response(200, json={"jobs": [], "next": None}))

    assert main(["jobs", *(["--json"] if as_json else [])]) == Exit.OK
    assert capsys.readouterr().err == ("" if as_json else "batchfleet: still trying: no schema\n")


@pytest.mark.parametrize(
    ("attempts", "log", "told"), [(1, 1, "1 try"), (2, 2, "2 tries"), (1, 2, "2 tries (1 since the replay)")]
)
def test_tries_are_counted_as_the_log_shows_them(
    install: Install, capsys: pytest.CaptureFixture[str], attempts: int, log: int, told: str
) -> None:
    tries = [{"number": number + 1, "began_at": "2026-01-01T00:00:00Z"} for number in range(log)]
    members = {"id": "msg_1", "kind": "webhook", "job_id": "job_1", "event": "job.succeeded", "target": "http://x"}
    install(answer(200, {**members, "state": "delivered", "attempts": attempts, "log": tries}))

    assert main(["webhooks", "show", "msg_1"]) == Exit.OK
    assert f"state    delivered, {told}\n" in capsys.readouterr().out


class TestWhichFleet:
    """Without --url the one of the data folder is asked, if one runs there."""

    @pytest.fixture
    def asked(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
        urls: list[str] = []

        def client(url: str, _api_key: str | None, **_options: object) -> Client:
            urls.append(url)
            return Client(url, transport=httpx.MockTransport(answer(200, {"jobs": [], "next": None})))

        monkeypatch.setattr(batchfleet.cli.options, "Client", client)
        monkeypatch.setenv("BATCHFLEET_DATA_DIR", str(tmp_path))
        monkeypatch.delenv("BATCHFLEET_URL", raising=False)
        return urls

    def test_the_running_one(self, asked: list[str], tmp_path: Path) -> None:
        StackInfo(url="http://127.0.0.1:18081", pid=1, data_dir=str(tmp_path), pids={}).write()

        assert main(["jobs"]) == Exit.OK
        assert asked == ["http://127.0.0.1:18081"]

    def test_what_is_said_goes_first(self, asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        StackInfo(url="http://127.0.0.1:18081", pid=1, data_dir=str(tmp_path), pids={}).write()
        monkeypatch.setenv("BATCHFLEET_URL", "http://env:1")

        main(["jobs"])
        main(["jobs", "--url", "http://option:1"])

        assert asked == ["http://env:1", "http://option:1"]

    @pytest.mark.parametrize("content", [None, "{", "[]"])
    def test_port_8080_where_none_runs(self, asked: list[str], tmp_path: Path, content: str | None) -> None:
        if content is not None:
            (tmp_path / "stack.json").write_text(content)

        main(["jobs"])

        assert asked == ["http://127.0.0.1:8080"]

    def test_a_bad_one_names_where_it_came_from(
        self, asked: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["jobs", "--url", "foo"]) == Exit.USAGE
        assert capsys.readouterr().err.startswith("batchfleet jobs: --url: 'foo' is no URL")
        monkeypatch.setenv("BATCHFLEET_URL", "bar")
        assert main(["jobs"]) == Exit.USAGE
        assert capsys.readouterr().err.startswith("batchfleet jobs: BATCHFLEET_URL: 'bar' is no URL")
        assert asked == []

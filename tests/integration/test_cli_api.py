"""The commands against a real API process."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from batchfleet.cli.main import main
from batchfleet.embedded.exits import Exit
from tests.support.apiserver import MODEL, RunningApi, running_api


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningApi]:
    with running_api(tmp_path) as api:
        monkeypatch.setenv("BATCHFLEET_URL", api.url)
        yield api


class Terminal:
    """Runs a command and reads what it said."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def run(self, *arguments: str, code: Exit = Exit.OK) -> str:
        self._capsys.readouterr()
        found = main(arguments)
        said = self._capsys.readouterr()
        self.err = said.err
        assert found == code, said
        return said.out

    def json(self, *arguments: str, code: Exit = Exit.OK) -> Any:
        return json.loads(self.run(*arguments, "--json", code=code))


@pytest.fixture
def terminal(capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(capsys)


def test_a_job_with_all_that_can_be_said(running: RunningApi, terminal: Terminal) -> None:
    job = terminal.json(
        *("submit", MODEL, "a", "b", "--version", "1", "--lane", "bulk", "--metadata", '{"run": 7}', "--ttl", "60"),
        *(
            "--on-item-error",
            "partial",
            "--run-timeout",
            "9",
            "--max-attempts",
            "2",
            "--run-at",
            "2026-01-01T00:00:00Z",
        ),
        *("--idempotency-key", "k", "--parameters", '{"normalize": false}'),
    )
    (shown,) = terminal.json("status", job["id"])["jobs"]
    assert (shown["metadata"], shown["max_attempts"], shown["lane"]) == ({"run": 7}, 2, "bulk")

    terminal.run("submit", MODEL, "another body", "--idempotency-key", "k", code=Exit.FAILED)
    assert "Idempotency-Key" in terminal.err


def test_a_field_that_is_refused_is_named_in_one_line(running: RunningApi, terminal: Terminal) -> None:
    terminal.run("submit", MODEL, "a", "--parameters", '{"normalise": true}', code=Exit.FAILED)
    assert terminal.err.startswith("batchfleet: ")
    assert "parameters.normalise: " in terminal.err
    assert terminal.err.count("\n") == 1


def test_what_cannot_be_meant_is_told_before_anything_is_sent(running: RunningApi, terminal: Terminal) -> None:
    for wrong in (
        [],
        ["a", "--input-uri", "s3://bucket/key"],
        ["a", "--run-at", "soon"],
        ["a", "--metadata", "[]"],
        ["a", "--on-item-error", "ignore"],
    ):
        terminal.run("submit", MODEL, *wrong, code=Exit.USAGE)
        assert terminal.err
    assert terminal.json("jobs")["jobs"] == []


def test_lines_of_stdin_become_jobs(running: RunningApi, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("eins\n\nzwölf\n".encode()), encoding="utf-8"))

    ids = terminal.run("submit", MODEL, "--file", "-").split()

    assert [job["id"] for job in terminal.json("jobs")["jobs"]] == ids[::-1]
    assert {job["lane"] for job in terminal.json("status", *ids)["jobs"]} == {"bulk"}


def test_a_result_in_each_form(running: RunningApi, terminal: Terminal, tmp_path: Path) -> None:
    job_id = running.submit()
    running.worker.succeed(job_id)
    expected = np.arange(3, dtype=np.float32)[None]

    assert json.loads(terminal.run("result", job_id)) == {"values": [[0.0, 1.0, 2.0]]}
    told = terminal.json("result", job_id, "--output", str(tmp_path / "a.npy"))
    assert {name: told[name] for name in ("format", "shape", "dtype")} == {
        "format": "npy",
        "shape": [1, 3],
        "dtype": "float32",
    }
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), expected)
    terminal.run("result", job_id, "--format", "msgpack", "--output", str(tmp_path / "a.msgpack"))
    packed = msgspec.msgpack.decode((tmp_path / "a.msgpack").read_bytes())
    assert packed["values"]["shape"] == [1, 3]
    terminal.run("result", job_id, "--format", "json", "--output", str(tmp_path / "a.json"))
    assert json.loads((tmp_path / "a.json").read_bytes()) == {"values": [[0.0, 1.0, 2.0]]}
    terminal.run("result", job_id, "--format", "npy", "--json", code=Exit.USAGE)


def test_all_pages_of_a_listing(running: RunningApi, terminal: Terminal) -> None:
    ids = [running.submit() for _ in range(3)]

    page = terminal.json("jobs", "--limit", "2")
    assert [job["id"] for job in page["jobs"]] == ids[:0:-1]
    assert page["next"] == ids[1]
    assert terminal.run("jobs", "--limit", "2").count("\n") == 3
    assert f"--after {ids[1]}" in terminal.err
    assert [job["id"] for job in terminal.json("jobs", "--all")["jobs"]] == ids[::-1]
    assert terminal.run("jobs", "--all").count("\n") == 4


def test_names_and_ids_are_completed(running: RunningApi) -> None:
    job_id = running.submit()

    def complete(words: str) -> str:
        environment = {**os.environ, "_BATCHFLEET_COMPLETE": "bash_complete", "COMP_WORDS": words}
        environment["COMP_CWORD"] = str(len(words.split()) - 1)
        command = [sys.executable, "-m", "batchfleet.cli"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout

    assert f"plain,{MODEL}" in complete("batchfleet submit t")
    assert f"plain,{job_id}" in complete("batchfleet status job_")
    assert "plain,--output-uri" in complete("batchfleet submit --output")
    assert "plain,doctor" in complete("batchfleet do")


def interrupted(running: RunningApi, *words: str) -> tuple[int, str, str]:
    """Returns how a command ends, and what it says, when it is interrupted while the API lets it wait."""
    command = [sys.executable, "-m", "batchfleet.cli", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            running.await_waiting()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    return process.returncode, out, err


def test_ctrl_c_leaves_one_line_and_the_jobs_id(running: RunningApi) -> None:
    code, out, err = interrupted(running, "submit", MODEL, "a", "--wait", "60")

    (job,) = running.client.get("/v1/jobs").json()["jobs"]
    assert code == Exit.INTERRUPTED
    assert out == ""
    assert err.split("\n") == [f"{job['id']} goes on", "", "batchfleet: interrupted", ""]


def test_ctrl_c_while_lines_are_awaited_prints_their_ids(running: RunningApi, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("a\nb\n")
    code, out, err = interrupted(running, "submit", MODEL, "--file", str(tmp_path / "lines"), "--wait", "60")

    ids = [job["id"] for job in running.client.get("/v1/jobs").json()["jobs"]]
    assert code == Exit.INTERRUPTED
    assert out.split("\n") == [f"{ids[1]} queued", f"{ids[0]} queued", ""]
    assert "Traceback" not in err


def test_objects_and_callbacks_travel_with_the_job(
    tmp_path: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = {"input_prefixes": ("s3://incoming/texts/",), "output_prefixes": ("s3://outgoing/",)}
    with running_api(tmp_path, **allowed) as api:  # type: ignore[arg-type]
        monkeypatch.setenv("BATCHFLEET_URL", api.url)
        links = ["--input-uri", "s3://incoming/texts/a.json", "--output-uri", "s3://outgoing/a.json"]

        job = terminal.json("submit", MODEL, *links, "--callback-url", "https://hooks.example/jobs")
        terminal.run("submit", MODEL, "--input-uri", "s3://incoming/other.json", code=Exit.DENIED)

        (shown,) = terminal.json("status", job["id"])["jobs"]
        assert (shown["input_uri"], shown["output_uri"]) == ("s3://incoming/texts/a.json", "s3://outgoing/a.json")
        assert shown["callback_url"] == "https://hooks.example/jobs"
        terminal.run("cancel", job["id"])
        (delivery,) = terminal.json("webhooks", "list", "--job-id", job["id"], "--kind", "webhook")["deliveries"]
        assert delivery["target"] == "https://hooks.example/jobs"

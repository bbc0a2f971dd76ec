"""Logs: fields survive, secrets do not."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Literal

import pytest

from batchfleet.logs import Action, bound_fields, mask_url, name_jobs, setup_logging


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


def log(stream: io.StringIO, form: Literal["text", "json"], message: str, **extra: object) -> str:
    setup_logging("info", form, stream=stream)
    logging.getLogger("batchfleet.test").info(message, extra=extra)
    return stream.getvalue()


def test_text_shows_message_and_fields(stream: io.StringIO) -> None:
    line = log(stream, "text", "claimed jobs", action=Action.CLAIMED, jobs=3)

    assert line.endswith("INFO    batchfleet.test: claimed jobs action=claimed jobs=3\n")


def test_json_is_one_object_a_line(stream: io.StringIO) -> None:
    line = log(stream, "json", "two\nlines", action=Action.CLAIMED, jobs=3, where=object, level="no")

    record = json.loads(line)
    assert line.count("\n") == 1
    assert (record["message"], record["action"], record["jobs"]) == ("two\nlines", "claimed", 3)
    assert record["level"] == "info"


def test_fields_of_the_process_and_of_the_request_stand_on_each_line(stream: io.StringIO) -> None:
    setup_logging("info", "json", fields={"service": "worker", "boot": "b1"}, stream=stream)
    with bound_fields(request_id="r1", tenant="t"), bound_fields(trace_id="f00"):
        logging.getLogger("x").info("within", extra={"tenant": "the line's own wins"})
    logging.getLogger("x").info("after")

    within, after = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (within["service"], within["boot"], within["request_id"], within["trace_id"]) == (
        "worker",
        "b1",
        "r1",
        "f00",
    )
    assert within["tenant"] == "the line's own wins"
    assert after["boot"] == "b1"
    assert "request_id" not in after


def test_text_shows_the_fields_of_the_request_too(stream: io.StringIO) -> None:
    with bound_fields(request_id="r1"):
        assert log(stream, "text", "x", action=Action.REQUEST).endswith(": x request_id=r1 action=request\n")


def test_of_many_jobs_the_first_are_named() -> None:
    named = name_jobs(f"{number:032x}" for number in range(1_000))

    assert len(named) == 20
    assert named[0] == f"job_{0:032x}"


def test_json_carries_the_traceback(stream: io.StringIO) -> None:
    setup_logging("info", "json", stream=stream)
    try:
        int("why")
    except ValueError:
        logging.getLogger("x").exception("failed")

    assert "ValueError: invalid literal" in json.loads(stream.getvalue())["exception"]


def test_the_level_holds_and_a_second_call_replaces_the_first(stream: io.StringIO) -> None:
    setup_logging("info", stream=io.StringIO())
    setup_logging("warning", stream=stream)
    logging.getLogger("x").info("no")
    logging.getLogger("x").warning("yes")

    assert stream.getvalue().count("\n") == 1


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://h:1/0", "redis://h:1/0"),
        ("redis://:pw@h:1/0", "redis://:***@h:1/0"),
        ("postgresql+psycopg://me:pw@h/db?x=1", "postgresql+psycopg://me:***@h/db?x=1"),
        ("amqp://me:p@ss@h//", "amqp://me:***@h//"),
        ("redis+socket://:pw@/tmp/v.sock", "redis+socket://:***@/tmp/v.sock"),
        ("redis://me:pw@[::1/0", "redis://me:***@[::1/0"),
        ("none", "none"),
    ],
)
def test_passwords_are_masked(url: str, shown: str) -> None:
    assert mask_url(url) == shown

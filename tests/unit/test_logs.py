"""Logs: fields survive, secrets do not."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Literal

import pytest

from batchfleet.logs import Action, mask_url, setup_logging


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
        ("redis://me:pw@[::1/0", "redis://***@[::1/0"),
        ("none", "none"),
    ],
)
def test_passwords_are_masked(url: str, shown: str) -> None:
    assert mask_url(url) == shown

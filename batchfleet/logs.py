"""Logs: a message for people, an action name and fields for machines.

Code logs `logger.info("claimed jobs", extra={"action": Action.CLAIMED, "jobs": 12})`; the fields come out as
`key=value` or as JSON. Tests and alerts look at the action, never at the prose.
"""

import logging
import re
import sys
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Final, Literal, TextIO
from urllib.parse import urlsplit, urlunsplit

import msgspec


class Action(StrEnum):
    """Every action name that appears in logs."""

    THREAD_CRASHED = "thread_crashed"
    PARENT_GONE = "parent_gone"
    STOP_REQUESTED = "stop_requested"
    STOP_FORCED = "stop_forced"
    PROCESS_STARTED = "process_started"
    START_REFUSED = "start_refused"
    PROCESS_READY = "process_ready"
    PROCESS_STOPPED = "process_stopped"
    BROKER_UNAVAILABLE = "broker_unavailable"
    BROKER_AVAILABLE = "broker_available"
    BROKER_REPAIRED = "broker_repaired"
    RING_CONNECTED = "ring_connected"
    RING_LOST = "ring_lost"
    STORE_UNAVAILABLE = "store_unavailable"
    CLAIMED = "claimed"
    DRAINING = "draining"
    DRAINED = "drained"
    DRAIN_OVERRUN = "drain_overrun"
    HEARTBEAT_FAILED = "heartbeat_failed"
    LEASE_LOST = "lease_lost"
    KEEPER_FAILED = "keeper_failed"
    BOOT_BURIED = "boot_buried"
    MODEL_LOADED = "model_loaded"
    MODEL_UNUSABLE = "model_unusable"
    VARIANT_CHOSEN = "variant_chosen"
    PREPARE_FAILED = "prepare_failed"
    DEVICE_SICK = "device_sick"
    RESCUED = "rescued"
    CHILD_STARTED = "child_started"
    CHILD_EXITED = "child_exited"
    CHILD_KILLED = "child_killed"


class OutageLog:
    """Tells of an outage once, then now and then, and of its end; not at each of a hundred tries.

    Not thread-safe: one for each thread and each thing that can be away.

    Args:
        logger: Where it is told.
        what: What is away, for the message ("the database").
        action: Action name of its lines.
    """

    REPEAT_S: Final = 30.0

    def __init__(
        self, logger: logging.Logger, what: str, action: Action, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._logger = logger
        self._what = what
        self._action = action
        self._clock = clock
        self._since: float | None = None
        self._told_at = 0.0

    def failed(self, error: Exception) -> None:
        """Notes one more failed try."""
        now = self._clock()
        if self._since is None:
            self._since = now
        elif now - self._told_at < self.REPEAT_S:
            return
        self._told_at = now
        extra = {"action": self._action, "for_s": round(now - self._since, 1)}
        self._logger.warning("waiting for %s: %s", self._what, error, extra=extra)

    def worked(self) -> None:
        """Notes that it answers; told only after an outage."""
        if self._since is not None:
            extra = {"action": self._action, "for_s": round(self._clock() - self._since, 1)}
            self._logger.info("%s answers again", self._what, extra=extra)
            self._since = None


_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_USERINFO: Final = re.compile(r"(?<=://)[^/?#\s]*@")


def mask_url(url: str) -> str:
    """Returns the URL with its password replaced by `***`, to be shown or logged."""
    try:
        parts = urlsplit(url)
        password = parts.password
    except ValueError:  # not a URL after all: hide everything before the host
        return _USERINFO.sub("***@", url)
    if password is None:
        return url
    user, _, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}:***@{host}"))


def setup_logging(
    level: str = "info", log_format: Literal["text", "json"] = "text", *, stream: TextIO | None = None
) -> None:
    """Sends all logs of the process to one stream (standard error); a second call replaces the first."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    logging.captureWarnings(True)


class TextFormatter(logging.Formatter):
    """One line a record, fields at its end; a traceback, if any, on lines of its own."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class's name
        """Returns the message with its fields."""
        fields = "".join(f" {key}={value}" for key, value in extra_fields(record).items())
        return super().formatMessage(record) + fields


class JsonFormatter(logging.Formatter):
    """One JSON object a record: time, level, logger, message, and the fields beside them."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the record as one line of JSON."""
        line: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
        }
        line.update((key, value) for key, value in extra_fields(record).items() if key not in line)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


def extra_fields(record: logging.LogRecord) -> dict[str, object]:
    """Returns what the caller gave as `extra`."""
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}

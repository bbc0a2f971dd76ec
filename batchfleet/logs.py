"""Logs: a message for people, an action name and fields for machines.

Code logs `logger.info("claimed jobs", extra={"action": Action.CLAIMED, "jobs": 12})`; the fields come out as
`key=value` or as JSON. Tests and alerts look at the action, never at the prose.

Fields have one name everywhere: `job` or `jobs` (ids as clients see them), `batch`, `boot`, `model`, `tenant`,
`request_id`, `trace_id`. What holds for a whole process (`service`, `boot`) is given to `setup_logging` once; what
holds for a request is bound with `bound_fields`, and stands on every line that is logged within.

Secrets are masked in the formatters, through which everything goes that is logged: message, fields and traceback.
"""

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from enum import StrEnum
from typing import Final, Literal, TextIO, TypeAlias

import msgspec

from batchfleet.masking import mask_text, mask_url, mask_value

__all__ = ["Action", "JsonFormatter", "OutageLog", "TextFormatter", "bind_fields", "bound_fields", "extra_fields"]
__all__ += ["mask_url", "name_jobs", "said_by", "setup_logging", "unbind_fields"]

Fields: TypeAlias = Mapping[str, object]


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
    NAME_SHARED = "name_shared"
    KEEPER_FAILED = "keeper_failed"
    BOOT_BURIED = "boot_buried"
    MODEL_LOADED = "model_loaded"
    MODEL_UNUSABLE = "model_unusable"
    VARIANT_CHOSEN = "variant_chosen"
    TUNING_ODD = "tuning_odd"
    PROFILE_ODD = "profile_odd"
    LEARNING_FAILED = "learning_failed"
    PREPARE_FAILED = "prepare_failed"
    FETCH_FAILED = "fetch_failed"
    BLOBS_UNAVAILABLE = "blobs_unavailable"
    OBJECTS_UNAVAILABLE = "objects_unavailable"
    DEVICE_SICK = "device_sick"
    CANARY_DRIFTED = "canary_drifted"
    CANARY_FAILED = "canary_failed"
    RESCUED = "rescued"
    DELIVERED = "delivered"
    DELIVERY_FAILED = "delivery_failed"
    PURGED = "purged"
    REQUEST = "request"
    REQUEST_FAILED = "request_failed"
    JOB_UNWRITTEN = "job_unwritten"
    PASS_RUN = "pass_run"  # noqa: S105 - a forward pass, not a secret
    SETTLED = "settled"
    STALE_SETTLE = "stale_settle"
    CHILD_STARTED = "child_started"
    CHILD_EXITED = "child_exited"
    CHILD_KILLED = "child_killed"


def said_by(error: BaseException) -> dict[str, object]:
    """Returns, as a field, what an error says to the log and not to callers (`StoreUnavailableError.detail`)."""
    detail = getattr(error, "detail", None)
    return {"detail": detail} if detail else {}


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
        extra = {"action": self._action, "for_s": round(now - self._since, 1), **said_by(error)}
        self._logger.warning("waiting for %s: %s", self._what, error, extra=extra)

    def worked(self) -> None:
        """Notes that it answers; told only after an outage."""
        if self._since is not None:
            extra = {"action": self._action, "for_s": round(self._clock() - self._since, 1)}
            self._logger.info("%s answers again", self._what, extra=extra)
            self._since = None


_TALKATIVE: Final = ("botocore", "boto3", "s3transfer")
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_BOUND: Final[ContextVar[Fields]] = ContextVar("batchfleet_log_fields", default={})  # noqa: B039 - never changed
_JOBS_NAMED: Final = 20


def bind_fields(**fields: object) -> Token[Fields]:
    """Puts fields onto every line that this task (or thread) logs from here on; `unbind_fields` takes them off."""
    return _BOUND.set({**_BOUND.get(), **fields})


def unbind_fields(token: Token[Fields]) -> None:
    """Takes off what `bind_fields` has put on."""
    _BOUND.reset(token)


@contextmanager
def bound_fields(**fields: object) -> Iterator[None]:
    """Puts fields onto every line that is logged within."""
    token = bind_fields(**fields)
    try:
        yield
    finally:
        unbind_fields(token)


def name_jobs(ids: Iterable[str]) -> list[str]:
    """Returns the first ids of many as clients see them, for the field `jobs`; the count says how many there were."""
    named: list[str] = []
    for job_id in ids:
        if len(named) == _JOBS_NAMED:
            break
        named.append(f"job_{job_id}")
    return named


def setup_logging(
    level: str = "info",
    log_format: Literal["text", "json"] = "text",
    *,
    fields: Fields | None = None,
    stream: TextIO | None = None,
) -> None:
    """Sends all logs of the process to one stream (standard error); a second call replaces the first.

    Args:
        level: Least severe level that is shown.
        log_format: `text` for people, `json` for machines.
        fields: What stands on every line of this process, in JSON.
        stream: Where to, instead of standard error.
    """
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonFormatter(fields) if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in _TALKATIVE:  # which credentials it found is no news, and would be told by every client it makes
        logging.getLogger(name).setLevel(max(root.level, logging.WARNING))
    logging.captureWarnings(True)


class TextFormatter(logging.Formatter):
    """One line a record, fields at its end; a traceback, if any, on lines of its own."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Returns the record without its secrets."""
        return mask_text(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class's name
        """Returns the message with its fields."""
        fields = "".join(f" {key}={value}" for key, value in {**_BOUND.get(), **extra_fields(record)}.items())
        return super().formatMessage(record) + fields


class JsonFormatter(logging.Formatter):
    """One JSON object a record: time, level, logger, message, and the fields beside them.

    Args:
        fields: What stands on every line.
    """

    def __init__(self, fields: Fields | None = None) -> None:
        super().__init__()
        self._fields = dict(fields or {})

    def format(self, record: logging.LogRecord) -> str:
        """Returns the record as one line of JSON, without its secrets."""
        line: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": mask_text(record.getMessage()),
            "process": record.process,
        }
        for fields in (self._fields, _BOUND.get(), extra_fields(record)):
            line |= {key: mask_value(value) for key, value in fields.items() if key not in _RESERVED}
        if record.exc_info:
            line["exception"] = mask_text(self.formatException(record.exc_info))
        if record.stack_info:
            line["stack"] = mask_text(record.stack_info)
        return msgspec.json.encode(line).decode()


_RESERVED: Final = frozenset({"time", "level", "logger", "message", "process", "exception", "stack"})


def extra_fields(record: logging.LogRecord) -> dict[str, object]:
    """Returns what the caller gave as `extra`."""
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}

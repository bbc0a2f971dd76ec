"""Every error that Batchfleet raises on purpose, and the code by which clients know it.

The tree (`code` in brackets; `docs/reference/errors.md` explains each)::

    BatchfleetError                      [internal_error]
    ├── InvalidRequestError              [invalid_request]      the caller must change something
    │   ├── UnsupportedFieldError        [unsupported_field]
    │   ├── TooLargeError                [too_large]
    │   └── IdempotencyConflictError     [idempotency_conflict]
    ├── NotFoundError                    [not_found]
    │   ├── ModelNotFoundError           [model_not_found]
    │   └── JobNotFoundError             [job_not_found]
    ├── ResultGoneError                  [result_gone]
    ├── NotReadyError                    [result_not_ready]
    ├── OverloadedError                  [overloaded]           try again later
    ├── UnavailableError                 [unavailable]
    │   ├── StoreUnavailableError        [store_unavailable]
    │   └── BrokerUnavailableError       [broker_unavailable]   never fails a request: hints may be lost
    ├── ModelError                       [model_error]          a model cannot be loaded or trusted
    │   ├── ModelConfigError             [model_config_invalid]
    │   ├── DigestMismatchError          [model_digest_mismatch]
    │   ├── RuntimeUnavailableError      [runtime_unavailable]
    │   └── AccuracyError                [model_below_floor]
    └── PassFailedError                  [pass_failed]          one forward pass raised
        └── OutOfMemoryError             [out_of_memory]        it did not fit into the device's memory

`InvalidRequestError.field` names what is wrong as a path (`inputs[4].text`).
What ends a *job* is not an exception but a `JobError` value (`batchfleet.jobs.job`), with a code of `JobErrorCode`.
"""

from typing import ClassVar


class BatchfleetError(Exception):
    """Base of all errors raised on purpose."""

    code: ClassVar[str] = "internal_error"


class InvalidRequestError(BatchfleetError):
    """The caller's request is wrong.

    Attributes:
        field: Path of the offending field (`inputs[4].text`), or None where the body as a whole is wrong.
    """

    code = "invalid_request"

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class UnsupportedFieldError(InvalidRequestError):
    """The field is part of the contract, but this version or deployment cannot honour it."""

    code = "unsupported_field"


class TooLargeError(InvalidRequestError):
    """A body, a list or a value is over a limit of the settings."""

    code = "too_large"


class IdempotencyConflictError(InvalidRequestError):
    """The idempotency key was used before with another body."""

    code = "idempotency_conflict"


class NotFoundError(BatchfleetError):
    """The thing named does not exist, or belongs to another tenant."""

    code = "not_found"


class ModelNotFoundError(NotFoundError):
    """No such model or version in the repository."""

    code = "model_not_found"


class JobNotFoundError(NotFoundError):
    """No such job for this tenant."""

    code = "job_not_found"


class ResultGoneError(BatchfleetError):
    """The job succeeded, but its result was removed."""

    code = "result_gone"


class NotReadyError(BatchfleetError):
    """The job has not ended yet."""

    code = "result_not_ready"


class OverloadedError(BatchfleetError):
    """The fleet takes no more of this work now.

    Attributes:
        retry_after_s: Seconds after which a retry makes sense.
    """

    code = "overloaded"

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class UnavailableError(BatchfleetError):
    """A part that the work needs cannot be reached."""

    code = "unavailable"


class StoreUnavailableError(UnavailableError):
    """The database cannot be reached, does not answer, or has no schema for this code.

    Attributes:
        detail: What the driver said: for the log only, since it tells of hosts, users and statements. None if nothing.
    """

    code = "store_unavailable"

    def __init__(self, message: str, *, detail: str | None = None) -> None:
        super().__init__(message)
        self.detail = detail


class BrokerUnavailableError(UnavailableError):
    """The broker cannot be reached. Hints are lost at most; the relay announces again."""

    code = "broker_unavailable"


class ModelError(BatchfleetError):
    """A model cannot be built, loaded or trusted."""

    code = "model_error"


class ModelConfigError(ModelError):
    """A `model.toml` or `MANIFEST.json` is missing or wrong; the message names the file and the field."""

    code = "model_config_invalid"


class DigestMismatchError(ModelError):
    """A file's SHA-256 is not the one that the manifest or the source states."""

    code = "model_digest_mismatch"


class RuntimeUnavailableError(ModelError):
    """The runtime or provider asked for cannot be had on this machine (a silent fall-back counts)."""

    code = "runtime_unavailable"


class AccuracyError(ModelError):
    """A built model is under its accuracy floor."""

    code = "model_below_floor"


class PassFailedError(BatchfleetError):
    """A forward pass raised; the cause is chained."""

    code = "pass_failed"


class OutOfMemoryError(PassFailedError):
    """A forward pass did not fit into the device's memory: it says nothing about the items, and half may fit."""

    code = "out_of_memory"

"""Whether a job that went wrong gets another go: two pure decisions, for its own errors and for dead workers.

`attempts` counts runs that ended by the job's own error; `crashes` counts workers that died with it. They are
kept apart, since neither says anything about the other.
"""

from dataclasses import dataclass

from batchfleet.jobs.job import JobErrorCode

BACKOFF_BASE_S = 1.0
BACKOFF_CAP_S = 60.0

RETRYABLE: frozenset[str] = frozenset(
    {
        JobErrorCode.PASS_FAILED,
        JobErrorCode.OUT_OF_MEMORY,
        JobErrorCode.MODEL_LOAD_FAILED,
        JobErrorCode.RUN_TIMEOUT,
        JobErrorCode.RESULT_UNWRITABLE,
        JobErrorCode.INTERNAL,
    }
)
"""Errors that another run may not meet. Bad input, unknown models and non-finite outputs stay what they are.

An object store that is away is waited for without charging any attempt; what ends as `input_unavailable` is over.
"""

DEAD_LETTER_CODES: frozenset[str] = frozenset({JobErrorCode.WORKER_CRASHED, JobErrorCode.RUN_TIMEOUT})
"""Errors that are not the job's own word: a job that failed so is a dead letter whatever its attempts."""


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """Run it again after `delay_s`, or let it fail."""

    retry: bool
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class CrashDecision:
    """What a dead worker means for one of its jobs.

    Attributes:
        crashes: The new count.
        suspect: Whether it must run alone next time.
        fail: Whether it ends `failed: worker_crashed` instead of being queued again.
    """

    crashes: int
    suspect: bool
    fail: bool


def after_error(code: str, *, attempts: int, max_attempts: int, jitter: float) -> RetryDecision:
    """Decides after a run that ended by the job's own error.

    Args:
        code: The error's code.
        attempts: Runs that ended by an error, this one included.
        max_attempts: How many such runs the job has.
        jitter: A number in [0, 1) from the caller; the delay lies between half and the whole of
            `BACKOFF_BASE_S * 2 ** (attempts - 1)`, capped ("equal jitter").
    """
    if code not in RETRYABLE or attempts >= max_attempts:
        return RetryDecision(retry=False)
    full = min(BACKOFF_CAP_S, BACKOFF_BASE_S * 2.0 ** (attempts - 1))
    return RetryDecision(retry=True, delay_s=full / 2 * (1 + jitter))


def after_crash(*, crashes: int, suspect: bool, in_pass: bool | None) -> CrashDecision:
    """Decides after the job's worker died.

    A journaled pass names its jobs: they are suspects, run alone, and fail at their next crash, that is their
    second. Without the journal (`in_pass` None: the machine is lost) every claimed job counts one crash, most
    of them innocent, so that only those with two run alone, and only a crash when alone is a conviction.

    Args:
        crashes: Count before this crash.
        suspect: Whether the job was to run alone.
        in_pass: True or False if the journal says whether the job was in the pass, None without a journal.
    """
    if in_pass is False:
        return CrashDecision(crashes=crashes, suspect=suspect, fail=False)
    counted = crashes + 1
    if suspect:
        return CrashDecision(crashes=counted, suspect=True, fail=True)
    return CrashDecision(crashes=counted, suspect=bool(in_pass) or counted >= 2, fail=False)


def is_dead_letter(attempts: int, max_attempts: int, code: str | None) -> bool:
    """Returns whether a `failed` job used up its attempts or crashes, rather than being wrong from the start."""
    return attempts >= max_attempts or code in DEAD_LETTER_CODES

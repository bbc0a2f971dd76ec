"""What a settle is told of as: counts, log lines, and what became of each job."""

import logging
from collections import Counter
from collections.abc import Mapping

from batchfleet.jobs.job import BootId, JobId, SettleOutcome, format_job_id
from batchfleet.logs import Action, name_jobs
from batchfleet.telemetry import Metrics
from workers.active import ActiveJob
from workers.ends import Ended

logger = logging.getLogger(__name__)


class Report:
    """Counts and logs what one boot settles."""

    def __init__(self, boot: BootId, metrics: Metrics) -> None:
        self._boot = boot
        self._metrics = metrics

    def settled(self, outcome: SettleOutcome, ended: Mapping[JobId, Ended]) -> None:
        """Tells of one transaction.

        Args:
            outcome: What the database says.
            ended: What it was asked to write.
        """
        if outcome.stale:
            self._metrics.stale_settles.inc(len(outcome.stale))
            extra = {"action": Action.STALE_SETTLE, "boot": self._boot, "jobs": name_jobs(outcome.stale)}
            logger.info("%d jobs had moved on", len(outcome.stale), extra=extra)
        claims = ((ended[job_id].job.claimed, state) for job_id, state in outcome.applied)
        for labels, count in Counter((claimed.model, claimed.lane, state) for claimed, state in claims).items():
            self._metrics.jobs_ended.labels(*labels).inc(count)
        if logger.isEnabledFor(logging.DEBUG):
            self._log_each(outcome, ended)

    def _log_each(self, outcome: SettleOutcome, ended: Mapping[JobId, Ended]) -> None:
        """A line for each job; at debug level, since there may be thousands a second."""
        for job_id, state in outcome.applied:
            row, claimed = ended[job_id].row, ended[job_id].job.claimed
            extra = {
                "action": Action.SETTLED,
                "job": format_job_id(job_id),
                "state": state.value,
                "epoch": claimed.epoch,
                "model": claimed.model,
                "tenant": claimed.tenant,
                "boot": self._boot,
            }
            if row.error is not None:
                extra["error"] = row.error.code
            logger.debug("settled", extra=extra)


def outcomes(outcome: SettleOutcome, ended: Mapping[JobId, Ended]) -> list[tuple[ActiveJob, str, str | None]]:
    """Returns what became of each job; those of which nothing is known are the rescuer's to decide about."""
    state_of = {job_id: state.value for job_id, state in outcome.applied} | dict.fromkeys(outcome.stale, "stale")
    return [
        (one.job, state_of.get(job_id, "unknown"), None if one.row.error is None else one.row.error.code)
        for job_id, one in ended.items()
    ]

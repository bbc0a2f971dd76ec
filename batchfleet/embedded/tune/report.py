"""What people and programs are told of a measurement."""

from typing import Any

import msgspec

from batchfleet.embedded.tune.choose import typical
from batchfleet.embedded.tune.run import Measured
from batchfleet.inference.tuning import Trial


def as_json(measured: Measured) -> dict[str, Any]:
    """Returns it as JSON shows it."""
    tuning = measured.tuning
    return {
        "workers": tuning.workers,
        "threads": tuning.threads,
        "models": [_row(trial) for trial in tuning.best.values()],
        "tried": [_row(trial) for trial in tuning.tried],
        "measured_on": measured.key,
        "file": str(measured.file),
    }


def as_text(measured: Measured) -> str:
    """Returns a table of the median of each thing tried, fastest first, and what is taken."""
    tuning = measured.tuning
    rows = typical(tuning.tried)
    taken = {
        (trial.model, trial.workers, trial.threads, trial.variant, trial.max_batch_tokens)
        for trial in tuning.best.values()
    }
    width = max(len(trial.model) for trial in rows)
    lines = [f"  {'model':<{width}}  workers  threads  {'variant':<16}  tokens a pass  texts/s"]
    for row in sorted(rows, key=lambda row: (row.model, -row.texts_per_s)):
        what = (row.model, row.workers, row.threads, row.variant, row.max_batch_tokens)
        mark, doubtful = "*" if what in taken else " ", "  doubtful" if row.doubtful else ""
        lines.append(
            f"{mark} {row.model:<{width}}  {row.workers:7}  {row.threads:7}  {row.variant:<16}"
            f"  {row.max_batch_tokens:13}  {row.texts_per_s:7.1f}{doubtful}"
        )
    lines.append(f"taken (*): {tuning.workers} worker(s) with {tuning.threads} thread(s) each; kept in {measured.file}")
    return "\n".join(lines)


def _row(trial: Trial) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.to_builtins(trial)
    return row

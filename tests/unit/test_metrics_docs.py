"""Every metric is described in the reference, and the reference describes no other."""

import re
from pathlib import Path

from batchfleet.telemetry import Metrics

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


def test_the_reference_of_metrics_is_complete() -> None:
    metrics = Metrics()
    metrics.watch_queues(list)
    metrics.watch_outbox(list)
    families = set(re.findall(r"^# TYPE (batchfleet_\w+) ", metrics.render().decode(), flags=re.MULTILINE))
    exported = {name for name in families if not name.endswith("_created")}
    described = set(re.findall(r"^\| `(batchfleet_\w+)` \|", PAGE.read_text(), flags=re.MULTILINE))

    assert described == exported

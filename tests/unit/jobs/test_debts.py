"""What the end of a job owes."""

import pytest

from batchfleet.jobs.debts import OUTPUT, PENDING, WEBHOOK, event_of, kinds_owed
from batchfleet.jobs.job import JobLinks, LinkFlag
from batchfleet.jobs.states import JobState
from batchfleet.outbox.delivery import DeliveryKind, DeliveryState

ALL = LinkFlag.INPUT | LinkFlag.OUTPUT | LinkFlag.CALLBACK


@pytest.mark.parametrize("state", list(JobState))
def test_every_end_owes_and_nothing_else_does(state: JobState) -> None:
    assert kinds_owed(ALL, state) == ((WEBHOOK, OUTPUT) if state.terminal else ())


@pytest.mark.parametrize(
    ("links", "kinds"),
    [
        (JobLinks(), ()),
        (JobLinks(input_uri="s3://b/i"), ()),
        (JobLinks(input_uri="s3://b/i", output_uri="s3://b/o"), (OUTPUT,)),
        (JobLinks(callback_url="https://example.com/"), (WEBHOOK,)),
    ],
)
def test_only_what_was_asked_for_is_owed(links: JobLinks, kinds: tuple[str, ...]) -> None:
    assert kinds_owed(links.flags, JobState.FAILED) == kinds


def test_the_outbox_knows_these_words() -> None:
    """It is a later stage, which this one cannot import."""
    assert {WEBHOOK, OUTPUT} == set(DeliveryKind)
    assert DeliveryState.PENDING == PENDING
    assert event_of(JobState.SUCCEEDED) == "job.succeeded"

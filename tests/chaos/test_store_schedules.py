"""Random schedules: the database and the double are driven in lockstep, and must agree after every step.

A schedule is a seed: whatever fails is run again with `Schedule(seed, …)`. Time stands still until a step moves
it, so that nothing depends on the machine.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from batchfleet.clock import ManualClock
from batchfleet.database.opening import open_database
from batchfleet.jobs.debts import event_of, kinds_owed
from batchfleet.jobs.job import (
    ClaimedJob,
    HandBack,
    JobError,
    JobId,
    JobLinks,
    JobRecord,
    Lane,
    Settlement,
    WorkerLease,
    WorkerState,
)
from batchfleet.jobs.memory import MemoryStore
from batchfleet.jobs.sql.store import SqlStore
from batchfleet.jobs.states import JobState, can_change
from batchfleet.jobs.store import JobStore
from tests.support.stores import TTL_S, Chance, new_job, pay_debts, sqlite_url, stored_debts

SCHEDULES = 320
GROUPS = 8
STEPS = 30

ALL = 10_000
"""A limit that never binds where a smaller one would leave the choice of rows open."""


class Schedule:
    """One seeded run of two stores."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock(1_700_000_000.0)
        url = sqlite_url(folder, f"{seed}.db")
        self.sql = SqlStore(url, clock=self.clock, chance=Chance())
        self.database = open_database(url)
        self.memory = MemoryStore(self.clock, chance=Chance())
        self.ids: list[JobId] = []
        self.boots: list[str] = []
        self.claims: list[tuple[str, ClaimedJob]] = []
        self.before: dict[JobId, JobRecord] = {}
        self.gone: set[JobId] = set()
        self.made = 0
        self.trace: list[str] = []
        self.steps: list[tuple[Callable[[], None], int]] = [
            (self.advance, 6),
            (self.submit, 5),
            (self.register, 2),
            (self.heartbeat, 3),
            (self.claim, 5),
            (self.claim_ready, 3),
            (self.settle, 6),
            (self.hand_back, 2),
            (self.cancel, 2),
            (self.revoked, 1),
            (self.announce, 2),
            (self.expire, 2),
            (self.rescue, 3),
            (self.bury, 1),
            (self.retire, 1),
            (self.delete, 1),
            (self.purge, 2),
            (self.pay, 1),
        ]

    def run(self) -> None:
        """Takes all steps, comparing after each."""
        try:
            self.register()
            steps, weights = zip(*self.steps, strict=True)
            for step in self.chance.choices(steps, weights, k=STEPS):
                step()
                self.compare()
        finally:
            self.sql.close()
            self.database.close()

    def both(self, name: str, *arguments: Any, **named: Any) -> Any:
        """Calls both stores and returns the answer on which they agree, in whatever order each gives it."""
        if name not in {"look_up", "due", "workers", "queue_depths", "named_blobs"}:
            self.trace.append(f"{self.clock()}: {name}{arguments}{named}")
        expected = getattr(self.memory, name)(*arguments, **named)
        answer = getattr(self.sql, name)(*arguments, **named)
        assert unordered(answer) == unordered(expected), "\n".join(self.trace)
        return expected

    def compare(self) -> None:
        """Holds the stores to each other, and both to what is always true."""
        records: list[JobRecord] = self.both("look_up", self.ids, with_results=True)
        self.both("due", TTL_S)
        self.both("workers")
        depths = self.both("queue_depths")

        assert len(records) == len(self.ids)
        for record in records:
            check_step(self.before.get(record.id), record)
        open_states = Counter((record.state) for record in records if not record.state.terminal)
        counted = Counter[JobState]()
        for depth in depths:
            counted[depth.state] += depth.jobs
        assert counted == open_states
        self.check_debts(records)
        epochs = [f"{record.id}/{record.epoch + past}" for record in records for past in (-1, 0) if record.epoch]
        self.both("named_blobs", [*epochs, *(f"{job_id}/1" for job_id in self.gone)])
        self.before = {record.id: record for record in records}

    def check_debts(self, records: list[JobRecord]) -> None:
        """A job that has ended owes what it was asked for, once; any other owes nothing, deleted ones as before."""
        debts = self.memory.debts()
        assert unordered(stored_debts(self.database)) == unordered(debts), "\n".join(self.trace)
        owed = Counter((debt.job_id, debt.kind, debt.event) for debt in debts if debt.job_id not in self.gone)
        assert owed == Counter(
            (record.id, kind, event_of(record.state))
            for record in records
            for kind in kinds_owed(record.links.flags, record.state)
        ), "\n".join(self.trace)

    # -- steps --------------------------------------------------------------------------------------------

    def advance(self) -> None:
        self.clock.advance(self.chance.choice([0.25, 1.0, 2.0, 5.0, 10.0, 20.0]))

    def submit(self) -> None:
        jobs = [self._job() for _ in range(self.chance.randint(1, 4))]
        answers = self.both("submit", jobs)
        self.ids += [answer.id for answer in answers if answer.created and answer.id not in self.ids]

    def register(self) -> None:
        self.made += 1
        self.boots.append(f"boot-{self.made}")
        lease = WorkerLease(boot=self.boots[-1], name="host-0", pid=1, state=WorkerState.READY)
        self.both("register", lease)

    def heartbeat(self) -> None:
        for boot in self.boots:
            if self.chance.random() < 0.7:
                self.both("heartbeat", boot, self.chance.choice(list(WorkerState)))

    def claim(self) -> None:
        boot = self._boot()
        self._claimed(boot, self.both("claim", boot, [*self._some(self.ids), "f" * 32]))

    def claim_ready(self) -> None:
        boot = self._boot()
        models = self.chance.choice([[], ["tiny"], ["other"]])
        self._claimed(boot, self.both("claim_ready", boot, models, self.chance.randint(1, 6)))

    def settle(self) -> None:
        boot = self._boot()
        mine = [job for owner, job in self.claims if owner == boot or self.chance.random() < 0.1]
        rows = [self._settlement(job) for job in self._some(mine)]
        self.both("settle", boot, rows, bytes(range(100)))

    def hand_back(self) -> None:
        boot = self._boot()
        mine = [job for owner, job in self.claims if owner == boot or self.chance.random() < 0.1]
        self.both("hand_back", boot, [HandBack(job.id, job.epoch) for job in self._some(mine)])

    def cancel(self) -> None:
        self.both("cancel", self._some(self.ids)[:2], tenant=self.chance.choice([None, "a", "b"]))

    def revoked(self) -> None:
        for boot in self.boots:
            self.both("revoked", boot)

    def announce(self) -> None:
        skip = self.chance.choice([[], [("tiny", Lane.BULK)]])
        for job in self.both("announceable", ALL, skip=skip):
            assert self.before[job.id].state is JobState.QUEUED

    def expire(self) -> None:
        self.both("expire", self.chance.choice([1, 2, ALL]))

    def rescue(self) -> None:
        self.both("rescue", TTL_S, self.chance.choice([1, 2, ALL]))

    def bury(self) -> None:
        boot = self._boot()
        self.both("bury", boot, self._some([job.id for owner, job in self.claims if owner == boot]))

    def retire(self) -> None:
        self.both("retire", self._boot())

    def delete(self) -> None:
        deleted = self.both("delete", self._some(self.ids)[:3], tenant=self.chance.choice([None, "a", "b"]))
        self._forget({job.id for job in deleted if job.state.terminal})

    def purge(self) -> None:
        age = self.chance.choice([0.0, 5.0, 20.0])
        if self.chance.random() < 0.5:
            self.both("purge_results", age, ALL)
        else:
            self._forget({job_id for job_id, _ in self.both("purge_jobs", age, ALL)})

    def pay(self) -> None:
        self.memory.pay_debts()
        self.database.write(pay_debts)

    # -- choices ------------------------------------------------------------------------------------------

    def _forget(self, ids: set[JobId]) -> None:
        assert all(self.before[job_id].state.terminal for job_id in ids)
        self.gone |= ids
        self.ids = [job_id for job_id in self.ids if job_id not in ids]

    def _boot(self) -> str:
        return self.chance.choice(self.boots[-4:])

    def _some(self, things: list[Any]) -> list[Any]:
        return self.chance.sample(things, self.chance.randint(0, min(len(things), 6)))

    def _claimed(self, boot: str, claimed: list[ClaimedJob]) -> None:
        self.claims += [(boot, job) for job in claimed]

    def _job(self) -> Any:
        self.made += 1
        pick = self.chance.choice
        key = pick([None, None, "k1", "k2"])
        return new_job(
            id=f"{self.made:032x}",
            model=pick(["tiny", "tiny", "other"]),
            tenant=pick(["a", "b"]),
            lane=Lane.BULK if self.made % 2 else Lane.ONLINE,
            item_count=pick([1, 1, 3]),
            ttl_s=pick([None, 2.0, 30.0]),
            run_at=pick([None, None, self.clock() + 7.0]),
            run_timeout_s=pick([3.0, 300.0]),
            max_attempts=pick([1, 3]),
            idempotency_key=key,
            fingerprint=pick("fg") if key else "",
            announced_by_submitter=pick([True, False]),
            links=JobLinks(
                input_uri=pick([None, None, "s3://in/a"]),
                output_uri=pick([None, None, f"s3://out/{self.made}"]),
                callback_url=pick([None, None, "https://example.com/"]),
            ),
        )

    def _settlement(self, job: ClaimedJob) -> Settlement:
        state = self.chance.choice([new for new in JobState if can_change(JobState.RUNNING, new)])
        done = state is JobState.SUCCEEDED
        return Settlement(
            id=job.id,
            epoch=job.epoch,
            state=state,
            offset=self.chance.randint(0, 50),
            length=self.chance.randint(0, 50),
            format="{}" if done else None,
            blob_key=f"{job.id}/{job.epoch}" if done and self.chance.random() < 0.2 else None,
            error=None if done else JobError("pass_failed", "no luck", self.chance.choice([None, 0])),
            provenance=self.chance.choice([None, '{"runtime":"x"}']) if state is not JobState.QUEUED else None,
            retry_in_s=self.chance.choice([0.0, 4.0]),
        )


def check_step(old: JobRecord | None, new: JobRecord) -> None:
    """Holds one job's change to the rules, whatever the step was."""
    assert (new.finished_at is not None) == new.state.terminal
    assert (new.result is not None) == (new.state is JobState.SUCCEEDED and not new.result_gone)
    if old is None:
        assert (new.state, new.epoch) == (JobState.QUEUED, 0)
    elif old.state.terminal:
        assert new in {old, replace(old, result=None, result_gone=True)}
    else:
        assert new.state is old.state or can_change(old.state, new.state)
        assert new.epoch in {old.epoch, old.epoch + 1}
        assert new.attempts in {old.attempts, old.attempts + 1}
        assert new.crashes in {old.crashes, old.crashes + 1}
        assert new.state is not JobState.RUNNING or new.epoch > 0


def unordered(answer: Any) -> Any:
    """Returns the answer in a form that does not depend on an order which the port leaves open."""
    if isinstance(answer, list | tuple):
        return sorted((unordered(part) for part in answer), key=repr)
    if hasattr(answer, "requeued"):
        return [unordered(part) for part in (answer.requeued, answer.ended, answer.dead_boots)]
    return answer


def test_both_are_stores(tmp_path: Path) -> None:
    """mypy holds the schedule's two stores to the port."""
    stores: list[JobStore] = [MemoryStore(), SqlStore(sqlite_url(tmp_path))]

    for store in stores:
        store.close()


@pytest.mark.parametrize("group", range(GROUPS))
def test_the_stores_agree_after_every_step(group: int, tmp_path: Path) -> None:
    for seed in range(group * SCHEDULES // GROUPS, (group + 1) * SCHEDULES // GROUPS):
        Schedule(seed, tmp_path).run()


@pytest.mark.soak
def test_the_stores_agree_for_long(tmp_path: Path) -> None:
    for seed in range(10**6, 10**6 + 20 * SCHEDULES):
        Schedule(seed, tmp_path).run()

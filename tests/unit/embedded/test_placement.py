"""How many workers `batchfleet up` starts: what is explicit wins, then GPUs, then what was tuned, then the cores."""

import dataclasses
import os
from pathlib import Path

import pytest

from batchfleet.embedded.cores import usable_cores
from batchfleet.embedded.placement import decide, place
from batchfleet.embedded.stack import StackSpec, lay_out
from batchfleet.embedded.tune.recall import here
from batchfleet.inference.tuning import Tuning, remember, tuning_file
from batchfleet.settings import Settings

TUNED = Tuning(workers=3, threads=2, best={}, tried=(), measured_at="2026-01-01T00:00:00+00:00")


@pytest.mark.parametrize(
    ("asked", "devices", "tuning", "workers", "threads", "reason"),
    [
        (None, (), None, 6, None, "one a core"),
        (None, (), TUNED, 3, 2, "as tuned"),
        (3, (), TUNED, 3, 2, "as asked"),
        (5, (), TUNED, 5, 1, "as asked"),  # two threads each were measured with three workers
        (None, ("0", "1"), TUNED, 2, 1, "one a GPU"),
        (4, ("0", "1"), None, 4, None, "as asked"),
    ],
)
def test_precedence(
    asked: int | None, devices: tuple[str, ...], tuning: Tuning | None, workers: int, threads: int | None, reason: str
) -> None:
    placement = decide(Settings(), asked, devices, tuning, 6)

    assert (placement.workers, placement.threads, placement.reason) == (workers, threads, reason)
    assert placement.devices == devices


def test_threads_that_are_set_are_not_touched() -> None:
    assert decide(Settings(worker_threads=4), None, (), TUNED, 6).threads is None


def test_the_state_folder_is_asked(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path, models_url=f"file://{tmp_path}/models")

    assert place(settings, None, {}).workers == usable_cores()
    remember(tuning_file(tmp_path), here(), TUNED)
    assert place(settings, None, {}).workers == 3


def test_each_worker_gets_one_gpu_and_the_tuned_threads(tmp_path: Path) -> None:
    stack = lay_out(StackSpec(data_dir=tmp_path, port=0, workers=3), environ={})
    spec = dataclasses.replace(stack.spec, threads=2, devices=("0", "MIG-b"))

    children = dataclasses.replace(stack, spec=spec).children()
    workers = [child.environment for child in children if child.name.startswith("worker-")]
    others = [child.environment for child in children if not child.name.startswith("worker-")]

    assert [worker["CUDA_VISIBLE_DEVICES"] for worker in workers] == ["0", "MIG-b", "0"]
    assert {worker["BATCHFLEET_WORKER_THREADS"] for worker in workers} == {"2"}
    assert all("BATCHFLEET_WORKER_THREADS" not in other for other in others)


def test_a_machine_without_gpus_and_tuning_is_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    stack = lay_out(StackSpec(data_dir=tmp_path, port=0, workers=1), environ={})

    ours = {name for child in stack.children() for name in child.environment} - os.environ.keys()

    assert not {"CUDA_VISIBLE_DEVICES", "BATCHFLEET_WORKER_THREADS"} & ours

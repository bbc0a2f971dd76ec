"""What was tuned is remembered for the machine, the cores, the runtimes and the models it was measured with."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batchfleet.embedded.cores import read_cores
from batchfleet.embedded.tune.recall import here, recall_here
from batchfleet.inference.machine import Cpu
from batchfleet.inference.tuning import (
    Trial,
    Tuning,
    machine_key,
    measured_elsewhere,
    recall,
    remember,
    tuning_file,
    unmeasured,
)

CPU = Cpu(machine="x86_64", model="Quick One", flags=frozenset())
TRIAL = Trial(2, 1, "tiny@1", "int8", 512, 100.0)
TUNING = Tuning(workers=2, threads=1, best={"abc": TRIAL}, tried=(TRIAL,), measured_at="2026-01-01T00:00:00+00:00")


def test_a_record_is_found_again_beside_those_of_other_cores(tmp_path: Path) -> None:
    file = tuning_file(tmp_path / "deep")
    remember(file, machine_key(CPU, "2 CPUs"), TUNING)
    remember(file, machine_key(CPU, "4 CPUs"), Tuning(4, 1, {}, (), ""))

    assert recall(file, machine_key(CPU, "2 CPUs")) == TUNING
    assert [path.name for path in file.parent.iterdir()] == ["tuning.json"]


def test_the_key_names_cpu_cores_and_runtime() -> None:
    key = machine_key(CPU, "2 CPUs")

    assert key.startswith("Quick One | 2 CPUs | ")
    assert "onnxruntime" in key


@pytest.mark.parametrize("text", ["", "[]", "{", '{"key": 1}', '{"key": {"workers": 2}}'])
def test_what_cannot_be_read_was_not_measured(tmp_path: Path, text: str) -> None:
    file = tuning_file(tmp_path)
    file.write_text(text)

    assert recall(file, "key") is None


def test_staleness_is_told(tmp_path: Path) -> None:
    file = tuning_file(tmp_path)

    assert not measured_elsewhere(file, "here")
    remember(file, "there", TUNING)
    assert measured_elsewhere(file, "here")
    assert not measured_elsewhere(file, "there")
    assert unmeasured(TUNING, ["abc", "new"]) == ["new"]


def record(**changes: object) -> dict[str, object]:
    """Returns a record as it is stored, with some of its fields changed; those of its best trial as `best_…`."""
    whole: dict[str, Any] = msgspec.to_builtins(TUNING)
    for name, value in changes.items():
        place = whole["best"]["abc"] if name.startswith("best_") else whole
        place[name.removeprefix("best_")] = value
    return whole


def text_of(**changes: object) -> str:
    return json.dumps({"key": record(**changes)})


@pytest.mark.parametrize(
    "text",
    [
        *(text_of(workers=wrong) for wrong in (0, -5, 1_000_000, 1.5, "2")),
        *(text_of(threads=wrong) for wrong in (0, 9_999)),
        *(text_of(best_max_batch_tokens=wrong) for wrong in (0, -1, 10**12)),
        *(text_of(best_texts_per_s=wrong) for wrong in (0, float("nan"), float("inf"))),
        text_of(best_workers=0),
        "[" * 100_000,
        '{"key": ' * 100_000,
        "[]",
        "{",
    ],
)
def test_what_cannot_be_was_not_measured_and_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    file = tuning_file(tmp_path)
    file.write_text(text)

    assert recall(file, "key") is None
    assert [vars(one)["action"] for one in caplog.records] == ["tuning_odd"]
    remember(file, "key", TUNING)  # measuring anew mends it
    assert recall(file, "key") == TUNING


def test_a_split_that_this_machine_cannot_be_meant_by_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cpus = read_cores().logical
    remember(tuning_file(tmp_path), here(), Tuning(min(1024, 4 * cpus + 1), 1, {}, (), ""))
    assert recall_here(tmp_path) is None
    assert "too many for" in caplog.text
    remember(tuning_file(tmp_path), here(), Tuning(cpus, 1, {}, (), ""))
    assert recall_here(tmp_path) == Tuning(cpus, 1, {}, (), "")

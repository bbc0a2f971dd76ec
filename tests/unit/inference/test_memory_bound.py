"""A worker's memory does not grow with the mix of lengths: measured in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from batchfleet.inference.registry import load_runtime
from batchfleet.models.config import Limits, Variant
from batchfleet.models.repository import ModelFiles, ModelRepository
from tests.support.models import INTEGER, build_tiny_encoder

GROWTH_MB = 32
"""More than the noise of an allocator, and a third of what 120 shapes compiled on the way would cost."""

SOAK = """
import random, sys
from pathlib import Path
from batchfleet.inference.measure import as_they_come, pass_items, run_batches
from batchfleet.inference.memory import give_back_memory
from batchfleet.inference.registry import load_executor
from batchfleet.models.repository import ModelRef, ModelRepository

def resident_mb():
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024

files = ModelRepository(Path(sys.argv[1])).open(ModelRef("tiny", "1"))
model = load_executor(files, sys.argv[2])
model.executor.warm_up()
give_back_memory()
warm = resident_mb()
rng = random.Random(1)
shapes = model.executor.shapes
passes = 0
while passes < 150:
    lengths = [rng.randint(1, 512) if rng.random() < 0.3 else rng.randint(1, 60) for _ in range(rng.randint(1, 64))]
    items = pass_items([model.task.sample(length) for length in lengths], model.task.default_parameters())
    batches = as_they_come(items, shapes)
    run_batches(model.executor, batches)
    passes += len(batches)
print(warm, resident_mb())
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    root = tmp_path_factory.mktemp("models")
    limits = Limits(max_batch_items=64, max_batch_tokens=1024, max_item_tokens=512)
    return ModelRepository(root).open(build_tiny_encoder(root, hidden=64, layers=2, positions=512, limits=limits))


def openvino(files: ModelFiles) -> Variant | None:
    found = [variant for variant in files.config.variants if variant.provider == "openvino"]
    return next((one for one in found if load_runtime(one.runtime).refusal(one) is None), None)


def soak(files: ModelFiles, variant: str) -> tuple[float, float]:
    command = [sys.executable, "-c", SOAK, str(files.path.parent.parent), variant]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path.cwd())
    warm, after = done.stdout.split()
    return float(warm), float(after)


def test_passes_of_any_lengths_leave_no_memory_behind(files: ModelFiles) -> None:
    warm, after = soak(files, INTEGER)

    assert after - warm < GROWTH_MB
    assert after < 500


def test_where_shapes_are_compiled_traffic_compiles_none(files: ModelFiles) -> None:
    variant = openvino(files)
    warm, after = soak(files, variant.name if variant else "fp32")

    assert after - warm < GROWTH_MB
    assert after < 500

"""The benchmark end to end on a tiny model: same vectors, all keys, nothing left running."""

import json
import subprocess
import sys
from pathlib import Path

from batchfleet.build.demo_model import DEMO_MODEL
from batchfleet.build.key import builder_key
from batchfleet.embedded.session import clean_environment
from tests.support.models import build_tiny_encoder


def test_it_compares_the_fleet_with_the_loop(tmp_path: Path) -> None:
    models = tmp_path / "cache" / "batchfleet" / f"models-{builder_key()}"
    build_tiny_encoder(models, name=DEMO_MODEL.name, version=DEMO_MODEL.version)
    environment = {**clean_environment(), "XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-P", "-m", "batchfleet.cli", "bench", "--json", "--texts", "300", "--rounds", "1"]

    done = subprocess.run(
        [*command, "--workers", "1"], env=environment, capture_output=True, text=True, timeout=110, check=False
    )

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["ok"]
    assert found["min_cosine"] >= 0.99999
    assert found["texts"] == 300
    assert found["cpu_ms_per_job"]["worker"] > 0
    assert found["runtime"] == "onnx"
    assert not list(tmp_path.glob("batchfleet-bench-*"))

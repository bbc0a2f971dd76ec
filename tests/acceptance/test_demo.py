"""`batchfleet demo` end to end, on a tiny model under the real one's name: it works, and it cleans up."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from batchfleet.build.demo_model import DEMO_MODEL
from batchfleet.build.key import builder_key
from batchfleet.embedded.session import clean_environment
from tests.support.models import build_tiny_encoder

MODELS = f"models-{builder_key()}"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    build_tiny_encoder(tmp_path / "cache" / "batchfleet" / MODELS, name=DEMO_MODEL.name, version=DEMO_MODEL.version)
    return {**clean_environment(), "XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}


def run_demo(environment: dict[str, str], *options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-P", "-m", "batchfleet.cli", "demo", "--texts", "60", "--workers", "1", *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110, check=False)


def test_it_shows_vectors_and_figures_and_leaves_nothing(environment: dict[str, str], tmp_path: Path) -> None:
    done = run_demo(environment)

    assert done.returncode == 0, done.stderr
    for expected in (
        "Serving",
        "lognormal length",
        "texts/s",
        "60/60",
        "How do I open a file",
        "padding",
        "steps overlap",
        "on average, in the queue",
        "CPU by process",
        "Stopped",
    ):
        assert expected in " ".join(done.stdout.split())
    assert "cannot be used" not in done.stdout
    assert not list(tmp_path.glob("batchfleet-demo-*"))


def test_a_broken_model_is_told_and_fails(environment: dict[str, str]) -> None:
    models = Path(environment["XDG_CACHE_HOME"]) / "batchfleet" / MODELS / DEMO_MODEL.name / DEMO_MODEL.version
    for graph in models.glob("*.onnx"):
        graph.write_bytes(b"not a model")

    done = run_demo(environment)

    assert done.returncode == 1
    assert "SHA-256" in done.stderr
    done = run_demo(environment, "--json")
    assert done.returncode == 1
    assert json.loads(done.stderr.splitlines()[-1])["error"]["code"] == "model_digest_mismatch"

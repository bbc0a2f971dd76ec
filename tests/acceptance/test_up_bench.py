"""The benchmark end to end on a tiny model: all scenarios, same vectors, all keys, nothing left running."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from batchfleet.build.demo_model import DEMO_MODEL
from batchfleet.build.key import builder_key
from batchfleet.embedded.bench.spec import SCENARIOS
from batchfleet.embedded.session import clean_environment
from batchfleet.embedded.stack import StackInfo
from tests.support.models import INTEGER, build_tiny_encoder, tiny_text

BENCH = [sys.executable, "-P", "-m", "batchfleet.cli", "bench", "--json"]
SMALL = "--texts 100 --rounds 1 --duration 0.3 --loads 0.5,1 --callers 8 --lane-mix online=1,bulk=1 --workers 1"


@pytest.mark.timeout(240)
def test_all_scenarios_run_and_the_fleet_answers_as_the_loop_does(tmp_path: Path) -> None:
    models = tmp_path / "cache" / "batchfleet" / f"models-{builder_key()}"
    build_tiny_encoder(models, name=DEMO_MODEL.name, version=DEMO_MODEL.version)
    environment = {**clean_environment(), "XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}
    texts, picture = tmp_path / "texts", tmp_path / "load.svg"
    texts.write_text("\n".join(tiny_text(4 + number % 40, seed=number) for number in range(100)), encoding="utf-8")
    command = [*BENCH, "--scenario", "all", *SMALL.split(), "--variant", INTEGER]

    done = subprocess.run(
        [*command, "--texts-file", str(texts), "--svg", str(picture)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    assert done.returncode in {0, 1}, done.stderr
    found = json.loads(done.stdout)
    scenarios = found["scenarios"]
    # A machine that is busy with other tests may end the backlog of `mixed` early; all else must be well.
    assert {name for name, one in scenarios.items() if not one["ok"]} <= {"mixed"}, done.stdout
    assert list(scenarios) == list(SCENARIOS)
    assert found["min_cosine"] >= 0.99999
    assert (found["texts"], found["runtime"], found["variant"]) == (100, "onnx", INTEGER)
    assert found["cpu_ms_per_job"]["worker"] > 0
    assert found["rss_mb"]["worker-0"] > 30
    assert scenarios["requests"]["answers"] == {"200": 100}
    assert set(scenarios["requests"]["latency_ms_by_lane"]) == {"online", "bulk"}
    assert scenarios["requests"]["generator_cpu_ms_per_job"] > 0
    assert scenarios["idle"]["latency_ms"]["p50"] > scenarios["idle"]["pass_ms"]["p50"] > 0
    assert [point["share_of_peak"] for point in scenarios["load"]["points"]] == [0.5, 1.0]
    assert scenarios["mixed"]["alone"]["succeeded"] == scenarios["mixed"]["behind_backlog"]["succeeded"] > 0
    assert scenarios["overload"]["lost_jobs"] == 0
    assert picture.read_text(encoding="utf-8").startswith("<svg")
    assert not list(tmp_path.glob("batchfleet-bench-*"))


@pytest.mark.timeout(120)
def test_a_benchmark_that_is_told_to_end_leaves_nothing(tmp_path: Path) -> None:
    models = tmp_path / "cache" / "batchfleet" / f"models-{builder_key()}"
    build_tiny_encoder(models, name=DEMO_MODEL.name, version=DEMO_MODEL.version)
    environment = {**clean_environment(), "XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}
    command = [*BENCH, "--scenario", "bulk", "--texts", "100", "--workers", "1", "--variant", INTEGER]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as bench:
        try:
            assert bench.stderr is not None
            assert any("a fresh fleet is ready" in line for line in bench.stderr)
            (folder,) = tmp_path.glob("batchfleet-bench-*")
            pids = StackInfo.read(folder).pids.values()  # type: ignore[union-attr]

            bench.send_signal(signal.SIGTERM)
            told = bench.stderr.read()

            assert bench.wait(60) == 130, told
        finally:
            bench.kill()
    assert "interrupted" in told
    assert not list(tmp_path.glob("batchfleet-bench-*"))
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_a_picture_needs_what_it_shows(tmp_path: Path) -> None:
    done = subprocess.run(
        [*BENCH, "--svg", str(tmp_path / "load.svg")], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 2
    assert "--svg" in done.stderr
    assert not done.stdout

"""The how-to page for processes started one by one: its commands are run as they stand there."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

from batchfleet.build.demo_model import DEMO_MODEL
from batchfleet.build.key import builder_key
from batchfleet.embedded.session import clean_environment
from tests.support.models import build_tiny_encoder

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "run-on-several-machines.md"
FOLDER = "/srv/batchfleet"


def blocks(folder: Path) -> list[str]:
    """Returns the commands of the page, with a folder of ours."""
    found = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [block.replace(FOLDER, str(folder)) for block in found]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_the_commands_of_the_page_work(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    build_tiny_encoder(
        cache / "batchfleet" / f"models-{builder_key()}", name=DEMO_MODEL.name, version=DEMO_MODEL.version
    )
    port = free_port()
    environment = {
        **clean_environment(),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(cache),
        "BATCHFLEET_API_PORT": str(port),
        "BATCHFLEET_URL": f"http://127.0.0.1:{port}",
        "BATCHFLEET_WORKER_VARIANT": "fp32",
    }
    prepare, services, use = blocks(tmp_path / "fleet")
    prepared = subprocess.run(
        ["bash", "-ec", f"{prepare}\nenv -0 > {tmp_path}/env"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert prepared.returncode == 0, prepared.stderr
    environment = dict(
        line.split("=", 1) for line in (tmp_path / "env").read_text(encoding="utf-8").split("\0") if line
    )
    processes = [
        subprocess.Popen(["bash", "-c", f"exec {line}"], env=environment, stderr=subprocess.PIPE, text=True)
        for line in services.splitlines()
    ]
    try:
        # The API is not asked before it listens: its log says when.
        assert processes[0].stderr is not None
        assert any("listening" in line for line in processes[0].stderr)
        used = subprocess.run(
            ["bash", "-ec", use], env=environment, capture_output=True, text=True, timeout=100, check=False
        )
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        ends = [process.communicate(timeout=60) for process in processes]

    assert used.returncode == 0, used.stderr
    assert used.stdout.split()[1] == "succeeded"
    assert [process.returncode for process in processes] == [0] * len(processes), ends

"""`python -m api` as a process of its own."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.apiserver import WAIT_S


def environment_of(folder: Path, **stated: str) -> dict[str, str]:
    """Returns the environment of a process whose database, models and blobs are in a folder."""
    return {
        **os.environ,
        "BATCHFLEET_DATABASE_URL": f"sqlite:///{folder}/batchfleet.db",
        "BATCHFLEET_MODELS_URL": f"file://{folder}/models",
        "BATCHFLEET_BLOB_URL": f"file://{folder}/blobs",
        "BATCHFLEET_API_PORT": "0",
        **stated,
    }


@contextmanager
def api_process(
    environment: Mapping[str, str], pass_fds: tuple[int, ...] = ()
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Starts a process and yields it with its URL, which its log states."""
    process = subprocess.Popen(
        [sys.executable, "-m", "api"],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=pass_fds,
    )
    assert process.stderr is not None
    try:
        log = ""
        for line in process.stderr:
            log += line
            if found := re.search(r"url=(http\S+)", line):
                yield process, found[1]
                break
        else:
            pytest.fail(log)
    finally:
        process.kill()
        process.wait(WAIT_S)
        process.stderr.close()

"""Requests made up from the OpenAPI document, good and bad, find nothing wrong with a real API process.

All checks: no server error, statuses and content types and bodies as documented, bad data refused and good data not,
methods that are not there, authentication that is not ignored, and jobs that are gone once they are removed.
"""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from batchfleet.access.keys import Role, new_key
from batchfleet.access.sql import SqlAccess
from migrations.run import upgrade
from tests.support.apiprocess import api_process, environment_of
from tests.support.apiserver import publish_model

SEED = "20261"
EXAMPLES = "5"
RUN_S = 110.0
"""Bounds a run; nothing is measured by it."""

KEY = new_key()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("schemathesis")
    publish_model(folder / "models")
    upgrade(f"sqlite:///{folder}/batchfleet.db")
    access = SqlAccess(f"sqlite:///{folder}/batchfleet.db")
    access.create_key(KEY, tenant="default", name="schemathesis", roles=frozenset(Role))
    access.close()
    return folder


@dataclass(frozen=True)
class Run:
    """One run of Schemathesis.

    Attributes:
        required: Whether the API asks for keys.
        authenticated: Whether it gets them.
        knowing: Whether the model of the fleet is filled in, so that most of what is made up is accepted.
    """

    required: bool
    authenticated: bool
    knowing: bool


RUNS = {
    "authenticated": Run(required=True, authenticated=True, knowing=True),
    "not authenticated": Run(required=True, authenticated=False, knowing=False),
    "without keys": Run(required=False, authenticated=False, knowing=True),
}


@pytest.mark.parametrize("name", RUNS)
def test_nothing_is_found(name: str, folder: Path) -> None:
    run = RUNS[name]
    stated = {
        "BATCHFLEET_REQUIRE_KEYS": str(run.required),
        "BATCHFLEET_LONG_POLL_MAX_S": "0.05",
        "BATCHFLEET_INPUT_PREFIXES": "s3://allowed/",
        "BATCHFLEET_OUTPUT_PREFIXES": "s3://allowed/",
    }
    with api_process(environment_of(folder, **stated)) as (_, url):
        done = subprocess.run(
            _command(url, run), cwd=folder, env=_environment(run), capture_output=True, text=True, timeout=RUN_S,
            check=False,
        )  # fmt: skip

    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
    assert " passed" in done.stdout


def _command(url: str, run: Run) -> list[str]:
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json", "--checks", "all", "--seed", SEED),
        *("--max-examples", EXAMPLES, "--continue-on-failure", "--no-shrink", "--request-timeout", "20"),
        *("--suppress-health-check", "all", "--generation-database", "none"),
    ]
    if run.authenticated:
        command += ["-H", f"Authorization: Bearer {KEY.text}", "-H", f"X-API-Key: {KEY.text}"]
    return command


def _environment(run: Run) -> dict[str, str]:
    hooks = {"SCHEMATHESIS_HOOKS": "schemathesis_hooks", "PYTHONPATH": str(Path(__file__).parent)}
    return {**os.environ, **(hooks if run.knowing else {}), "NO_COLOR": "1"}

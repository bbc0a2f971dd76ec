"""Processes of the version before go on working while the schema is today's: an upgrade stops nobody."""

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import Script, ScriptDirectory

import migrations
from batchfleet.jobs.job import JobFilter
from batchfleet.jobs.sql.store import SqlStore
from batchfleet.jobs.states import JobState
from migrations.run import step_of, upgrade
from tests.support.postgres import session_server

FOLDER = Path(__file__).parent / "yesterday"
CODE = FOLDER / "batchfleet-e822500.zip"
HEAD = "0001"
"""The newest revision of that version."""

FORBIDDEN = re.compile(r"\b(DROP|RENAME|SET NOT NULL|ALTER COLUMN \w+ TYPE|DELETE|UPDATE|TRUNCATE)\b")
"""What takes something from those who know only the old schema, or rewrites a table under them."""

_SCRIPT = ScriptDirectory(str(Path(migrations.__file__).parent))
REVISIONS = list(_SCRIPT.walk_revisions())[::-1]


def fresh_url(kind: str, folder: Path) -> str:
    """Returns an empty database, without tables."""
    if kind == "sqlite":
        return f"sqlite:///{folder}/store.db"
    return session_server().new_database(migrated=False)


def run_old_code(url: str) -> None:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(CODE)}
    command = [sys.executable, "-P", str(FOLDER / "flow.py"), url]

    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_yesterdays_code_runs_on_todays_schema(kind: str, tmp_path: Path) -> None:
    url = fresh_url(kind, tmp_path)
    upgrade(url, HEAD)
    left = upgrade(url, post=False)
    assert {step_of(script) for script in REVISIONS if script.revision in left} <= {"post"}

    run_old_code(url)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_what_yesterdays_code_has_written_is_todays(kind: str, tmp_path: Path) -> None:
    url = fresh_url(kind, tmp_path)
    upgrade(url, HEAD)
    run_old_code(url)

    upgrade(url, post=False)

    store = SqlStore(url)
    states = [record.state for record in store.list_jobs(JobFilter())]
    assert sorted(states) == sorted([JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, *[JobState.QUEUED] * 3])
    store.close()


@pytest.mark.parametrize("script", REVISIONS, ids=lambda script: script.revision)
def test_each_revision_says_when_it_is_applied(script: Script) -> None:
    assert step_of(script) in {"pre", "post"}


@pytest.mark.parametrize("script", REVISIONS, ids=lambda script: script.revision)
def test_a_step_before_the_deployment_only_adds(script: Script) -> None:
    if step_of(script) == "pre":
        statements = [line for line in sql_of(script) if "alembic_version" not in line]

        assert statements
        assert [text for text in statements if FORBIDDEN.search(text.upper())] == []
        added = [text.upper() for text in statements if "ADD COLUMN" in text.upper()]
        assert [text for text in added if "NOT NULL" in text and "DEFAULT" not in text] == []


def sql_of(script: Script) -> list[str]:
    """Returns what a revision runs on Postgres, without running it."""
    printed = io.StringIO()
    config = Config(output_buffer=printed)
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.attributes["dialect"] = "postgresql"
    command.upgrade(config, f"{script.down_revision or 'base'}:{script.revision}", sql=True)
    return [" ".join(text.split()) for text in printed.getvalue().split(";") if text.strip()]

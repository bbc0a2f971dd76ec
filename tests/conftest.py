"""What all tests share: fixtures for real servers, and the rule that a skip in CI is a failure."""

import os
import signal
import sys

import pytest
from hypothesis import settings

# Hundreds of processes are started from the same files: where a machine's environment says not to keep what was
# compiled, each start costs 0.1 to 0.2 s of CPU more.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell without job control starts what runs in the background with ctrl-C ignored, and so would be every process that
# a test starts: those that are interrupted here would go on.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A deadline is a timing assertion, and these machines are shared: what must be fast is measured in benchmarks/.
# Fewer examples than the library's 100: each run draws others, and there is a run for every change.
settings.register_profile("shared-machine", deadline=None, max_examples=40)
settings.load_profile("shared-machine")

pytest_plugins = ["tests.support.servers", "tests.support.s3servers", "tests.support.postgres"]

NO_SKIPS = os.environ.get("BATCHFLEET_TEST_NO_SKIPS") == "1"


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI a skipped test hides a missing part: the run fails."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if NO_SKIPS and reporter is not None and reporter.stats.get("skipped") and session.exitstatus == 0:
        reporter.write_line("skipped tests are failures here (BATCHFLEET_TEST_NO_SKIPS=1)", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED

"""The supervisor, with tiny real children: it restarts, backs off, stops in stages and leaves nothing behind."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchfleet.embedded.child import ChildSpec
from batchfleet.embedded.processes import PidFiles, alive
from batchfleet.embedded.restart import RestartPolicy
from batchfleet.embedded.supervisor import Supervisor

SLEEPER = "import signal; print('up', flush=True); signal.pause()"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); signal.pause()"
DIES = "raise SystemExit(3)"
QUICK = RestartPolicy(first_s=0.01, max_s=0.04, healthy_s=60.0)


class Mailbox:
    """Messages that children write to a named pipe, awaited rather than slept for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        self._file = os.open(path, os.O_RDWR)
        self._lines: list[str] = []
        self._rest = ""

    def await_line(self, timeout_s: float = 30.0) -> str:
        while not self._lines:
            ready, _, _ = select.select([self._file], [], [], timeout_s)
            assert ready, "no message in time"
            *lines, self._rest = (self._rest + os.read(self._file, 4096).decode()).split("\n")
            self._lines.extend(lines)
        return self._lines.pop(0)

    def close(self) -> None:
        os.close(self._file)


@pytest.fixture
def mailbox(tmp_path: Path) -> Iterator[Mailbox]:
    box = Mailbox(tmp_path / "mailbox")
    yield box
    box.close()


def spec(name: str, code: str, mailbox: Mailbox | None = None, *, stage: int = 0, stop_s: float = 30.0) -> ChildSpec:
    prologue = f"import sys; sys.stdout = open({str(mailbox.path)!r}, 'w'); " if mailbox else ""
    command = (sys.executable, "-S", "-c", prologue + code)
    return ChildSpec(name=name, command=command, environment=dict(os.environ), stage=stage, stop_s=stop_s)


def supervise(tmp_path: Path, *specs: ChildSpec, policy: RestartPolicy = QUICK) -> Supervisor:
    return Supervisor(specs, pid_files=PidFiles(tmp_path / "run"), policy=policy)


def step_until_changed(supervisor: Supervisor) -> None:
    while not supervisor.step(30.0):
        pass


def test_a_dead_child_is_restarted_under_a_new_pid(tmp_path: Path, mailbox: Mailbox) -> None:
    with supervise(tmp_path, spec("sleeper", SLEEPER, mailbox)) as supervisor:
        supervisor.start()
        mailbox.await_line()
        first = supervisor.pids()["sleeper"]

        os.kill(first, signal.SIGKILL)
        step_until_changed(supervisor)
        assert supervisor.pids() == {}
        step_until_changed(supervisor)
        mailbox.await_line()

        assert supervisor.pids()["sleeper"] != first
        assert supervisor.restarts == 1


def test_failures_in_a_row_are_counted_and_named(tmp_path: Path) -> None:
    exits: list[tuple[str, str]] = []

    def note(name: str, reason: str) -> None:
        exits.append((name, reason))

    pid_files = PidFiles(tmp_path / "run")
    with Supervisor([spec("broken", DIES)], pid_files=pid_files, policy=QUICK, on_exit=note) as supervisor:
        supervisor.start()
        while supervisor.failing(3) is None:
            supervisor.step(30.0)

        assert supervisor.failing(3) == "broken"
        assert exits[:3] == [("broken", "exit code 3")] * 3
        assert supervisor.restarts >= 2


def test_the_delay_doubles_to_its_bound_and_starts_anew_after_a_healthy_run() -> None:
    policy = RestartPolicy(first_s=0.5, max_s=4.0, healthy_s=30.0)

    assert [policy.delay_s(failures) for failures in (1, 2, 3, 4, 5, 500)] == [0.5, 1.0, 2.0, 4.0, 4.0, 4.0]
    assert policy.failures_after(4, ran_s=29.9, code=1) == 5
    assert policy.failures_after(4, ran_s=30.0, code=1) == 1
    assert policy.failures_after(0, ran_s=0.1, code=78) > 100


def test_stages_stop_one_after_the_other(tmp_path: Path, mailbox: Mailbox) -> None:
    says_when = (
        "import os, signal\n"
        "def bye(*_): os.write(sys.stdout.fileno(), b'bye {0}\\n'); os._exit(0)\n"
        "signal.signal(signal.SIGTERM, bye); os.write(sys.stdout.fileno(), b'up\\n')\n"
        "while True: signal.pause()"
    )
    specs = [
        spec(name, "exec(" + repr(says_when.format(name)) + ")", mailbox, stage=stage)
        for name, stage in (("last", 2), ("first", 0), ("second", 1))
    ]
    with supervise(tmp_path, *specs) as supervisor:
        supervisor.start()
        assert [mailbox.await_line() for _ in specs] == ["up"] * 3

        assert supervisor.stop()

        assert [mailbox.await_line() for _ in specs] == ["bye first", "bye second", "bye last"]


def test_a_child_that_will_not_stop_is_killed_after_its_bound(
    tmp_path: Path, mailbox: Mailbox, caplog: pytest.LogCaptureFixture
) -> None:
    with supervise(tmp_path, spec("stubborn", STUBBORN, mailbox, stop_s=0.05)) as supervisor:
        supervisor.start()
        mailbox.await_line()
        pid = supervisor.pids()["stubborn"]

        assert not supervisor.stop()

        assert not alive(pid)
    assert "stubborn did not stop in time: killed" in caplog.text


def test_a_second_stop_signal_ends_the_wait(tmp_path: Path, mailbox: Mailbox, caplog: pytest.LogCaptureFixture) -> None:
    """The bound of the child is longer than the test's: only the signal can end the wait."""
    me = os.getpid()
    nudge = (
        f"import os, signal; signal.signal(signal.SIGTERM, lambda *_: os.kill({me}, signal.SIGINT)); "
        "print('up', flush=True)\nwhile True: signal.pause()"
    )
    with supervise(tmp_path, spec("nudger", "exec(" + repr(nudge) + ")", mailbox, stop_s=3600)) as supervisor:
        supervisor.start()
        mailbox.await_line()
        pid = supervisor.pids()["nudger"]

        assert not supervisor.stop()

        assert not alive(pid)
        assert supervisor.stops_asked == 1
    assert "nudger killed as asked" in caplog.text
    assert "in time" not in caplog.text


def test_a_stopped_child_that_is_named_is_killed_and_comes_back(tmp_path: Path, mailbox: Mailbox) -> None:
    with supervise(tmp_path, spec("sleeper", SLEEPER, mailbox)) as supervisor:
        supervisor.start()
        mailbox.await_line()
        pid = supervisor.pids()["sleeper"]
        os.kill(pid, signal.SIGSTOP)

        assert supervisor.kill(pid, "it holds the lock")
        assert not supervisor.kill(os.getpid(), "not ours")
        step_until_changed(supervisor)
        step_until_changed(supervisor)
        mailbox.await_line()

        assert supervisor.pids()["sleeper"] != pid


def test_kill_minus_nine_of_the_supervisor_leaves_no_child(tmp_path: Path, mailbox: Mailbox) -> None:
    """The child ignores SIGTERM and never reads the parent's pipe: the kernel alone must do it."""
    prologue = f"import os, sys; sys.stdout = open({str(mailbox.path)!r}, 'w'); print(os.getpid(), flush=True); "
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from batchfleet.embedded.child import ChildSpec\n"
        "from batchfleet.embedded.processes import PidFiles\n"
        "from batchfleet.embedded.supervisor import Supervisor\n"
        f"command = (sys.executable, '-S', '-c', {prologue + STUBBORN!r})\n"
        "spec = ChildSpec(name='c', command=command, environment=dict(os.environ))\n"
        f"with Supervisor([spec], pid_files=PidFiles(Path({str(tmp_path / 'run')!r}))) as supervisor:\n"
        "    supervisor.start()\n"
        "    while True: supervisor.step(3600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program]) as supervisor:
        child = int(mailbox.await_line())
        pidfd = os.pidfd_open(child)
        supervisor.kill()

    ready, _, _ = select.select([pidfd], [], [], 30.0)
    os.close(pidfd)
    assert ready, "the child outlived its supervisor"
    assert not alive(child)


def test_leftovers_of_an_earlier_supervisor_are_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", "import signal; signal.pause()"]) as orphan:
        PidFiles(tmp_path).write("orphan", orphan.pid)

        assert PidFiles(tmp_path).kill_leftovers() == [orphan.pid]

        orphan.wait()
    assert PidFiles(tmp_path).kill_leftovers() == []


def test_a_recycled_pid_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "other.pid").write_text(f"{os.getpid()} 1\n")

    assert PidFiles(tmp_path).kill_leftovers() == []


def test_a_zombie_counts_as_dead() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    assert not alive(pid)
    os.waitpid(pid, 0)

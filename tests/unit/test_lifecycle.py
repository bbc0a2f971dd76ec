"""Processes end with their parents, on signals, and never half dead; tried on real processes."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from batchfleet.lifecycle import EXIT_CRASHED, PARENT_FD_VARIABLE, ParentWatch, ServiceThread, StopSignal

WAIT_S = 60.0


@contextmanager
def python(code: str, **options: object) -> Iterator["subprocess.Popen[str]"]:
    process: subprocess.Popen[str] = subprocess.Popen(  # type: ignore[call-overload]
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


class CrashError(Exception):
    pass


# -- threads --------------------------------------------------------------------------------------------------


def test_a_crash_is_handed_to_its_handler() -> None:
    crashed: list[tuple[str, BaseException]] = []
    error = CrashError()

    def target(_stopping: threading.Event) -> None:
        raise error

    thread = ServiceThread("service", target, on_crash=lambda *crash: crashed.append(crash))
    thread.start()

    assert thread.join(WAIT_S)
    assert crashed == [("service", error)]


def test_a_crash_ends_the_process_even_while_the_main_thread_waits() -> None:
    code = (
        "import threading\n"
        "from batchfleet.lifecycle import ServiceThread\n"
        "from batchfleet.logs import setup_logging\n"
        "setup_logging('info', 'json')\n"
        "ServiceThread('heart', lambda stopping: 1 / 0).start()\n"
        "threading.Event().wait()\n"
    )
    with python(code) as process:
        _out, err = process.communicate(timeout=WAIT_S)

    assert process.returncode == EXIT_CRASHED
    assert '"action":"thread_crashed"' in err
    assert "ZeroDivisionError" in err
    assert "heart" in err


def test_stop_sets_the_event_and_wakes() -> None:
    woken = threading.Event()
    thread = ServiceThread("service", lambda stopping: _wait(stopping, woken), wake=woken.set)
    thread.start()
    assert thread.alive
    thread.stop()
    thread.stop()

    assert thread.join(WAIT_S)
    assert not thread.alive


def _wait(stopping: threading.Event, woken: threading.Event) -> None:
    assert woken.wait(WAIT_S)
    assert stopping.is_set()


def test_joining_a_thread_that_never_ran_is_no_error() -> None:
    assert ServiceThread("service", lambda _stopping: None).join(0)


def test_join_says_if_the_thread_goes_on() -> None:
    go = threading.Event()
    thread = ServiceThread("service", lambda _stopping: _check(go.wait(WAIT_S)))
    thread.start()

    assert not thread.join(0)
    go.set()
    assert thread.join(WAIT_S)


def _check(value: bool) -> None:
    assert value


# -- the parent -----------------------------------------------------------------------------------------------


def test_the_end_of_the_parent_is_noticed() -> None:
    reader, writer = os.pipe()
    gone = threading.Event()
    watch = ParentWatch(gone.set, fd=reader)
    assert watch.start()
    os.write(writer, b"still here")
    assert not gone.is_set()
    os.close(writer)

    assert watch.join(WAIT_S)
    assert gone.is_set()
    os.close(reader)


@pytest.mark.parametrize("environ", [{}, {PARENT_FD_VARIABLE: ""}, {PARENT_FD_VARIABLE: "x"}])
def test_a_process_without_a_pipe_stands_alone(environ: dict[str, str]) -> None:
    assert not ParentWatch(lambda: None, environ=environ).start()


def test_a_child_watches_the_pipe_that_it_inherited() -> None:
    code = (
        "import threading\n"
        "from batchfleet.lifecycle import ParentWatch, exit_process\n"
        "assert ParentWatch(lambda: exit_process(3)).start()\n"
        "print('ready', flush=True)\n"
        "threading.Event().wait()\n"
    )
    reader, writer = os.pipe()
    with python(code, pass_fds=[reader], env={**os.environ, PARENT_FD_VARIABLE: str(reader)}) as child:
        os.close(reader)
        assert line(child) == "ready"
        os.close(writer)

        assert child.wait(WAIT_S) == 3


GRANDCHILD = (
    "import os, signal, threading\n"
    "from batchfleet.lifecycle import die_with_parent\n"
    "die_with_parent(signal.SIGTERM, parent_pid={parent})\n"
    "print(os.getpid(), flush=True)\n"
    "threading.Event().wait()\n"
)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has it; elsewhere the pipe does it")
def test_the_kernel_ends_the_child_with_its_parent() -> None:
    code = (
        "import subprocess, sys, os\n"
        f"subprocess.Popen([sys.executable, '-c', {GRANDCHILD!r}.format(parent=os.getpid())]).wait()\n"
    )
    with python(code) as parent:
        grandchild = os.pidfd_open(int(line(parent)))
        parent.kill()
        parent.wait(WAIT_S)

        assert _ended(grandchild)
        os.close(grandchild)


def _ended(pidfd: int) -> bool:
    """Waits for the end of a process that is not our child."""
    import select

    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(WAIT_S * 1000))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has it; elsewhere the pipe does it")
def test_a_parent_that_died_before_is_noticed() -> None:
    with python(GRANDCHILD.format(parent=2**22 + 1)) as orphan:
        assert orphan.wait(WAIT_S) == -signal.SIGTERM


# -- signals --------------------------------------------------------------------------------------------------

STOPPABLE = (
    "from batchfleet.lifecycle import StopSignal\n"
    "with StopSignal() as stop:\n"
    "    print('ready', flush=True)\n"
    "    stop.wait()\n"
    "    print('draining', flush=True)\n"
    "    {then}\n"
)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_asks_to_drain(number: signal.Signals) -> None:
    with python(STOPPABLE.format(then="print('drained')")) as process:
        assert line(process) == "ready"
        process.send_signal(number)

        assert process.communicate(timeout=WAIT_S)[0].split() == ["draining", "drained"]
        assert process.returncode == 0


def test_the_second_signal_ends_the_process_even_in_native_code() -> None:
    """A drain that hangs outside the interpreter runs no Python signal handler."""
    stuck = "import ctypes; libc = ctypes.CDLL(None)\n    while True: libc.poll(None, 0, -1)"
    with python(STOPPABLE.format(then=stuck)) as process:
        assert line(process) == "ready"
        process.send_signal(signal.SIGTERM)
        assert line(process) == "draining"
        process.send_signal(signal.SIGTERM)

        assert process.wait(WAIT_S) == 128 + signal.SIGTERM


def test_a_stop_can_be_asked_for_from_within_and_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopSignal() as stop:
        assert not stop.requested
        stop.request()
        assert stop.wait(0)
        assert stop.event.is_set()

    assert signal.getsignal(signal.SIGTERM) is before


def test_signals_reach_the_event_of_this_process() -> None:
    insisted: list[int] = []
    with StopSignal(insist=insisted.append) as stop:
        signal.raise_signal(signal.SIGTERM)
        assert stop.wait(WAIT_S)
        signal.raise_signal(signal.SIGINT)
        while not insisted:
            pass

    assert insisted == [128 + signal.SIGINT]

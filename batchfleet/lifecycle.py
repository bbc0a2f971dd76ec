"""How a process of the fleet lives and ends: with its parent, on a signal, and never half dead.

Three rules: a child does not outlive its parent (`die_with_parent`, `ParentWatch`); a stop signal asks once and
insists twice (`StopSignal`); a background thread that raises ends its process (`ServiceThread`), since the
supervisor can mend a dead process, but nobody can mend one that runs without its heartbeat.
"""

import ctypes
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Final, Self, TypeAlias

from batchfleet.logs import Action

EXIT_CRASHED: Final = 70
"""Exit code of a process in which a service thread raised (EX_SOFTWARE)."""

PARENT_FD_VARIABLE: Final = "BATCHFLEET_PARENT_FD"
"""Environment variable with the number of an inherited pipe end that the parent holds open while it lives."""

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

CrashHandler: TypeAlias = Callable[[str, BaseException], None]
"""Called on the crashed thread with its name and what it raised."""

_PR_SET_PDEATHSIG: Final = 1
# Loaded at import, because `die_with_parent` also runs between fork and exec, where loading could deadlock.
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

logger = logging.getLogger(__name__)


def die_with_parent(sig: signal.Signals = signal.SIGKILL, *, parent_pid: int | None = None) -> None:
    """Has the kernel signal this process when the thread that spawned it ends (Linux; elsewhere does nothing).

    The setting is cleared by fork and by a change of user, so each process calls it for itself, and a parent
    spawns from a thread that lives as long as it does: its main thread.

    Args:
        sig: What the kernel sends.
        parent_pid: The parent's id, where the child knows it: a parent that died before this call is then
            noticed. Without it the parent of this moment counts.
    """
    expected = os.getppid() if parent_pid is None else parent_pid
    if _libc is not None and _libc.prctl(_PR_SET_PDEATHSIG, int(sig), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != expected:
        os.kill(os.getpid(), sig)


def exit_process(code: int = EXIT_CRASHED) -> None:
    """Ends the process now, from any thread, after its logs are written; nothing else is cleaned up."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code)


def exit_on_crash(name: str, error: BaseException) -> None:
    """The crash handler of production: logs, and ends the process with `EXIT_CRASHED`."""
    logger.critical(
        "service thread crashed, ending the process",
        exc_info=error,
        extra={"action": Action.THREAD_CRASHED, "service": name},
    )
    exit_process(EXIT_CRASHED)


class ServiceThread:
    """A named background thread whose crash is observed.

    Args:
        name: Shown in logs and stack dumps.
        target: Runs until it returns; it is handed the event that asks it to stop.
        wake: Called by `stop` after the event is set, where the target waits on something else as well.
        on_crash: What an unexpected exception means; in production the end of the process.
    """

    def __init__(
        self,
        name: str,
        target: Callable[[threading.Event], None],
        *,
        wake: Callable[[], None] | None = None,
        on_crash: CrashHandler = exit_on_crash,
    ) -> None:
        self.name = name
        self.stopping = threading.Event()
        self._target = target
        self._wake = wake
        self._on_crash = on_crash
        # A daemon, so that a thread stuck in foreign code cannot keep a finished process alive.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Starts the thread; once."""
        self._thread.start()

    def stop(self) -> None:
        """Asks the thread to end; callable from any thread, any number of times."""
        self.stopping.set()
        if self._wake is not None:
            self._wake()

    def join(self, timeout_s: float | None = None) -> bool:
        """Waits for the end of the thread. Returns whether it has ended (or never began)."""
        if self._thread.ident is None or self._thread is threading.current_thread():
            return self._thread.ident is None
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._target(self.stopping)
        except BaseException as error:  # noqa: BLE001 - SystemExit in a thread would vanish silently as well
            self._on_crash(self.name, error)


class ParentWatch:
    """Notices the parent's end by the end of file of an inherited pipe; portable, and no polling.

    Args:
        callback: Called once, on the watch's own thread, when the parent is gone.
        fd: The reading end; None takes it from `BATCHFLEET_PARENT_FD`.
    """

    def __init__(
        self,
        callback: Callable[[], None],
        *,
        fd: int | None = None,
        environ: Mapping[str, str] = os.environ,
        on_crash: CrashHandler = exit_on_crash,
    ) -> None:
        named = environ.get(PARENT_FD_VARIABLE, "")
        self._fd = int(named) if fd is None and named.isdecimal() else fd
        self._callback = callback
        self._thread = ServiceThread("parent-watch", self._watch, on_crash=on_crash)

    def start(self) -> bool:
        """Starts watching. Returns False where no pipe was inherited: the process stands alone."""
        if self._fd is None:
            return False
        os.set_inheritable(self._fd, False)  # our own children must not hold the pipe of our parent
        self._thread.start()
        return True

    def join(self, timeout_s: float | None = None) -> bool:
        """Waits until the parent's end was noticed and handled. Returns whether it was."""
        return self._thread.join(timeout_s)

    def _watch(self, _stopping: threading.Event) -> None:
        assert self._fd is not None  # noqa: S101 - `start` has checked
        while os.read(self._fd, 4096):
            pass  # the parent writes nothing; whatever came, only the end of file counts
        logger.warning("parent process is gone", extra={"action": Action.PARENT_GONE})
        self._callback()


class StopSignal:
    """SIGTERM and SIGINT as an event: the first asks to drain, the second ends the process at once.

    A thread reads the signals from the interpreter's wake-up descriptor, so that both work while the main thread
    is inside a long native call, and so that no lock is taken inside a signal handler (an `Event` set there can
    deadlock with the main thread waiting on it). Used as a context manager, on the main thread.
    """

    def __init__(self, *, insist: Callable[[int], None] = exit_process, on_crash: CrashHandler = exit_on_crash) -> None:
        self._event = threading.Event()
        self._insist = insist
        self._received: list[int] = []
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._previous: dict[signal.Signals, object] = {}
        self._previous_fd = -1
        self._thread = ServiceThread("stop-signal", self._listen, on_crash=on_crash)

    def __enter__(self) -> Self:
        self._thread.start()
        self._previous_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._previous = {number: signal.signal(number, _ignore) for number in STOP_SIGNALS}
        return self

    def __exit__(self, *_exc: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # it is what `signal.signal` returned
        signal.set_wakeup_fd(self._previous_fd)
        self._thread.stopping.set()
        self._writer.close()  # end of file ends the thread
        self._thread.join()
        self._reader.close()

    @property
    def event(self) -> threading.Event:
        """Set from the first stop signal (or `request`) on."""
        return self._event

    @property
    def requested(self) -> bool:
        """Whether the process was asked to stop."""
        return self._event.is_set()

    def request(self) -> None:
        """Asks for the stop from within, as a signal would."""
        self._event.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits for the stop. Returns whether it was asked for."""
        return self._event.wait(timeout_s)

    def _listen(self, stopping: threading.Event) -> None:
        while numbers := self._reader.recv(16):
            for number in numbers:
                if number in STOP_SIGNALS and not stopping.is_set():
                    self._take(number)

    def _take(self, number: int) -> None:
        self._received.append(number)
        name = signal.Signals(number).name
        if len(self._received) > 1:
            logger.warning("second stop signal, exiting at once", extra={"action": Action.STOP_FORCED, "signal": name})
            self._insist(128 + number)
        logger.info("stop signal, draining", extra={"action": Action.STOP_REQUESTED, "signal": name})
        self._event.set()


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """The handler itself does nothing: the wake-up descriptor has carried the signal to the thread already."""

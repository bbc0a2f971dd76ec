"""Starts children, restarts those that die, stops them in stages, and leaves nothing behind.

Nothing outlives the supervisor, `kill -9` included, by three nets: the kernel kills each child when we die
(PR_SET_PDEATHSIG), our own children also watch a pipe whose other end only we hold, and pid files let the next
supervisor find what the first two missed.

Everything here runs on the main thread: PR_SET_PDEATHSIG fires when the *thread* that spawned the child ends,
and signal handlers run on the main thread only. Between events it sleeps in one `select`: an idle fleet costs
nothing here.
"""

import contextlib
import logging
import os
import selectors
import signal
import time
from collections.abc import Callable, Iterable
from types import FrameType, TracebackType
from typing import Self

from batchfleet.embedded.child import Child, ChildSpec
from batchfleet.embedded.processes import PidFiles, kill, members, read_stat
from batchfleet.embedded.restart import RestartPolicy
from batchfleet.logs import Action

_log = logging.getLogger(__name__)

_HELPERS_S = 3.0
_HELPERS_LOOK_S = 0.02
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Supervisor:
    """A set of children that are kept running until told otherwise. Use as a context, on the main thread.

    Args:
        specs: What to run.
        pid_files: Where the children's pids are noted.
        policy: How long a dead child stays down.
        on_exit: Told the name of a child that ended unasked, and how it ended.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        specs: Iterable[ChildSpec],
        *,
        pid_files: PidFiles,
        policy: RestartPolicy | None = None,
        on_exit: Callable[[str, str], None] = lambda _name, _reason: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._children = [Child(spec) for spec in specs]
        self._pid_files = pid_files
        self._policy = policy or RestartPolicy()
        self._on_exit = on_exit
        self._clock = clock
        self._stops_asked = 0
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._lifeline_read, self._lifeline_write = os.pipe2(os.O_CLOEXEC)
        self._selector = selectors.DefaultSelector()
        self._handlers: dict[int, object] = {}

    def __enter__(self) -> Self:
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in _STOP_SIGNALS:
            self._handlers[number] = signal.signal(number, self._ask_to_stop)
        # A handler of our own, even an empty one, is what makes the wake-up pipe ring when a child ends.
        self._handlers[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill_all()
        signal.set_wakeup_fd(-1)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._selector.close()
        for file in (self._wake_read, self._wake_write, self._lifeline_read, self._lifeline_write):
            os.close(file)

    # -- what the outside may ask -------------------------------------------------------------------------

    @property
    def stops_asked(self) -> int:
        """How often SIGINT, SIGTERM or SIGHUP came: once means drain, twice means now."""
        return self._stops_asked

    def pids(self) -> dict[str, int]:
        """Returns the pid of each running child by name."""
        return {child.spec.name: child.pid for child in self._children if child.pid is not None}

    @property
    def restarts(self) -> int:
        """How often a child was started again, in all."""
        return sum(child.restarts for child in self._children)

    def failing(self, failures: int) -> str | None:
        """Returns the name of a child that failed at least this often in a row, if there is one."""
        return next((child.spec.name for child in self._children if child.failures >= failures), None)

    # -- running ------------------------------------------------------------------------------------------

    def start(self, *names: str) -> None:
        """Starts the children of these names (all if there are none) that do not run, the last to be stopped first."""
        for child in sorted(self._children, key=lambda child: -child.spec.stage):
            if child.pid is None and child.restart_at is None and (not names or child.spec.name in names):
                self._start(child)

    def step(self, timeout_s: float) -> bool:
        """Sleeps until something happens or the time is over, and restarts whom it is time to restart.

        Returns:
            Whether the set of running children changed.
        """
        now = self._clock()
        due = [child.restart_at - now for child in self._children if child.restart_at is not None]
        self._sleep(max(0.0, min([timeout_s, *due])))
        return self._reap() | self._restart_due()

    def kill(self, pid: int, reason: str) -> bool:
        """Kills a child, or a helper of a child, by its pid. Returns False if it is none of ours.

        A child is restarted; what the end of its helper means is the child's own business.
        """
        stat = read_stat(pid)
        for child in self._children:
            if stat is not None and child.pid == stat.group:
                _log.error(
                    "killing %s (pid %d): %s", child.spec.name, pid, reason, extra={"action": Action.CHILD_KILLED}
                )
                kill(pid)
                return True
        return False

    def stop(self) -> bool:
        """Stops all children, stage by stage: SIGTERM, a bounded wait, SIGKILL. A second signal ends all waits.

        Returns:
            Whether every child ended by itself in its time.
        """
        for child in self._children:
            child.restart_at = None
        asked = self._stops_asked
        groups = set(self.pids().values())
        clean = True
        for stage in sorted({child.spec.stage for child in self._children}):
            clean &= self._stop_stage([child for child in self._children if child.spec.stage == stage], asked)
        return self._end_helpers(groups) and clean

    def kill_all(self) -> None:
        """Kills every child that still runs and waits until the kernel has them."""
        groups = set(self.pids().values())
        for child in self._children:
            child.restart_at = None
            child.send(child.spec.death_signal)
        for child in self._children:
            child.kill()
            if child.wait() is not None:
                self._pid_files.remove(child.spec.name)
        self._end_helpers(groups)

    # -- inside -------------------------------------------------------------------------------------------

    def _ask_to_stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stops_asked += 1

    def _sleep(self, timeout_s: float) -> None:
        if self._selector.select(timeout_s):
            with contextlib.suppress(BlockingIOError):
                while os.read(self._wake_read, 512):
                    pass

    def _start(self, child: Child) -> None:
        child.start(self._lifeline_read, self._clock())
        assert child.pid is not None  # noqa: S101 - for the type checker: it was just started
        self._pid_files.write(child.spec.name, child.pid)
        _log.info("%s started, pid %d", child.spec.name, child.pid, extra={"action": Action.CHILD_STARTED})

    def _reap(self) -> bool:
        changed = False
        for child in self._children:
            code = child.poll()
            if code is None:
                continue
            changed = True
            self._pid_files.remove(child.spec.name)
            now = self._clock()
            ran_s = now - child.started_at
            child.failures = self._policy.failures_after(child.failures, ran_s, code)
            delay_s = self._policy.delay_s(child.failures)
            child.restart_at = now + delay_s
            self._on_exit(child.spec.name, _describe(code))
            _log.error(
                "%s ended (%s) after %.1f s; restart in %.1f s",
                child.spec.name,
                _describe(code),
                ran_s,
                delay_s,
                extra={"action": Action.CHILD_EXITED},
            )
        return changed

    def _restart_due(self) -> bool:
        now = self._clock()
        due = [child for child in self._children if child.restart_at is not None and child.restart_at <= now]
        for child in due:
            child.restarts += 1
            self._start(child)
        return bool(due)

    def _stop_stage(self, children: list[Child], asked: int) -> bool:
        for child in children:
            child.send(child.spec.stop_signal)
        end = self._clock() + max(child.spec.stop_s for child in children)
        while any(child.running() for child in children):
            left_s = end - self._clock()
            if left_s <= 0 or self._stops_asked > asked:
                break
            self._sleep(left_s)
        clean = not any(child.running() for child in children)
        why = "killed as asked" if self._stops_asked > asked else "did not stop in time: killed"
        for child in children:
            if child.running():
                _log.warning("%s %s", child.spec.name, why, extra={"action": Action.CHILD_KILLED})
                child.kill()
            if child.wait() is not None:
                self._pid_files.remove(child.spec.name)
        return clean

    def _end_helpers(self, groups: set[int]) -> bool:
        """Waits a moment for helpers that outlive their child to finish (a worker's keeper), then kills them."""
        end = self._clock() + _HELPERS_S
        while left := members(groups):
            if self._clock() >= end:
                for stat in left:
                    kill(stat.pid)
                return False
            time.sleep(_HELPERS_LOOK_S)  # they are not our children: nothing tells us of their end
        return True


def _describe(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"

"""A fleet for a while: `batchfleet up` as a child process, as demo, benchmark and tests use it."""

import contextlib
import functools
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from batchfleet.embedded.exits import Exit
from batchfleet.embedded.processes import members
from batchfleet.embedded.stack import StackInfo, python_environment
from batchfleet.errors import BatchfleetError
from batchfleet.lifecycle import die_with_parent

_READY_S = 180.0
_STOP_S = 60.0
_TAIL_LINES = 40


class StackFailedError(BatchfleetError):
    """The fleet did not start, or did not stop as it should."""

    code = "stack_failed"


class FleetSession:
    """Starts a fleet on entry and stops it on exit; call on the main thread.

    Args:
        data_dir: Holds everything of it, its log (`up.log`) included.
        workers: Worker processes; None for one a usable core.
        postgres: Whether it keeps its jobs in an embedded Postgres.
        environment: Settings on top of our environment; settings of ours that place things elsewhere are dropped.
        options: Further options of `batchfleet up`.
        ready_s: How long the start may take.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        workers: int | None = None,
        postgres: bool = False,
        environment: Mapping[str, str] | None = None,
        options: Sequence[str] = ("--model", "none"),
        ready_s: float = _READY_S,
    ) -> None:
        data_dir.mkdir(parents=True, exist_ok=True)
        self._data_dir = data_dir
        if postgres:
            options = (*options, "--postgres")
            # A temporary folder is closed to the user who runs the server where we are root.
            data_dir.chmod(data_dir.stat().st_mode | 0o011)
        self._command = up_command(data_dir, workers, options)
        self._environment = {**clean_environment(), **(environment or {})}
        self._ready_s = ready_s
        self._process: subprocess.Popen[bytes] | None = None
        self._seen: set[int] = set()
        self.log = data_dir / "up.log"

    def __enter__(self) -> Self:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                process_group=0,
                preexec_fn=functools.partial(  # noqa: PLW1509 - safe: no other thread of ours runs yet
                    die_with_parent, signal.SIGKILL, parent_pid=os.getpid()
                ),
            )
        try:
            self._await_ready(self._process.stdout)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The supervisor's process id."""
        assert self._process is not None  # noqa: S101 - a session is used inside its context
        return self._process.pid

    def info(self) -> StackInfo:
        """Returns what the fleet says of itself now: pids change when a part is restarted.

        Raises:
            StackFailedError: If it is gone.
        """
        info = StackInfo.read(self._data_dir)
        if info is None:
            raise StackFailedError(f"the fleet is gone:\n{self.tail()}")
        self._seen.update(info.pids.values())
        return info

    @property
    def url(self) -> str:
        """Where the API answers."""
        return self.info().url

    def stop(self) -> int | None:
        """Stops the fleet if it still runs and returns the supervisor's exit code."""
        process = self._process
        if process is None:
            return None
        with contextlib.suppress(StackFailedError):
            self.info()
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if process.stdout:
            process.stdout.close()
        return code

    def leftovers(self) -> list[int]:
        """Returns the processes of the fleet that still run, helpers included; after `stop` there are none."""
        mine = {self._process.pid} if self._process else set()
        return sorted(stat.pid for stat in members(self._seen | mine))

    def tail(self) -> str:
        """Returns the last lines of the fleet's log."""
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join(lines[-_TAIL_LINES:])

    def _await_ready(self, stdout: IO[bytes] | None) -> None:
        assert stdout is not None  # noqa: S101 - it was asked for
        ready, _, _ = select.select([stdout], [], [], self._ready_s)
        line = stdout.readline() if ready else b""
        if not line:
            why = "ended" if ready else f"was not ready within {self._ready_s:.0f} s"
            raise StackFailedError(f"the fleet {why} (its log is {self.log}):\n{self.tail()}")
        self._seen.update(StackInfo.parse(line.decode()).pids.values())


def up_command(data_dir: Path, workers: int | None, options: Sequence[str] = ()) -> list[str]:
    """Returns the command line of a fleet on a free port that says in JSON when it is ready."""
    command = [sys.executable, "-P", "-m", "batchfleet.cli", "up", "--json", "--port", "0"]
    command += ["--data-dir", str(data_dir), *options]
    return command if workers is None else [*command, "--workers", str(workers)]


def clean_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns our environment without settings that point to another fleet's things."""
    return {name: value for name, value in python_environment(environ).items() if not name.startswith("BATCHFLEET_")}


def is_clean_exit(code: int | None) -> bool:
    """Returns whether the supervisor stopped, and every part by itself."""
    return code == Exit.OK

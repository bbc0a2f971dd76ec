"""Real S3 servers for tests: `moto[server]` for breadth, `nanio` for true signatures and expiry.

`tests/conftest.py` loads the fixtures. A test that takes `bucket` runs over both servers, one that takes
`moto_bucket` or `nanio_bucket` over one; each has a fresh bucket and the credentials in the environment, where boto3
finds them. Start servers from the main thread: the kernel kills them when the thread that spawned them ends.
"""

import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar

import boto3
import pytest
from botocore.config import Config

from batchfleet.lifecycle import die_with_parent
from tests.support.servers import free_port

ACCESS_KEY = "AKIATESTOFBATCHFLEET"
SECRET_KEY = "test-secret-of-batchfleet"
REGION = "us-east-1"

CREDENTIALS: Mapping[str, str] = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}
"""What a process needs in its environment to reach the servers; nothing of this machine's own is read."""

_PORT_ATTEMPTS = 5


class S3Server:
    """One S3 server process on a fixed loopback port. It can be stopped, killed, paused and restarted.

    Attributes:
        checks_signatures: Whether a wrong or expired signature is refused.
        keeps_data: Whether a restart finds what was stored before.
    """

    name: ClassVar[str]
    checks_signatures: ClassVar[bool]
    keeps_data: ClassVar[bool]
    ready: ClassVar[re.Pattern[bytes]]

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"bf-{self.name}-"))
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._log = b""

    @property
    def url(self) -> str:
        """Its address: an S3 endpoint URL."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        assert self._process is not None
        return self._process.pid

    def command(self) -> list[str]:
        """Returns how it is started."""
        raise NotImplementedError

    def environ(self) -> dict[str, str]:
        """Returns its own environment."""
        return {**os.environ, **CREDENTIALS, "PYTHONUNBUFFERED": "1"}

    def start(self) -> None:
        """Starts it and returns when it listens."""
        assert self._process is None
        for _ in range(_PORT_ATTEMPTS):
            if self._spawn():
                return
            self.port = free_port()  # only a first start may move; a restart finds its own port free
        raise RuntimeError(f"{self.name} did not start:\n{self._log.decode(errors='replace')}")

    def stop(self) -> None:
        """Ends it in an orderly way."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it at once."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stops and starts it."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Makes it hang: connections are taken, nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Ends a pause."""
        os.kill(self.pid, signal.SIGCONT)

    def client(self) -> Any:
        """Returns a plain boto3 client, for the test's own requests; close it."""
        return boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            config=Config(s3={"addressing_style": "path"}, connect_timeout=10, read_timeout=10),
        )

    def make_bucket(self, name: str | None = None) -> "Bucket":
        """Makes a bucket, with a name of its own if none is given."""
        bucket = Bucket(self, name or f"test-{uuid.uuid4().hex[:20]}")
        with closing(self.client()) as client:
            client.create_bucket(Bucket=bucket.name)
        return bucket

    def close(self) -> None:
        """Ends it if it runs, and removes its folder."""
        if self._process is not None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _spawn(self) -> bool:
        process = subprocess.Popen(
            self.command(),
            env=self.environ(),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=functools.partial(die_with_parent, signal.SIGKILL, parent_pid=os.getpid()),  # noqa: PLW1509
        )
        assert process.stdout is not None
        self._log = b""
        for line in process.stdout:
            self._log += line
            if self.ready.search(line):
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
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:  # an orderly end waits for open connections
            process.kill()
            process.wait(30)


class MotoServer(S3Server):
    """`moto[server]`: nearly all of S3, no signatures, in memory."""

    name = "moto"
    checks_signatures = False
    keeps_data = False
    ready = re.compile(rb"Running on http")

    def command(self) -> list[str]:
        """Returns how it is started."""
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]


class NanioServer(S3Server):
    """`nanio`: true SigV4 with expiry, objects on disk."""

    name = "nanio"
    checks_signatures = True
    keeps_data = True
    ready = re.compile(rb"Uvicorn running on")

    def command(self) -> list[str]:
        """Returns how it is started."""
        command = [sys.executable, "-m", "nanio", "serve", "--host", "127.0.0.1", "--port", str(self.port)]
        return [*command, "--data-dir", str(self.folder / "data"), "--region", REGION, "--no-access-log"]

    def environ(self) -> dict[str, str]:
        """Returns its own environment, with the one key that it accepts."""
        return {**super().environ(), "NANIO_ACCESS_KEY": ACCESS_KEY, "NANIO_SECRET_KEY": SECRET_KEY}


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket on a running server, and a test's own requests to it."""

    server: S3Server
    name: str

    @property
    def url(self) -> str:
        """As the settings have it."""
        return f"s3://{self.name}"

    @property
    def settings(self) -> dict[str, str]:
        """Settings of a process that uses it: results under `results/`."""
        return {"blob_url": f"{self.url}/results", "s3_endpoint_url": self.server.url}

    def put(self, key: str, data: bytes) -> str:
        """Writes an object; returns its URI."""
        with closing(self.server.client()) as client:
            client.put_object(Bucket=self.name, Key=key, Body=data)
        return f"{self.url}/{key}"

    def get(self, key: str) -> bytes:
        """Returns an object."""
        with closing(self.server.client()) as client:
            data: bytes = client.get_object(Bucket=self.name, Key=key)["Body"].read()
            return data

    def head(self, key: str) -> dict[str, Any]:
        """Returns what the server says of an object."""
        with closing(self.server.client()) as client:
            answer: dict[str, Any] = client.head_object(Bucket=self.name, Key=key, ChecksumMode="ENABLED")
            return answer

    def keys(self) -> list[str]:
        """Returns all keys, in order."""
        with closing(self.server.client()) as client:
            pages = client.get_paginator("list_objects_v2").paginate(Bucket=self.name)
            return [entry["Key"] for page in pages for entry in page.get("Contents", ())]

    def delete(self, key: str) -> None:
        """Removes an object."""
        with closing(self.server.client()) as client:
            client.delete_object(Bucket=self.name, Key=key)


def _drain(pipe: IO[bytes]) -> None:
    with pipe:
        while pipe.read(65536):
            pass


def _running(server: S3Server) -> Iterator[S3Server]:
    server.start()
    yield server
    server.close()


@pytest.fixture
def s3_credentials(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """The servers' credentials, in this process's environment and as a mapping for children."""
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    return CREDENTIALS


@pytest.fixture(scope="session")
def shared_moto() -> Iterator[S3Server]:
    """The session's moto; tests take `moto_bucket`."""
    yield from _running(MotoServer())


@pytest.fixture(scope="session")
def shared_nanio() -> Iterator[S3Server]:
    """The session's nanio; tests take `nanio_bucket`."""
    yield from _running(NanioServer())


@pytest.fixture
def moto_bucket(shared_moto: S3Server, s3_credentials: Mapping[str, str]) -> Bucket:
    """A fresh bucket on moto."""
    return shared_moto.make_bucket()


@pytest.fixture
def nanio_bucket(shared_nanio: S3Server, s3_credentials: Mapping[str, str]) -> Bucket:
    """A fresh bucket on nanio."""
    return shared_nanio.make_bucket()


@pytest.fixture(params=["moto", "nanio"])
def bucket(request: pytest.FixtureRequest) -> Bucket:
    """A fresh bucket on each of the servers in turn."""
    found: Bucket = request.getfixturevalue(f"{request.param}_bucket")
    return found


@pytest.fixture
def own_nanio(s3_credentials: Mapping[str, str]) -> Iterator[S3Server]:
    """A server of the test's own that keeps its data, to be killed, paused and restarted."""
    yield from _running(NanioServer())

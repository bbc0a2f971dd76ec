"""The embedded broker starts under the supervisor, on a socket or, in deep folders, on a port."""

import os
import time
from pathlib import Path

import pytest
import redis

from batchfleet.embedded.child import Child
from batchfleet.embedded.valkey import prepare


def connect(url: str) -> "redis.Redis":
    """Connects as soon as the server listens; bounded by the connection retries, not by a sleep that hopes."""
    client = redis.Redis.from_url(url.replace("redis+socket://", "unix://"))
    deadline = time.monotonic() + 30
    while True:
        try:
            client.ping()
        except redis.ConnectionError:
            assert time.monotonic() < deadline
        else:
            return client


@pytest.mark.parametrize("deep", [False, True], ids=["socket", "port"])
def test_it_answers_and_keeps_nothing(tmp_path: Path, deep: bool) -> None:
    folder = tmp_path / ("d" * 100) if deep else Path(os.path.relpath(tmp_path)).resolve() / "v"
    if not deep and len(str(folder / "valkey.sock")) > 100:
        pytest.skip("the test's own folder is too deep for a socket")
    valkey = prepare(folder)
    if valkey is None:
        pytest.skip("no Valkey for this platform")
    child = Child(valkey.child(stage=9))
    child.start(0, 0.0)
    try:
        with connect(valkey.url) as client:
            assert client.config_get("save") == {"save": ""}
            assert client.config_get("appendonly") == {"appendonly": "no"}
            client.shutdown(nosave=True)
        assert child.wait() == 0
    finally:
        child.send(9)  # type: ignore[arg-type]
        child.wait()

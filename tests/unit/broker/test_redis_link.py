"""Commands as they go over the wire."""

from typing import Any

import redis
from hypothesis import given
from hypothesis import strategies as st

from batchfleet.broker.redis_link import pack

WORDS = st.one_of(st.binary(max_size=30), st.text(max_size=30), st.integers())
COMMANDS = st.lists(st.lists(WORDS, max_size=5).map(lambda words: ["LPUSH", *words]), max_size=4)
"""redis-py cuts a first word at its spaces, and drops an empty one: ours is a command's name."""


@given(COMMANDS)
def test_commands_are_packed_as_redis_py_packs_them(commands: list[list[bytes | str | int]]) -> None:
    connection: Any = redis.Connection()  # type: ignore[no-untyped-call]
    theirs = connection.pack_commands(commands)

    assert pack(commands) == b"".join(theirs)

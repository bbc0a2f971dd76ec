"""One kept-alive HTTP/1.1 connection of the load generator: as little Python a request as can be.

A client library costs more CPU a request than the fleet does, on the very cores that are measured. Requests are
bytes made before the clock starts; of an answer only the status and the first bytes are looked at.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, cast
from urllib.parse import urlsplit

import httptools

_HEAD_BYTES = 160
"""Of an answer's body are enough to see the job's status."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go; travels to the generator by pickle."""

    host: str
    port: int
    tls: bool
    authority: str
    prefix: str
    headers: Mapping[str, str]

    @classmethod
    def of(cls, url: str, headers: Mapping[str, str]) -> "Target":
        """Reads a fleet's URL.

        Raises:
            ValueError: If its port is no port.
        """
        parts = urlsplit(url)
        tls = parts.scheme == "https"
        authority = parts.netloc.rpartition("@")[2]
        return cls(
            parts.hostname or "", parts.port or (443 if tls else 80), tls, authority, parts.path.rstrip("/"), headers
        )

    def post(self, path: str, body: bytes) -> bytes:
        """Returns a whole request with a JSON body."""
        headers = {
            "Host": self.authority,
            "Content-Type": "application/json",
            **self.headers,
            "Content-Length": str(len(body)),
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"POST {self.prefix}{path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + body


class Answer:
    """What came back so far."""

    __slots__ = ("_parts", "_size", "keep")

    def __init__(self, *, keep: bool) -> None:
        self._parts: list[bytes] = []
        self.keep = keep
        self._size = 0

    def add(self, part: bytes) -> None:
        """Takes a part of the body; all of it is kept only if that was asked for."""
        if self.keep or self._size < _HEAD_BYTES:
            self._parts.append(part)
            self._size += len(part)

    @property
    def whole(self) -> bytes:
        """What was kept."""
        return b"".join(self._parts)

    @property
    def succeeded(self) -> bool:
        """Whether it shows a job that has succeeded."""
        return b'"status":"succeeded"' in self.whole[:_HEAD_BYTES]


class Owner(Protocol):
    """Who is told what becomes of a connection."""

    def on_free(self, connection: "Connection") -> None:
        """It can take a request: it has opened, or its answer is complete."""
        ...

    def on_answer(self, ticket: int, status: int, answer: Answer) -> None:
        """The request of that ticket is answered; status 0: it never will be."""
        ...

    def on_lost(self, connection: "Connection") -> None:
        """It is closed, by whomever."""
        ...


class Connection(asyncio.Protocol):
    """Sends one request at a time and tells of its answer, or that there will be none."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._ticket: int | None = None
        self._answer = Answer(keep=False)
        self._parser = httptools.HttpResponseParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._owner.on_free(self)

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.close()

    def connection_lost(self, _reason: Exception | None) -> None:
        """Called by asyncio."""
        self._transport = None
        self._end(0)
        self._owner.on_lost(self)

    def on_body(self, part: bytes) -> None:
        """Called by the parser."""
        self._answer.add(part)

    def on_message_complete(self) -> None:
        """Called by the parser; an answer that asks for it ends the connection."""
        stays = self._parser.should_keep_alive()
        self._end(self._parser.get_status_code())
        if stays:
            self._owner.on_free(self)
        else:
            self.close()

    def send(self, ticket: int, request: bytes, *, keep: bool) -> None:
        """Sends a request; its answer is told of with `ticket`, and kept as a whole if asked for."""
        self._ticket, self._answer = ticket, Answer(keep=keep)
        if self._transport is None:
            self._end(0)
        else:
            self._transport.write(request)

    def close(self) -> None:
        """Closes it; an answer that is still owed will not come."""
        if self._transport is not None:
            self._transport.abort()

    def _end(self, status: int) -> None:
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            self._owner.on_answer(ticket, status, self._answer)

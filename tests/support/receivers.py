"""Receivers of webhooks for tests: one that behaves, told what to answer, and raw ones that do not."""

import queue
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec

from batchfleet.outbox.guard import parse_networks

LOOPBACK = parse_networks(["127.0.0.0/8", "::1/128"])
WAIT_S = 60.0
"""Bounds waits for signals; nothing is measured by it."""


@dataclass(frozen=True)
class Call:
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        """Its `webhook-id`."""
        return self.headers["webhook-id"]

    @property
    def event(self) -> Any:
        """Its body."""
        return msgspec.json.decode(self.body)


@dataclass
class Receiver:
    """An HTTP server that takes POSTs.

    Attributes:
        answer: Returns status and headers for a call; may block.
        calls: Everything that arrived.
    """

    url: str
    answer: Callable[[Call], tuple[int, dict[str, str]]] = lambda _: (204, {})
    calls: list[Call] = field(default_factory=list)
    arrived: "queue.Queue[Call]" = field(default_factory=queue.Queue)

    def next(self) -> Call:
        """Waits for a call that was not looked at yet."""
        return self.arrived.get(timeout=WAIT_S)


@contextmanager
def receiver(*, tls: ssl.SSLContext | None = None, port: int = 0) -> Iterator[Receiver]:
    """Runs a receiver on loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            call = Call(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            made.calls.append(call)
            made.arrived.put(call)
            status, headers = made.answer(call)
            with suppress(OSError):
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that hangs up, or a failed handshake
    made = Receiver(f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}/hook")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def raw_server(behave: Callable[[socket.socket], None]) -> Iterator[str]:
    """Runs a server that does with each connection what it is told; yields its URL."""
    listening = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []
    connections: list[socket.socket] = []

    def serve(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            behave(connection)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                connections.append(connection)
                threads.append(threading.Thread(target=serve, args=(connection,)))
                threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/hook"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        accepting.join()
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()


def read_request(connection: socket.socket) -> None:
    """Reads a request up to the end of its head."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(4096)


def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Makes a certificate for a host name; returns what its server and what a client that trusts it use."""
    import datetime as dt

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "receiver.pem"
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(path)
    trusting = ssl.create_default_context(cadata=made.public_bytes(serialization.Encoding.PEM).decode())
    return serving, trusting

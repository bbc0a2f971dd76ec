"""Webhooks leave the house over real sockets: pinned, bounded, and never into the network that we live in."""

import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event

import pytest

from batchfleet.outbox.guard import Network
from batchfleet.outbox.http_sender import USER_AGENT, HttpSender
from batchfleet.outbox.sender import Answer
from tests.support.receivers import LOOPBACK, WAIT_S, Receiver, certificate, raw_server, read_request, receiver

PATIENT_S = 30.0
SHORT_S = 0.5
"""For receivers that never come to an end: the test waits for so long."""


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with receiver() as made:
        yield made


def sender(timeout_s: float = PATIENT_S, networks: Sequence[Network] = LOOPBACK, **parts: object) -> HttpSender:
    return HttpSender(timeout_s, networks, **parts)  # type: ignore[arg-type]


def post(url: str, made: HttpSender | None = None) -> Answer:
    return (made or sender()).post(url, {"webhook-id": "msg_1"}, b'{"a": 1}')


def test_a_webhook_arrives_as_it_was_made(hook: Receiver) -> None:
    answer = post(f"{hook.url}?x=%20y&z")

    assert answer == Answer(status=204)
    call = hook.next()
    assert call.path == "/hook?x=%20y&z"
    assert call.body == b'{"a": 1}'
    assert call.headers["webhook-id"] == "msg_1"
    assert call.headers["content-type"] == "application/json"
    assert call.headers["user-agent"] == USER_AGENT
    assert call.headers["host"] == hook.url.split("/")[2]


@pytest.mark.parametrize("asked", ["/x;v=1?tok=1", "/x;a/y;b", "/x?", "/?", "/a//b", "/%7e%2F;?;"])
def test_path_and_query_arrive_to_the_letter(hook: Receiver, asked: str) -> None:
    assert post(hook.url.removesuffix("/hook") + asked) == Answer(status=204)
    assert hook.next().path == asked


@pytest.mark.parametrize(("end", "path"), [("", "/"), ("?", "/?"), ("?a=/b", "/?a=/b")])
def test_a_url_without_a_path_has_the_root(hook: Receiver, end: str, path: str) -> None:
    assert post(hook.url.removesuffix("/hook") + end) == Answer(status=204)
    assert hook.next().path == path


def test_the_address_is_refused_that_a_name_leads_to(hook: Receiver) -> None:
    """`localhost.example` is anybody's to point at 127.0.0.1."""
    made = sender(networks=(), resolver=lambda host, port: ["127.0.0.1"])

    answer = post(hook.url.replace("127.0.0.1", "localhost.example"), made)

    assert answer == Answer(error="refused: the host does not lead to a public address")
    assert hook.calls == []


def test_one_bad_address_among_good_ones_is_enough(hook: Receiver) -> None:
    made = sender(networks=(), resolver=lambda host, port: ["93.184.215.14", "2606:4700::1", "127.0.0.1"])

    assert post(hook.url.replace("127.0.0.1", "x.example"), made).error is not None
    assert hook.calls == []


def test_a_real_name_of_loopback_is_refused(hook: Receiver) -> None:
    name = socket.gethostname()
    with suppress(OSError):
        assert socket.getaddrinfo(name, None)
    for host in ("localhost", name):
        answer = post(hook.url.replace("127.0.0.1", host), sender(networks=()))
        assert answer.error is not None
        assert answer.status is None
    assert hook.calls == []


def test_the_connection_goes_to_the_address_that_was_checked(hook: Receiver) -> None:
    """Rebinding: the name is asked for once, so that a second answer cannot differ from the first."""
    asked: list[str] = []

    def rebinding(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["169.254.169.254"]

    answer = post(hook.url.replace("127.0.0.1", "rebinding.example"), sender(resolver=rebinding))

    assert answer == Answer(status=204)
    assert asked == ["rebinding.example"]
    assert hook.next().headers["host"].startswith("rebinding.example:")


def test_each_attempt_asks_and_checks_anew(hook: Receiver) -> None:
    answers = iter([["127.0.0.1"], ["169.254.169.254"]])
    made = sender(resolver=lambda host, port: next(answers))
    url = hook.url.replace("127.0.0.1", "rebinding.example")
    assert post(url, made).error is None

    assert post(url, made).error == "refused: the host does not lead to a public address"
    assert len(hook.calls) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_failures_and_not_followed(hook: Receiver, status: int) -> None:
    with receiver() as other:
        hook.answer = lambda _: (status, {"Location": other.url})
        assert post(hook.url) == Answer(status=status, error=f"answered {status}: redirects are not followed")
        hook.answer = lambda _: (status, {"Location": "http://169.254.169.254/latest/meta-data/"})
        assert post(hook.url).status == status

        assert other.calls == []
    assert len(hook.calls) == 2


@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0", "[::ffff:127.0.0.1]"])
def test_loopback_in_disguise_is_refused_also_where_loopback_is_allowed(hook: Receiver, host: str) -> None:
    answer = post(hook.url.replace("127.0.0.1", host))

    assert answer.error is not None
    assert answer.error.startswith("refused:")
    assert hook.calls == []


@pytest.mark.parametrize("url", ["ftp://x.example/", "http://a:b@127.0.0.1/", "http://127.0.0.1:22/"])
def test_a_url_that_was_stored_before_the_rules_were_is_refused_still(url: str) -> None:
    answer = post(url)

    assert answer.error is not None
    assert answer.error.startswith("refused:")


def test_ipv6_receivers_are_reached() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        port = server.getsockname()[1]

        def behave() -> None:
            connection, _ = server.accept()
            with connection:
                read_request(connection)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

        from threading import Thread

        thread = Thread(target=behave)
        thread.start()
        assert post(f"http://[::1]:{port}/hook") == Answer(status=200)
        thread.join(WAIT_S)


def test_other_addresses_are_tried_when_the_first_is_dead(hook: Receiver) -> None:
    made = sender(resolver=lambda host, port: ["127.0.0.2", "::1", "127.0.0.1"])

    assert post(hook.url.replace("127.0.0.1", "x.example"), made) == Answer(status=204)


def test_what_a_receiver_asks_for_is_passed_on(hook: Receiver) -> None:
    hook.answer = lambda _: (429, {"Retry-After": "17"})

    assert post(hook.url) == Answer(status=429, error="answered 429", retry_after_s=17.0)


def test_nobody_there_is_told_in_few_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    assert post(f"http://127.0.0.1:{port}/").error == "could not connect: connection refused"
    nowhere = sender(resolver=_nowhere)
    assert post("http://x.example/", nowhere).error == "could not connect: the host's name leads nowhere"


def _loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


def _nowhere(host: str, port: int) -> list[str]:
    raise socket.gaierror("no such name")


def test_tls_names_the_host_and_checks_its_certificate(tmp_path: Path) -> None:
    """The connection goes to an address, but SNI, certificate and Host are about the name."""
    serving, trusting = certificate(tmp_path, "hooks.example")
    names: list[str | None] = []
    serving.sni_callback = lambda _, name, __: names.append(name)
    with receiver(tls=serving) as hook:
        url = hook.url.replace("127.0.0.1", "hooks.example")
        trusted = sender(resolver=_loopback, tls=trusting)

        assert post(url, trusted) == Answer(status=204)
        assert names == ["hooks.example"]
        assert hook.next().headers["host"].startswith("hooks.example:")

        wrong_name = post(url.replace("hooks.", "other."), trusted)
        unknown = post(url, sender(resolver=_loopback, tls=ssl.create_default_context()))

        for answer in (wrong_name, unknown):
            assert answer.error is not None
            assert "its certificate is not trusted" in answer.error
        assert len(hook.calls) == 1


# -- receivers that do not behave ------------------------------------------------------------------------------------


def _never(ended: Event) -> Callable[[socket.socket], None]:
    def behave(connection: socket.socket) -> None:
        read_request(connection)
        ended.wait(WAIT_S)

    return behave


def test_a_receiver_that_never_answers_costs_the_deadline() -> None:
    ended = Event()
    with raw_server(_never(ended)) as url:
        assert post(url, sender(SHORT_S)) == Answer(error="no answer within 0.5 s")
        ended.set()


def test_a_resolver_that_hangs_costs_the_deadline() -> None:
    ended = Event()

    def hanging(host: str, port: int) -> list[str]:
        ended.wait(WAIT_S)
        return []

    assert post("http://x.example/", sender(SHORT_S, resolver=hanging)).error == "no answer within 0.5 s"
    ended.set()


@pytest.mark.parametrize("trickle", [b"HTTP/1.1 200 OK\r\nX-A: ", b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_a_receiver_that_trickles_its_head_costs_the_deadline(trickle: bytes) -> None:
    """Each byte arrives well within any timeout of a single read."""
    stopped = Event()

    def behave(connection: socket.socket) -> None:
        read_request(connection)
        while not stopped.wait(0.02):
            connection.sendall(trickle if trickle.endswith(b"\r\n\r\n") else b"a")

    def first(connection: socket.socket) -> None:
        if not trickle.endswith(b"\r\n\r\n"):
            connection.sendall(trickle)
        behave(connection)

    with raw_server(first) as url:
        assert post(url, sender(SHORT_S)).error == "no answer within 0.5 s"
        stopped.set()


def test_a_receiver_that_reads_nothing_costs_the_deadline() -> None:
    ended = Event()

    def behave(connection: socket.socket) -> None:
        ended.wait(WAIT_S)

    with raw_server(behave) as url:
        answer = sender(SHORT_S).post(url, {}, b"x" * 64 * 1024 * 1024)
        assert answer.error == "no answer within 0.5 s"
        ended.set()


def test_an_endless_body_is_not_read() -> None:
    sent = 0

    def behave(connection: socket.socket) -> None:
        nonlocal sent
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n")
        while True:  # until we hang up
            sent += connection.send(b"x" * 65536)

    with raw_server(behave) as url:
        assert post(url) == Answer(status=200)
    assert sent < 64 * 1024 * 1024  # what the kernel buffers


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 200 OK\r\nX-Long: " + b"a" * 2_000_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-Many: a\r\n" * 200_000 + b"\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x16\x03\x01\x00\x00" * 100,
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"",
    ],
    ids=["long header", "many headers", "ssh", "bytes", "no status", "no length", "nothing"],
)
def test_what_is_no_answer_is_a_failure(reply: bytes) -> None:
    def behave(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(reply)

    with raw_server(behave) as url:
        answer = post(url)

    assert answer.status is None
    assert answer.error is not None
    assert answer.error.startswith("no valid answer")

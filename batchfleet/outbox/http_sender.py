"""Posts webhooks over HTTP/1.1: one connection each, no redirect followed, no proxy, nothing kept of the answer.

The answer's body is not read: its head has said what there is to say, and what a receiver writes must neither fill
our memory nor find its way into a log that others read.
"""

import ssl
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

import httpcore

from batchfleet import __version__
from batchfleet.clock import Wall, wall
from batchfleet.errors import InvalidRequestError
from batchfleet.outbox.guard import Network, RefusedTargetError, check_callback_url
from batchfleet.outbox.guarded_network import Deadline, GuardedNetwork, Resolver, resolve
from batchfleet.outbox.schedule import read_retry_after
from batchfleet.outbox.sender import Answer

USER_AGENT: Final = f"batchfleet/{__version__}"


class HttpSender:
    """A `WebhookSender`.

    Args:
        timeout_s: For one attempt, from resolving the name to the answer's head.
        networks: What may be reached though it is not public.
        resolver: Finds addresses.
        tls: How receivers' certificates are checked; default: as this machine does.
        clock: Unix time, for `Retry-After` as a date.
    """

    def __init__(
        self,
        timeout_s: float,
        networks: Sequence[Network] = (),
        *,
        resolver: Resolver = resolve,
        tls: ssl.SSLContext | None = None,
        clock: Wall = wall,
    ) -> None:
        self._timeout_s = timeout_s
        self._networks = networks
        self._resolver = resolver
        self._tls = tls or ssl.create_default_context()
        self._clock = clock

    def post(self, url: str, headers: dict[str, str], body: bytes) -> Answer:
        """Posts once."""
        try:
            check_callback_url(url, self._networks)
            return self._post(url, headers, body)
        except (RefusedTargetError, InvalidRequestError) as exc:
            return Answer(error=f"refused: {exc}")
        except httpcore.TimeoutException:
            return Answer(error=f"no answer within {self._timeout_s:g} s")
        except httpcore.ConnectError as exc:
            return Answer(error=f"could not connect: {_reason(exc)}")
        except (httpcore.NetworkError, httpcore.ProtocolError) as exc:
            return Answer(error=f"no valid answer: {_reason(exc)}")

    def _post(self, url: str, headers: dict[str, str], body: bytes) -> Answer:
        network = GuardedNetwork(self._networks, Deadline(self._timeout_s), resolver=self._resolver)
        target = _target_of(url)
        told = {
            "Host": _host_header(target),
            "User-Agent": USER_AGENT,
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "Connection": "close",
            **headers,
        }
        request = httpcore.Request("POST", target, headers=list(told.items()), content=body)
        with httpcore.ConnectionPool(
            ssl_context=self._tls, network_backend=network, max_connections=1, max_keepalive_connections=0
        ) as pool:
            response = pool.handle_request(request)
            try:
                return self._answer(response)
            finally:
                response.close()

    def _answer(self, response: httpcore.Response) -> Answer:
        status = response.status
        if 200 <= status < 300:
            return Answer(status=status)
        error = f"answered {status}"
        if 300 <= status < 400:
            error = f"answered {status}: redirects are not followed"
        asked = next((value for name, value in response.headers if name.lower() == b"retry-after"), None)
        retry_after_s = None if asked is None else read_retry_after(asked.decode("latin-1"), self._clock())
        return Answer(status=status, error=error, retry_after_s=retry_after_s)


def _target_of(url: str) -> httpcore.URL:
    """Returns where to post: path and query to the letter, where httpcore's own reading drops `;v=1` and a bare `?`."""
    parts = urlsplit(url)
    asked = url.partition("://")[2].removeprefix(parts.netloc)
    return httpcore.URL(
        scheme=parts.scheme.encode("ascii"),
        host=(parts.hostname or "").encode("ascii"),
        port=parts.port,
        target=(asked if asked.startswith("/") else f"/{asked}").encode("ascii"),
    )


def _host_header(target: httpcore.URL) -> str:
    host = target.host.decode("ascii")
    port = target.port
    named = f"[{host}]" if ":" in host else host
    return named if port is None else f"{named}:{port}"


def _reason(exc: Exception) -> str:
    """Returns the reason in few words; nothing in it names an address of ours."""
    cause: BaseException | None = exc
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted ({cause.verify_message})"
        if isinstance(cause, ssl.SSLError):
            return f"TLS failed ({cause.reason})"
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror.lower()
        cause = cause.__cause__ or cause.__context__
    return str(exc) or type(exc).__name__

"""Sends requests: retries what may be repeated, and turns refusals into typed errors."""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec

from batchfleet.client.errors import ApiError, ClientConfigError, ConnectionFailedError, error_of

_RETRY_STATUSES = frozenset({429, 502, 503, 504})

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how fast a request is repeated.

    Attributes:
        retries: Repeats after the first try.
        first_s: Delay before the first repeat; it doubles, with jitter.
        max_s: Bound of the delay, the server's own wish (`Retry-After`) included.
    """

    retries: int = 4
    first_s: float = 0.1
    max_s: float = 5.0

    def delay_s(self, attempt: int, wish_s: float | None) -> float:
        """Returns the pause after the `attempt`-th failure (from 0), at least what the server asked for."""
        jittered = self.first_s * 2.0**attempt * random.uniform(0.5, 1.0)  # noqa: S311 - no secret hangs on it
        return min(self.max_s, max(jittered, wish_s or 0.0))


class Transport:
    """One connection pool to one fleet."""

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None,
        timeout_s: float,
        policy: RetryPolicy,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if api_key and not (api_key.isascii() and api_key.isprintable()):
            raise ClientConfigError("the API key must be printable ASCII")
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        check_url(base_url)
        # The fleet is named by its URL: a proxy or a .netrc of the environment must not come between.
        self._http = httpx.Client(
            base_url=base_url, headers=headers, timeout=timeout_s, transport=transport, trust_env=False
        )
        self._timeout_s = timeout_s
        self._policy = policy
        self._sleep = sleep

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        wait_s: float = 0.0,
        repeatable: bool = True,
    ) -> httpx.Response:
        """Sends one request, repeated where that is safe and may help.

        Args:
            method: HTTP method.
            path: Path below the base URL.
            params: Query parameters.
            content: The body.
            headers: Headers of this request.
            wait_s: How long the server may hold the answer back, on top of the usual timeout.
            repeatable: Whether a request that may have arrived can be sent again.

        Raises:
            ApiError: If the fleet refuses it.
            ConnectionFailedError: If nobody answers.
        """
        attempt = 0
        while True:
            try:
                return self._once(method, path, params, content, headers, wait_s)
            except (ApiError, ConnectionFailedError) as error:
                if attempt >= self._policy.retries or not _may_repeat(error, repeatable):
                    raise
                wish_s = error.retry_after_s if isinstance(error, ApiError) else None
            self._sleep(self._policy.delay_s(attempt, wish_s))
            attempt += 1

    def _once(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        content: bytes | None,
        headers: Mapping[str, str] | None,
        wait_s: float,
    ) -> httpx.Response:
        try:
            response = self._http.request(
                method, path, params=params, content=content, headers=headers, timeout=self._timeout_s + wait_s
            )
        except httpx.ConnectError as error:
            base = str(self._http.base_url).rstrip("/")
            raise ConnectionFailedError(f"no fleet answers at {base} ({error}); is `batchfleet up` running?") from error
        except (httpx.TransportError, httpx.InvalidURL) as error:
            url = str(self._http.base_url).rstrip("/") + path
            raise ConnectionFailedError(f"{method} {url}: {error or type(error).__name__}") from error
        if response.is_error:
            raise error_of(response.status_code, response.content, response.headers.get("Retry-After"))
        return response


def check_url(url: str) -> None:
    """Lets the URL of a fleet pass.

    Raises:
        ClientConfigError: If it is none.
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        usable = usable and not parts.query and not parts.fragment
        httpx.URL(url)
    except (ValueError, httpx.InvalidURL):
        usable = False
    if not usable:
        raise ClientConfigError(f"{url!r} is no URL of a fleet: it must be http://host:port or https://host")


def decoded(response: httpx.Response, into: type[T]) -> T:
    """Reads an answer.

    Raises:
        ConnectionFailedError: If it is not what a fleet answers: another program listens there.
    """
    try:
        return msgspec.json.decode(response.content, type=into)
    except msgspec.MsgspecError as error:
        raise ConnectionFailedError(f"what answers at {response.url} is no fleet: {error}") from error


def _may_repeat(error: ApiError | ConnectionFailedError, repeatable: bool) -> bool:
    if isinstance(error, ApiError):
        # 429 says that nothing was done; the others may have come after the work was.
        return error.status == 429 or (repeatable and error.status in _RETRY_STATUSES)
    return repeatable or isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout)

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
from batchfleet.masking import mask_url

_RETRY_STATUSES = frozenset({408, 429, 502, 503, 504})
_NOT_TAKEN_STATUSES = frozenset({408, 429})
"""These say that nothing was done; the others may have come after the work was."""
_SHORTEST_TIMEOUT_S = 1.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how fast a request is repeated.

    Attributes:
        retries: Repeats after the first try.
        first_s: Delay before the first repeat; it doubles, with jitter.
        max_s: Bound of one delay, the server's own wish (`Retry-After`) included.
        total_s: Bound of all tries and delays together; time that the server was asked to wait not included.
    """

    retries: int = 8
    first_s: float = 0.1
    max_s: float = 10.0
    total_s: float = 60.0

    def delay_s(self, attempt: int, wish_s: float | None) -> float:
        """Returns the pause after the `attempt`-th failure (from 0), at least what the server asked for."""
        jittered = self.first_s * 2.0 ** min(attempt, 30) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        return min(self.max_s, max(jittered, wish_s or 0.0))


class Transport:
    """One connection pool to one fleet. Safe to use from any thread."""

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None,
        timeout_s: float,
        policy: RetryPolicy,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        on_retry: Callable[[Exception, float], None] | None = None,
    ) -> None:
        if api_key and not (api_key.isascii() and api_key.isprintable()):
            raise ClientConfigError("the API key must be printable ASCII")
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        check_url(base_url)
        self.shown_url = mask_url(base_url).rstrip("/")
        # The fleet is named by its URL: a proxy or a .netrc of the environment must not come between.
        self._http = httpx.Client(
            base_url=base_url, headers=headers, timeout=timeout_s, transport=transport, trust_env=False
        )
        # Links lead to other servers, which have no business with the key: they get a pool of their own without it.
        self._links = httpx.Client(timeout=timeout_s, transport=transport, trust_env=False)
        self._timeout_s = timeout_s
        self.policy = policy
        self.sleep = sleep
        self.clock = clock
        self._on_retry = on_retry or (lambda _error, _waited_s: None)

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()
        self._links.close()

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
        patience_s: float | None = None,
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
            patience_s: For how long to go on while the fleet is overloaded, however often; default: as for others.

        Raises:
            ApiError: If the fleet refuses it.
            ConnectionFailedError: If nobody answers.
        """

        def once(left_s: float) -> httpx.Response:
            timeout_s = max(_SHORTEST_TIMEOUT_S, min(self._timeout_s, left_s)) + wait_s
            return self._once(method, path, params, content, headers, timeout_s)

        return self._repeated(once, lambda error: _may_repeat(error, repeatable), wait_s, patience_s)

    def follow(self, url: str) -> httpx.Response:
        """Fetches what a link of the fleet's leads to, once, without telling that server the API key.

        Raises:
            ApiError: If the other server refuses it.
            ConnectionFailedError: If nobody answers there.
        """
        where = _without_query(url)  # not the whole link: whoever reads it could fetch the result
        if urlsplit(url).scheme not in {"http", "https"}:
            raise ConnectionFailedError(f"the fleet's link to the result leads nowhere: {where!r}")
        try:
            response = self._links.get(url)
        except (httpx.RequestError, httpx.InvalidURL) as error:
            raise ConnectionFailedError(f"GET {where}: {_words(error)} (a link of the fleet's)") from error
        if response.status_code != httpx.codes.OK:
            raise error_of(response.status_code, b"{}", retry_after=None)
        return response

    def _repeated(
        self,
        once: Callable[[float], httpx.Response],
        may_repeat: Callable[[ApiError | ConnectionFailedError], bool],
        wait_s: float = 0.0,
        patience_s: float | None = None,
    ) -> httpx.Response:
        began, attempt, policy = self.clock(), 0, self.policy
        while True:
            left_s = policy.total_s + wait_s - (self.clock() - began)
            try:
                return once(left_s)
            except (ApiError, ConnectionFailedError) as error:
                wish_s = error.retry_after_s if isinstance(error, ApiError) else None
                delay_s = policy.delay_s(attempt, wish_s)
                if isinstance(error, ApiError):
                    error.repeats = attempt
                elapsed_s = self.clock() - began + delay_s
                if patience_s is not None and isinstance(error, ApiError) and error.status == 429:
                    over = elapsed_s > patience_s
                else:
                    over = attempt >= policy.retries or elapsed_s > policy.total_s + wait_s
                if over or not may_repeat(error):
                    raise
                self._on_retry(error, elapsed_s)
            self.sleep(delay_s)
            attempt += 1

    def _once(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        content: bytes | None,
        headers: Mapping[str, str] | None,
        timeout_s: float,
    ) -> httpx.Response:
        where = self.shown_url + path
        try:
            response = self._http.request(
                method, path, params=params, content=content, headers=headers, timeout=timeout_s
            )
        except httpx.ConnectError as error:
            told = f"no fleet answers at {self.shown_url} ({error}); is `batchfleet up` running?"
            raise ConnectionFailedError(told) from error
        except (httpx.RequestError, httpx.InvalidURL) as error:
            raise ConnectionFailedError(f"{method} {where}: {_words(error)}") from error
        return _checked(response, where)


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
        shown = mask_url(url)
        raise ClientConfigError(f"{shown!r} is no URL of a fleet: it must be http://host:port or https://host")


def decoded(response: httpx.Response, into: type[T]) -> T:
    """Reads an answer.

    Raises:
        ConnectionFailedError: If it is not what a fleet answers: another program listens there.
    """
    try:
        return msgspec.json.decode(response.content, type=into)
    except msgspec.MsgspecError as error:
        raise no_fleet(response, error) from error


def no_fleet(response: httpx.Response, error: Exception) -> ConnectionFailedError:
    """Returns what to raise where an answer is not what a fleet answers."""
    return ConnectionFailedError(f"what answers at {_without_query(str(response.url))} is no fleet: {error}")


def _checked(response: httpx.Response, where: str) -> httpx.Response:
    if response.is_error:
        raise error_of(
            response.status_code,
            response.content,
            retry_after=response.headers.get("Retry-After"),
            request_id=response.headers.get("X-Request-Id"),
        )
    if response.is_redirect and response.status_code != httpx.codes.SEE_OTHER:
        # Not followed: what was submitted, and the key, would go to whoever is named.
        target = _without_query(response.headers.get("Location", ""))
        raise ConnectionFailedError(f"{where} redirects to {target or 'nowhere'}: give the fleet's own URL")
    return response


def _may_repeat(error: ApiError | ConnectionFailedError, repeatable: bool) -> bool:
    if isinstance(error, ApiError):
        return error.status in _NOT_TAKEN_STATUSES or (repeatable and error.status in _RETRY_STATUSES)
    if isinstance(error.__cause__, httpx.RequestError):
        return repeatable or isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout)
    return False


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


def _without_query(url: str) -> str:
    return mask_url(url).partition("?")[0]

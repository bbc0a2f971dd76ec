"""The port to whoever posts webhooks, and what comes of an attempt."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of an attempt.

    Attributes:
        status: The HTTP status that came back; None where none did.
        error: Why it does not count as delivered; None where it does.
        retry_after_s: What the receiver's `Retry-After` asked for.
        final: Whether it is of no use to try again.
    """

    status: int | None = None
    error: str | None = None
    retry_after_s: float | None = None
    final: bool = False


class WebhookSender(Protocol):
    """Posts webhooks. Safe to call from any thread."""

    def post(self, url: str, headers: dict[str, str], body: bytes) -> Answer:
        """Posts once, within the sender's deadline; never raises for what the receiver or the network does."""
        ...

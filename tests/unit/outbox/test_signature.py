"""Signatures are those of Standard Webhooks, and nothing else passes."""

import base64
import hashlib
import hmac
from itertools import pairwise

import pytest

from batchfleet.outbox.signature import (
    WebhookVerificationError,
    new_secret,
    sign,
    signature_headers,
    verify_webhook,
    webhook_id,
)

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
TIME = 1_614_265_330
BODY = b'{"test": 2432232314}'


def headers(*secrets: str, body: bytes = BODY) -> dict[str, str]:
    return signature_headers(secrets or (SECRET,), ID, TIME, body)


def test_the_specifications_own_example_comes_out() -> None:
    """The values are those of the specification's documents and of its libraries' tests."""
    assert sign(SECRET, ID, TIME, BODY) == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_it_is_an_hmac_of_id_time_and_body() -> None:
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    expected = hmac.new(key, f"{ID}.{TIME}.".encode() + BODY, hashlib.sha256).digest()

    assert headers()["webhook-signature"] == f"v1,{base64.b64encode(expected).decode()}"


def test_what_was_signed_is_verified_and_named() -> None:
    assert verify_webhook(SECRET, headers(), BODY, now=TIME + 299) == ID
    assert verify_webhook([new_secret(), SECRET], headers(), BODY, now=TIME - 299) == ID


def test_headers_are_found_in_any_case() -> None:
    shouted = {name.title(): value for name, value in headers().items()}

    assert verify_webhook(SECRET, shouted, BODY, now=TIME) == ID


def test_both_secrets_verify_while_one_replaces_the_other() -> None:
    old, new = new_secret(), new_secret()
    signed = headers(new, old)
    assert signed["webhook-signature"].count("v1,") == 2

    for secret in (old, new):
        assert verify_webhook(secret, signed, BODY, now=TIME) == ID


def test_signatures_of_versions_to_come_are_passed_over() -> None:
    signed = headers()
    signed["webhook-signature"] = f"v2,abc v1a,ä {signed['webhook-signature']}"

    assert verify_webhook(SECRET, signed, BODY, now=TIME) == ID


@pytest.mark.parametrize("seconds", [301, -301])
def test_what_is_too_old_or_of_the_future_is_refused(seconds: int) -> None:
    with pytest.raises(WebhookVerificationError, match="too old"):
        verify_webhook(SECRET, headers(), BODY, now=TIME + seconds)


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_missing_header_is_named(name: str) -> None:
    signed = headers()
    del signed[name]

    with pytest.raises(WebhookVerificationError, match=name):
        verify_webhook(SECRET, signed, BODY, now=TIME)


@pytest.mark.parametrize(
    "changes",
    [
        {"webhook-id": "msg_other"},
        {"webhook-timestamp": str(TIME + 1)},
        {"webhook-signature": "v1,AAAA"},
        {"webhook-signature": ""},
        {"webhook-timestamp": "x"},
        {"webhook-timestamp": "1e9"},
        {"webhook-timestamp": "9" * 400},
    ],
)
def test_what_was_changed_on_its_way_is_refused(changes: dict[str, str]) -> None:
    with pytest.raises(WebhookVerificationError):
        verify_webhook(SECRET, {**headers(), **changes}, BODY, now=TIME)


def test_another_body_or_another_secret_is_refused() -> None:
    with pytest.raises(WebhookVerificationError):
        verify_webhook(SECRET, headers(), BODY + b" ", now=TIME)
    with pytest.raises(WebhookVerificationError):
        verify_webhook(new_secret(), headers(), BODY, now=TIME)
    with pytest.raises(WebhookVerificationError):
        verify_webhook([], headers(), BODY, now=TIME)


TRIVIAL = [
    "",
    "whsec_",
    "whsec_abc=",
    "whsec_not base64",
    "whsec_QUJDREVGR0hJSktMTU5PUFFSU1RVVlc=",
    "whsec_" + "QUFB" * 22,
    "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    f"{SECRET},{SECRET}",
]
"""Empty ones, 23 bytes, 66 bytes, one without its prefix, and a list that nobody has taken apart."""


@pytest.mark.parametrize("secret", TRIVIAL)
def test_a_secret_that_anybody_could_guess_is_the_receivers_mistake_whatever_the_message(secret: str) -> None:
    forged = hmac.new(b"", f"{ID}.{TIME}.".encode() + BODY, hashlib.sha256).digest()
    signed = {**headers(), "webhook-signature": f"v1,{base64.b64encode(forged).decode()}"}
    for told in (signed, headers(), {}):
        with pytest.raises(ValueError, match="the secret is not a webhook secret: whsec_ and") as refused:
            verify_webhook(secret, told, BODY, now=TIME)
        assert secret.removeprefix("whsec_") == "" or secret not in str(refused.value)
        with pytest.raises(ValueError, match="secret 2 of 2 is not"):
            verify_webhook([SECRET, secret], told, BODY, now=TIME)
    with pytest.raises(ValueError, match="not a webhook secret"):
        sign(secret, ID, TIME, BODY)
    with pytest.raises(ValueError, match="not a webhook secret"):
        signature_headers([SECRET, secret], ID, TIME, BODY)


@pytest.mark.parametrize("size", [24, 32, 64])
def test_secrets_of_24_to_64_bytes_serve(size: int) -> None:
    secret = "whsec_" + base64.b64encode(bytes(range(size))).decode()

    assert verify_webhook(secret, headers(secret), BODY, now=TIME) == ID


def test_secrets_are_long_and_differ() -> None:
    made = [new_secret() for _ in range(3)]

    assert all(one != other for one, other in pairwise(made))
    assert all(len(base64.b64decode(secret.removeprefix("whsec_"))) == 32 for secret in made)


def test_ids_are_written_as_receivers_see_them() -> None:
    assert webhook_id("0" * 32) == "msg_" + "0" * 32

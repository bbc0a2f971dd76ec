"""Passwords in URLs are masked as far as the drivers read them, whatever they hold."""

import re
import time

import pytest
import sqlalchemy as sa
from hypothesis import assume, given
from hypothesis import strategies as st

from batchfleet.masking import mask_text, mask_url

ANOTHER = re.compile(r"[\s\"'`<>()\[\]{}=,;|][\w+.-]+://")
SIGNS = st.text("abXY09/#?&=@:;,%+ '\"[]()<>\\\n\té", min_size=1, max_size=20)
SCHEMES = st.sampled_from(["postgresql", "postgresql+psycopg", "redis", "rediss", "amqp", "valkey"])
RESTS = st.sampled_from(["h", "h:5432/db", "[::1]:5432/db", "/db", "h/db?sslmode=require", "h,h2/db?x=y"])


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:pa/ss@h/db", "postgresql://me:***@h/db"),
        ("postgresql://me:pa#ss@h/db", "postgresql://me:***@h/db"),
        ("postgresql://me:pa?ss@h/db", "postgresql://me:***@h/db"),
        ("postgresql://me:pa ss@h/db", "postgresql://me:***@h/db"),
        ("postgresql://me:12/34@h:5432/db", "postgresql://me:***@h:5432/db"),
        ("postgresql://me:p@s/s@h/db", "postgresql://me:***@h/db"),
        ("redis://:pa/ss@h:6379/0", "redis://:***@h:6379/0"),
        ("redis://:a://b@h:6379/0", "redis://:***@h:6379/0"),
        ("postgresql://h/db?user=me&password=pw&x=1", "postgresql://h/db?user=me&password=***&x=1"),
        ("postgresql://h/db?sslpassword=p w", "postgresql://h/db?sslpassword=***"),
        ("postgresql://me@h:5432/db?x=1", "postgresql://me@h:5432/db?x=1"),
        ("postgresql://h:5432/db", "postgresql://h:5432/db"),
        ("sqlite:////tmp/a:b@c.db", "sqlite:////tmp/a:b@c.db"),
        ("http://h:8080/v1?mail=me@example.org", "http://h:8080/v1?mail=me@example.org"),
        ("https://me:pa/ss@h/x", "https://me:***@h/x"),
    ],
)
def test_a_password_is_masked_as_far_as_the_driver_reads_it(url: str, shown: str) -> None:
    assert mask_url(url) == shown
    assert "ss@" not in mask_text(f"cannot use {url} now")


@given(SCHEMES, st.one_of(st.just(""), SIGNS), SIGNS, RESTS)
def test_what_sqlalchemy_takes_for_a_password_is_never_shown(scheme: str, user: str, password: str, rest: str) -> None:
    url = f"{scheme}://{user}:{password}@{rest}"
    try:
        read = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        assume(False)
    for secret in {password, read.password or password}:
        if len(secret) > 1 and secret not in f"{scheme}://{user}:***@{rest}" and ":" not in user and "/" not in user:
            assert secret not in mask_url(url)
            if not ANOTHER.search(user + ":" + secret):
                assert secret not in mask_text(f"no connection to {url}: it refused").replace("no connection to", "")


@given(SCHEMES, st.text("abXY09/#?=@:;,+ ", min_size=3, max_size=20), st.sampled_from(["password", "sslpassword"]))
def test_what_sqlalchemy_takes_for_a_password_of_the_query_is_never_shown(
    scheme: str, password: str, name: str
) -> None:
    url = f"{scheme}://h/db?a=1&{name}={password}&b=2"
    assume(password not in f"{scheme}://h/db?a=1&{name}=***&b=2")

    assert password not in mask_url(url)
    if " " not in password:  # a space ends it in a sentence: what follows could be the sentence's
        assert password not in mask_text(f"cannot reach {url} now")


def test_several_urls_in_one_line_are_masked_each() -> None:
    said = mask_text("'redis://:a/b@h:1/0', url=postgresql://me:c d@h/db and url:amqp://x:y@z; http://u:p@q/x me@y.org")

    assert said == "'redis://:***@h:1/0', url=postgresql://me:***@z; http://u:***@q/x me@y.org"


def test_the_text_of_an_error_shows_no_part_of_a_password() -> None:
    assert mask_text("Port could not be cast to integer value as 'hunter2'").endswith("as ***")
    assert mask_text("connection failed: host=h password='a b' user=me") == (
        "connection failed: host=h password=*** user=me"
    )


@pytest.mark.parametrize(
    "part", ["a:b://x:", "x://", "redis://a:b@h ", "a", " x://u:", "password='", "://", "@", "http://u:p ", ":a/"]
)
def test_long_texts_take_time_in_proportion(part: str) -> None:
    """Quadratic work on a quarter of a megabyte would take minutes, and the suite's own limit would end it."""
    text = "redis://" + part * (250_000 // len(part))
    began = time.process_time()

    mask_text(text)
    mask_url(text)

    assert time.process_time() - began < 20.0

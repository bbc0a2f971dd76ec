"""What a callback URL may be, and where it may lead."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfleet.errors import InvalidRequestError
from batchfleet.outbox.guard import RefusedTargetError, check_address, check_callback_url, parse_networks

INSIDE = [
    "0.0.0.0",  # noqa: S104 - not to be listened on
    "10.1.2.3",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.255",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.2.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.9",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::ffff:127.0.0.1",
    "::ffff:8.8.8.8",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::808:808",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:808:808::",
    "3fff::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "5f00::1",
]
OUTSIDE = ["1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.1", "172.32.0.1", "192.0.1.1", "2606:4700::1", "2a00::1"]


@pytest.mark.parametrize("address", INSIDE)
def test_addresses_that_are_not_public_are_refused(address: str) -> None:
    with pytest.raises(RefusedTargetError):
        check_address(address)


@pytest.mark.parametrize("address", OUTSIDE)
def test_public_addresses_pass(address: str) -> None:
    check_address(address)


def test_what_is_no_address_is_refused() -> None:
    with pytest.raises(RefusedTargetError):
        check_address("somewhere")


def test_an_allowed_network_passes_and_its_ipv6_disguise_does_not() -> None:
    networks = parse_networks(["10.0.0.0/8", "fd00::/8"])

    check_address("10.1.2.3", networks)
    check_address("fd00::1", networks)
    for address in ("192.168.0.1", "::ffff:10.1.2.3", "64:ff9b::a01:203"):
        with pytest.raises(RefusedTargetError):
            check_address(address, networks)


def test_a_refusal_names_no_address_of_ours() -> None:
    with pytest.raises(RefusedTargetError) as caught:
        check_address("10.1.2.3")

    assert "10." not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com",
        "https://example.com/hooks?x=1&y=%20",
        "http://example.com:8080/",
        "https://example.com:443/",
        "https://xn--bcher-kva.example/",
        "https://my_host.example./x",
        "https://8.8.8.8/x",
        "https://[2606:4700::1]:8443/x",
        "HTTPS://EXAMPLE.COM/",
    ],
)
def test_usual_urls_pass_as_they_are(url: str) -> None:
    assert check_callback_url(url) == url


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("ftp://example.com/", "https"),
        ("file:///etc/passwd", "https"),
        ("gopher://example.com/", "https"),
        ("//example.com/", "https"),
        ("example.com/x", "https"),
        ("javascript:alert(1)", "https"),
        ("https://", "host"),
        ("https:///x", "host"),
        ("https://user:secret@example.com/", "credentials"),
        ("https://user@example.com/", "credentials"),
        ("https://example.com@127.0.0.1/", "credentials"),
        ("https://@example.com/", "credentials"),
        ("https://example.com/#x", "fragment"),
        ("https://example.com/#", "fragment"),
        ("https://example.com:22/", "port"),
        ("https://example.com:25/", "port"),
        ("https://example.com:0/", "port"),
        ("https://example.com:99999/", "no URL"),
        ("https://example.com:http/", "no URL"),
        ("https://[::1/", "no URL"),
        ("https://exa mple.com/", "ASCII"),
        ("https://bücher.example/", "ASCII"),
        ("https://example.com/\n", "ASCII"),
        ("https://example.com/\tx", "ASCII"),
        ("https://example.com\\@127.0.0.1/", "ASCII"),
        ("https://127.0.0.1/", "public"),
        ("https://[::1]/", "public"),
        ("https://[::ffff:127.0.0.1]/", "public"),
        ("https://[fe80::1%25eth0]/", "neither"),
        ("http://169.254.169.254/latest/meta-data/", "public"),
        ("https://localhost/", "public"),
        ("https://LOCALHOST:8080/", "public"),
        ("https://a.localhost./", "public"),
        ("http://2130706433/", "usual form"),
        ("http://0x7f000001/", "usual form"),
        ("http://0177.0.0.1/", "usual form"),
        ("http://0x7f.1/", "usual form"),
        ("http://127.1/", "usual form"),
        ("http://127.0.0.1./", "usual form"),
        ("http://1.2.3.4.5/", "usual form"),
        ("https://-x.example/", "neither"),
        ("https://x..example/", "neither"),
        ("https://%31%32%37.0.0.1/", "neither"),
        ("https://exa$mple.com/", "neither"),
        ("https://" + "a." * 130 + "example/", "neither"),
        ("https://example.com/" + "x" * 2048, "2048"),
    ],
)
def test_other_urls_are_refused_with_a_reason(url: str, says: str) -> None:
    with pytest.raises(InvalidRequestError, match=says) as caught:
        check_callback_url(url, field="callback_url")

    assert caught.value.field == "callback_url"


def test_allowed_networks_may_be_named_by_their_addresses() -> None:
    networks = parse_networks(["127.0.0.0/8"])

    check_callback_url("http://127.0.0.1:8080/", networks)
    check_callback_url("http://localhost:8080/", networks)
    with pytest.raises(InvalidRequestError):
        check_callback_url("http://10.0.0.1:8080/", networks)


@given(st.text(max_size=80))
def test_any_text_is_refused_or_passes(text: str) -> None:
    for url in (text, f"https://{text}", f"http://example.com{text}"):
        try:
            assert check_callback_url(url) == url
        except InvalidRequestError:
            continue


@pytest.mark.parametrize(
    "url",
    [
        "http://[v1.x]/",
        "http://[2606:4700::1%25lo]/",
        "http://[2606:4700::1%lo]/",
        "http://[2606:4700::1]evil.com/",
        "http://[2606:4700::1]evil.com:80/",
        "http://evil.com[2606:4700::1]/",
        "http://[1.2.3.4]/",
        "http://[]/",
        "http://a%2eb/",
    ],
)
def test_brackets_hold_an_address_and_nothing_else(url: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        check_callback_url(url)
    assert refused.value.field == "callback_url"


def test_an_address_in_brackets_may_have_a_port() -> None:
    for url in ("http://[2606:4700::1]/", "http://[2606:4700::1]:8080/x", "http://[2606:4700::1]"):
        assert check_callback_url(url) == url

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.probes.request import BadRequestError, parse_target


@pytest.mark.parametrize(
    ("url", "sent", "host"),
    [
        ("http://shop.example", "http://shop.example/", "shop.example"),
        ("HTTPS://Shop.Example:8443/A?b#c", "https://Shop.Example:8443/A?b", "shop.example"),
        (
            "http://grün.example/ü?ß=é",
            "http://xn--grn-ioa.example/%C3%BC?%C3%9F=%C3%A9",
            "xn--grn-ioa.example",
        ),
        ("http://grün.example:81/", "http://xn--grn-ioa.example:81/", "xn--grn-ioa.example"),
        ("http://shop.example/a b%20c", "http://shop.example/a%20b%20c", "shop.example"),
        ("http://shop.example/%zz", "http://shop.example/%zz", "shop.example"),
        (" http://shop.example/ ", "http://shop.example/", "shop.example"),
        ("http://127.0.0.1/", "http://127.0.0.1/", None),
        ("http://127.1/", "http://127.1/", None),
        ("http://[::1]:8080/", "http://[::1]:8080/", None),
    ],
)
def test_a_url_as_libcurl_takes_it(url: str, sent: str, host: str | None) -> None:
    target = parse_target(url)
    assert (target.url, target.host) == (sent, host)


@given(st.text() | st.text().map("http://{}".format) | st.text().map("http://shop.example/{}".format))
def test_a_url_is_ascii_or_refused(url: str) -> None:
    try:
        target = parse_target(url)
    except BadRequestError:
        return
    assert target.url.isascii()
    assert " " not in target.url

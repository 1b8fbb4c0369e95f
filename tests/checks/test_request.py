from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checks.probes.http.request import BadRequestError, Target, _parse, parse_target
from tests.helpers import examples


@pytest.mark.parametrize(
    ("url", "sent", "host"),
    [
        ("http://shop.example", "http://shop.example/", "shop.example"),
        ("HTTPS://Shop.Example:8443/A?b#c", "https://Shop.Example:8443/A?b", "shop.example"),
        ("http://grün.example/ü?ß=é", "http://xn--grn-ioa.example/%C3%BC?%C3%9F=%C3%A9", "xn--grn-ioa.example"),
        ("http://grün.example:81/", "http://xn--grn-ioa.example:81/", "xn--grn-ioa.example"),
        ("http://shop.example/a b%20c", "http://shop.example/a%20b%20c", "shop.example"),
        ("http://shop.example/%zz", "http://shop.example/%zz", "shop.example"),
        (" http://shop.example/ ", "http://shop.example/", "shop.example"),
        ("http://zoé:pä%40@shop.example/", "http://zo%C3%A9:p%C3%A4%40@shop.example/", "shop.example"),
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


URL_PARTS = st.tuples(
    st.sampled_from(["http", "https", "HTTP", "ftp"]),
    st.sampled_from(
        ["shop.example", "127.0.0.1", "127.1", "256.1.1.1", "01.2.3.4", "a.b-c.de", "Shop.example", "localhost"]
    )
    | st.from_regex(r"[a-z0-9.-]{1,12}", fullmatch=True),
    st.sampled_from(["", ":", ":80", ":08", ":65535", ":65536", ":99999"]),
    st.sampled_from(["", "/", "/a/b.html", "/%zz", "/a b", "/ü", "//x", "/;p=1,2"]) | st.text(max_size=6),
    st.sampled_from(["", "?", "?a=b&c=%20", "?q=ü", "?a?b"]),
    st.sampled_from(["", "#", "#f"]),
)


@settings(max_examples=examples(1_000))
@given(URL_PARTS)
def test_a_plain_url_is_read_as_any_other(parts: tuple[str, ...]) -> None:
    scheme, host, port, path, query, fragment = parts
    url = f"{scheme}://{host}{port}{path}{query}{fragment}"

    def read(parse: Callable[[str], Target]) -> Target | str:
        try:
            return parse(url)
        except BadRequestError as error:
            return str(error)

    assert read(parse_target) == read(_parse)

"""Completing pasted addresses, and detecting TLS."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from checks.addresses import bare, split_server, tls_question, web_url
from checks.probes.engine import ProbeEngine
from checks.spec import CheckOutcome
from core.egress import EgressGuard, parse_networks
from monitors import configuration, types
from tests.targets.certificates import Certificates
from tests.targets.server import Hang, Listen, Routes, TargetServer, Unasked, answer

PARTS = {"port": "", "encryption": "", "record_type": "A", "resolver": ""}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("shop.example", "https://shop.example"),
        ("shop.example/path?next=https://x.example/", "https://shop.example/path?next=https://x.example/"),
        ("shop.example?a", "https://shop.example?a"),
        ("//shop.example/x", "https://shop.example/x"),
        ("shop.example:8080/x", "http://shop.example:8080/x"),
        ("10.0.0.5", "https://10.0.0.5"),
        ("2001:db8::1/x", "https://[2001:db8::1]/x"),
        ("[2001:db8::1]:8080", "http://[2001:db8::1]:8080"),
        ("straße.example", "https://straße.example"),
        # Text that cannot be completed is returned unchanged and rejected later.
        *(
            (text, text)
            for text in ("", "https://a/", "ftp://a", "mailto:x", "a b", "a\0b", "me@x.example", "x:port", "/path")
        ),
    ],
)
def test_a_web_address_gets_a_scheme(text: str, expected: str) -> None:
    assert web_url(text, lambda _, port: port != 8080) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  shop.example\n", "shop.example"),
        ('"shop.example"', "shop.example"),
        ("\u201cshop.example \u201d", "shop.example"),
        ("<https://shop.example/>", "https://shop.example/"),
        ("https://shop.example/?q='a'", "https://shop.example/?q='a'"),
        ("'", "'"),
    ],
)
def test_blanks_and_quotes_around_a_text_are_dropped(text: str, expected: str) -> None:
    assert bare(text) == expected


@pytest.mark.parametrize(
    ("kind", "text", "fields", "expected"),
    [
        ("port", "host:22", {}, "tcp://host:22"),
        ("port", "host", {"port": "22"}, "tcp://host:22"),
        ("port", "host:23", {"port": "22"}, "tcp://host:23"),
        ("port", "2001:db8::1", {"port": "22"}, "tcp://[2001:db8::1]:22"),
        ("port", "[2001:db8::1]:22", {}, "tcp://[2001:db8::1]:22"),
        ("port", "host", {"port": "993", "encryption": "tls"}, "tls://host:993"),
        ("port", "host", {"port": "25", "encryption": "smtp"}, "tls://host:25?starttls=smtp"),
        ("port", "tls://host:25?starttls=smtp", {}, "tls://host:25?starttls=smtp"),
        ("port", "tcp://host:25", {"encryption": "smtp"}, "tcp://host:25"),
        ("port", "https://host/", {"port": "443"}, "https://host/"),
        ("port", "", {"port": "443"}, ""),
        ("udp", "udp://[2001:db8::1]:53", {}, "udp://[2001:db8::1]:53"),
        ("udp", "game.example:27015", {}, "udp://game.example:27015"),
        ("ping", "10.0.0.5", {}, "icmp://10.0.0.5"),
        ("ping", "icmp://router.example", {}, "icmp://router.example"),
        ("ping", "router.example:22", {}, "icmp://router.example:22"),
        ("dns", "shop.example", {}, "dns:shop.example?type=A"),
        ("dns", "shop.example", {"record_type": "MX", "resolver": "192.0.2.53:5353"}, "dns://192.0.2.53:5353/shop.example?type=MX"),
        ("dns", "shop.example", {"resolver": "2001:db8::53"}, "dns://[2001:db8::53]/shop.example?type=A"),
        ("dns", "dns://192.0.2.53/Shop.example?type=MX", {}, "dns://192.0.2.53/Shop.example?type=MX"),
        ("dns", "dns:shop.example", {"record_type": "TXT"}, "dns:shop.example?type=TXT"),
        ("dns", "0/25.2.0.192.in-addr.arpa", {"record_type": "PTR"}, "dns:0%2F25.2.0.192.in-addr.arpa?type=PTR"),
        ("dns", "192.0.2.1", {"record_type": "PTR"}, "dns:1.2.0.192.in-addr.arpa?type=PTR"),
    ],
)  # fmt: skip
def test_an_address_is_made_of_its_parts(kind: str, text: str, fields: dict[str, str], expected: str) -> None:
    found = types.get(kind)
    parts = {name: value for name, value in (PARTS | fields).items() if name in found.parts} | found.split(text)
    assert found.complete(parts, lambda *_: pytest.fail("nothing is asked")) == expected


def test_long_texts_take_no_long_time() -> None:
    for text in ("a" * 500_000, "'" * 500_000, "[" + ":" * 500_000, "a:" + "1" * 500_000, "a?starttls=" * 50_000):
        assert split_server(bare(text)) is None or len(text) < 300


@pytest.mark.parametrize("case", ["self-signed", "client certificate", "http", "silent"])
def test_any_tls_handshake_that_begins_is_recognized(tmp_path: Path, case: str) -> None:
    """The draft of a port monitor is up if the target starts a TLS handshake, regardless of its certificate."""
    certificates = Certificates(tmp_path)
    tls: ssl.SSLContext | None = None
    routes: Routes = [answer()]
    if case == "self-signed":
        tls = certificates.self_signed()
    elif case == "client certificate":
        tls = certificates.good()
        tls.maximum_version = ssl.TLSVersion.TLSv1_2
        tls.verify_mode = ssl.CERT_REQUIRED
    elif case == "http":
        routes = Unasked([Listen(), answer(400)])
    else:
        routes = Unasked([Hang()])
    with TargetServer() as targets:
        site = targets.serve(routes, tls=tls)
        question = tls_question("127.0.0.1", site.port) | {"timeout_ms": 1_000}
        config = configuration.complete(question, configuration.Limits(floor_sec=1, permits_host=lambda _: True))
        ended: dict[int, CheckOutcome] = {}
        engine = ProbeEngine(EgressGuard(parse_networks("127.0.0.0/8")), None)
        engine.run([(0, types.get("port").spec(config, run_id=""))], ended.__setitem__)
    assert ended[0].passed == (tls is not None), ended[0].detail

"""Evidence of failed checks, and what it must not reveal."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.evidence import BODY_CHARS, Mask, shown_body, shown_url
from checks.probes.engine import ProbeEngine
from checks.probes.http.evidence import HttpEvidence, shown_headers
from checks.probes.http.spec import HttpSpec
from checks.spec import ContentRule, ReasonCode, RuleType, Verdict
from tests.targets.certificates import Certificates
from tests.targets.server import Hang, TargetServer, answer, redirect

SECRET = "s3cr3t-Value-0123456789"


def spec(url: str, **changes: Any) -> HttpSpec:
    return replace(HttpSpec(url, method="GET", timeout_ms=5000), **changes)


def test_of_a_failure_is_kept_what_was_seen(engine: ProbeEngine, targets: TargetServer) -> None:
    site = targets.serve(
        [answer(503, b"<h1>Sorry</h1>\n", "Server: nginx", "Retry-After: 60", "X-Odd: a", reason="Busy")]
    )
    outcome = engine.check(spec(site.url()))
    assert outcome.evidence == HttpEvidence(
        address=f"127.0.0.1:{site.port}",
        status_line="HTTP/1.1 503 Busy",
        headers=(("content-length", "15"), ("server", "nginx"), ("retry-after", "60")),
        body="<h1>Sorry</h1>\n",
    )


def test_a_pass_leaves_none(engine: ProbeEngine, targets: TargetServer) -> None:
    outcome = engine.check(spec(targets.serve([answer(200, b"hello")]).url(), slow_ms=0))
    assert (outcome.verdict, outcome.evidence) == (Verdict.SLOW, None)


def test_of_a_bad_certificate(engine: ProbeEngine, targets: TargetServer, certificates: Certificates) -> None:
    site = targets.serve([answer()], tls=certificates.expired())
    evidence = engine.check(spec(site.url(), check_ssl=True)).evidence
    assert isinstance(evidence, HttpEvidence)
    assert evidence.tls_version == "TLSv1.3"
    assert "trustme" in (evidence.tls_issuer or "")
    assert (evidence.status_line, evidence.headers, evidence.body) == (None, (), None)


def test_redirects_are_kept_without_their_queries(engine: ProbeEngine, targets: TargetServer) -> None:
    site = targets.serve({"/": redirect("/a?token=abcdef"), "/a?token=abcdef": redirect("/b", 307)})
    evidence = engine.check(spec(site.url(), follow_redirects=True)).evidence
    assert isinstance(evidence, HttpEvidence)
    assert evidence.redirects == ((302, site.url("/a?token=***")), (307, site.url("/b")))
    assert evidence.status_line == "HTTP/1.1 404 Whatever"


def test_where_no_connection_stood(engine: ProbeEngine, targets: TargetServer) -> None:
    closed = targets.serve(redirect("http://127.0.0.1:1/"))
    evidence = engine.check(spec(closed.url(), follow_redirects=True)).evidence
    assert isinstance(evidence, HttpEvidence)
    assert (evidence.address, evidence.status_line, evidence.body) == ("127.0.0.1:1", None, None)
    assert len(evidence.redirects) == 1


def test_a_refused_address_is_not_told(engine: ProbeEngine) -> None:
    """Tenants must not learn the addresses of internal names."""
    outcome = engine.check(spec("http://10.0.0.1/"))
    assert outcome.reason_code is ReasonCode.BLOCKED_TARGET
    assert outcome.evidence == HttpEvidence()


def test_a_handle_carries_nothing_over(engine: ProbeEngine, targets: TargetServer) -> None:
    first = targets.serve([answer(500, b"first", "Server: one")])
    stalling = targets.serve([Hang()])
    engine.check(spec(first.url()))
    evidence = engine.check(spec(stalling.url(), timeout_ms=200)).evidence
    assert evidence == HttpEvidence(address=f"127.0.0.1:{stalling.port}")


def test_the_body_is_decoded_and_cut(engine: ProbeEngine, targets: TargetServer) -> None:
    body = ("grün " * 10_000).encode("latin-1")
    site = targets.serve([answer(500, body, "Content-Type: text/plain; charset=latin-1")])
    evidence = engine.check(spec(site.url())).evidence
    assert isinstance(evidence, HttpEvidence)
    assert evidence.body == ("grün " * 10_000)[:BODY_CHARS]


@pytest.mark.parametrize(
    ("value", "sent_back"),
    [
        (SECRET, SECRET),
        (f"Bearer {SECRET}", SECRET),
        (f"Basic {base64.b64encode(f'me:{SECRET}'.encode()).decode()}", SECRET),
        (f"Token {SECRET}", f"Token {SECRET}"),
        ("ключ-от-всего", "ключ-от-всего"),
    ],
)
def test_the_monitors_own_header_values_are_not_shown(
    value: str, sent_back: str, engine: ProbeEngine, targets: TargetServer
) -> None:
    """A page that echoes its request would reveal secrets to a member of the project who cannot read them."""
    page = f'{{"sent": "{sent_back}"}}'.encode()
    site = targets.serve(
        {
            "/": redirect(f"/{sent_back}?q={sent_back}"),
            f"/{sent_back}?q={sent_back}": [answer(500, page, f"Server: {sent_back}")],
            "/plain": [answer(200, page)],
        }
    )
    headers = (("X-Key", value),)
    followed = engine.check(spec(site.url(), follow_redirects=True, headers=headers))
    quoted = engine.check(
        spec(site.url("/plain"), headers=headers, rules=(ContentRule(RuleType.JSON_FIELD, path="sent", equals="x"),))
    )
    assert (followed.verdict, quoted.verdict) == (Verdict.DOWN, Verdict.DOWN)
    for outcome in (followed, quoted):
        assert sent_back not in f"{outcome.detail} {outcome.evidence}"
    assert "***" in (quoted.detail or "")


def test_a_long_value_is_masked_before_it_is_cut(engine: ProbeEngine, targets: TargetServer) -> None:
    secret = SECRET * 100
    site = targets.serve([answer(500, b"x" * (BODY_CHARS - 10) + secret.encode())])
    evidence = engine.check(spec(site.url(), headers=(("X-Key", secret),))).evidence
    assert isinstance(evidence, HttpEvidence)
    assert (evidence.body or "").endswith("xxx***")


LONGEST = SECRET + "x" * (4_096 - len(SECRET))


@pytest.mark.parametrize(
    "response",
    [
        answer(500, f"{LONGEST} and {LONGEST}".encode()),
        answer(500, b"", f"Server: {LONGEST} and {LONGEST}"),
        answer(500, b"", reason=f"{LONGEST} and {LONGEST}"),
        answer(302, b"", f"Location: /{LONGEST}?{LONGEST}"),
        answer(200, f'{{"sent": "is {LONGEST}"}}'.encode()),
    ],
)
def test_no_part_of_a_value_is_shown_where_a_text_is_cut(
    response: bytes, engine: ProbeEngine, targets: TargetServer
) -> None:
    outcome = engine.check(
        spec(
            targets.serve([response]).url(),
            headers=(("X-Key", LONGEST),),
            rules=(ContentRule(RuleType.JSON_FIELD, path="sent", equals="x"),),
        )
    )
    assert outcome.verdict is Verdict.DOWN
    assert SECRET[:6] not in f"{outcome.detail} {outcome.evidence}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"access_token": "abc.def"}', '{"access_token": "***"}'),
        ("password=hunter2&x=1", "password=***&x=1"),
        ("Authorization: Bearer abcdefgh", "Authorization: Bearer ***"),
        ("https://me:pw@shop.example/", "https://***@shop.example/"),
        ('{"api_key":"k-1234"}', '{"api_key":"***"}'),
        ("status code: 500", "status code: 500"),
        ("the token expired", "the token expired"),
        ("a\x00b\u202ec\r\nd", "a b c\nd"),
    ],
)
def test_what_looks_like_a_secret_is_masked(text: str, shown: str) -> None:
    assert shown_body(text, Mask(())) == shown


def test_headers_are_shown_by_an_allow_list_and_cookies_by_name() -> None:
    lines = [
        b"Set-Cookie: session=abc; Path=/; HttpOnly\r\n",
        b"X-Api-Key: abc\r\n",
        b"Location: /x?code=1&state=2#f\r\n",
        b"server:  odd \xff\r\n",
        b"no colon\r\n",
    ]
    assert shown_headers(lines, Mask(())) == (
        ("set-cookie", "session=***; Path=/; HttpOnly"),
        ("location", "/x?code=***&state=***#f"),
        ("server", "odd \ufffd"),
    )


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://a/?b=c&d", "http://a/?b=***&d"),
        ("http://a/?b", "http://a/?b"),
        ("http://a/x=y", "http://a/x=y"),
        ("dns:a?type=MX", "dns:a?type=MX"),
        ("tls://a:25?starttls=smtp", "tls://a:25?starttls=smtp"),
    ],
)
def test_urls_are_shown_without_values(url: str, shown: str) -> None:
    assert shown_url(url, Mask(())) == shown


@given(st.text(max_size=300), st.text(min_size=4, max_size=30))
def test_no_text_is_too_odd(text: str, secret: str) -> None:
    mask = Mask((("X-Key", secret),))
    shown = shown_body(text + secret, mask) or ""
    assert len(shown) <= BODY_CHARS
    assert not set(shown) & {"\0", "\r", "\x1b"}

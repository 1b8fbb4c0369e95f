"""Lookups of registrations, against a registry that works, misbehaves, or does not answer."""

from __future__ import annotations

import contextlib
import gzip
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.domains import registrable_domain, top_level
from checks.probes.http.request import parse_target
from checks.rdap import (
    DEFAULT_WAIT,
    LONGEST_WAIT,
    SHORTEST_WAIT,
    LookupFailed,
    NoRegistry,
    RdapClient,
    RdapError,
    RegistryBusy,
    expiration,
    retry_after,
)
from core.egress import EgressGuard
from core.http import GuardedSession
from tests.checks.conftest import LOOPBACK
from tests.registry import Registry, domain_object, told
from tests.targets.server import Hang, Repeat, Script, TargetServer, answer, redirect

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
EXPIRY = datetime(2026, 8, 13, 4, tzinfo=UTC)


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry.serving() as registry:
        yield registry


@pytest.fixture
def client(registry: Registry) -> RdapClient:
    return RdapClient(GuardedSession(LOOPBACK, total_sec=0.5), registry.bootstrap_url)


@pytest.mark.parametrize(
    ("url", "domain"),
    [
        ("https://example.com/", "example.com"),
        ("https://WWW.Example.COM:8443/", "example.com"),
        ("https://a.b.example.co.uk/", "example.co.uk"),
        ("https://foo.github.io/", "github.io"),
        ("https://bücher.example.com/", "example.com"),
        ("https://www.bücher.de/", "xn--bcher-kva.de"),
        ("https://www.食狮.中国/", "xn--85x722f.xn--fiqs8s"),
        ("https://example.com./", "example.com"),
        ("https://foo_bar.example.com/", "example.com"),
        ("https://co.uk/", None),
        ("https://com/", None),
        ("https://localhost/", None),
        ("https://printer.internal/", None),
        ("https://4.3.2.1.in-addr.arpa/", None),
        ("https://8.b.d.0.1.0.0.2.ip6.arpa/", None),
        ("https://example.unknowntld/", None),
        ("https://127.0.0.1/", None),
        ("https://0x7f.1/", None),
        ("https://[2001:db8::1]/", None),
    ],
)
def test_the_registrable_domain_of_a_url(url: str, domain: str | None) -> None:
    host = parse_target(url).host
    assert (None if host is None else registrable_domain(host)) == domain


@pytest.mark.parametrize("host", ["", ".", "a..com", "-.com", "x y.com", "a/b.com", "127.0.0.1", "[::1]", "é.com"])
def test_what_is_no_name_has_no_registrable_domain(host: str) -> None:
    assert registrable_domain(host) is None


@given(st.text(max_size=80))
def test_any_text_gives_a_plain_name_or_none(host: str) -> None:
    domain = registrable_domain(host)
    assert domain is None or (domain.isascii() and set(domain) <= set("abcdefghijklmnopqrstuvwxyz0123456789-."))


def test_a_lookup(client: RdapClient, registry: Registry) -> None:
    registry.expires("example.com", "2026-08-13T04:00:00Z")
    assert client.look_up("example.com", now=NOW) == EXPIRY
    assert (registry.asked, registry.listed) == (["example.com"], 1)
    assert "application/rdap+json" in (registry.site.seen[-1].header("accept") or "")


def test_a_redirect_to_another_server_is_followed(
    client: RdapClient, registry: Registry, targets: TargetServer
) -> None:
    elsewhere = targets.serve(told(domain_object("example.com", ("expiration", "2026-08-13T04:00:00Z"))))
    registry.answers["example.com"] = redirect(elsewhere.url("/domain/example.com"))
    assert client.look_up("example.com", now=NOW) == EXPIRY


@pytest.mark.parametrize(
    ("date", "expected"),
    [
        ("2026-08-13T04:00:00Z", EXPIRY),
        ("2026-08-13t04:00:00z", EXPIRY),
        ("2026-08-13T06:00:00+02:00", EXPIRY),
        ("2026-08-13T04:00:00.000Z", EXPIRY),
        ("2026-08-13T04:00:00.123456789Z", EXPIRY.replace(microsecond=123456)),
        ("2026-08-13T04:00:00", EXPIRY),
        ("2026-08-13 04:00:00", EXPIRY),
        (" 2026-08-13T04:00:00Z ", EXPIRY),
        ("2026-08-13", datetime(2026, 8, 13, tzinfo=UTC)),
        ("2026-03-01T12:00:00Z", NOW),
        ("2020-01-01T00:00:00Z", datetime(2020, 1, 1, tzinfo=UTC)),
        ("9999-12-31T23:59:59Z", datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
    ],
)
def test_dates_as_registries_write_them(date: str, expected: datetime) -> None:
    read = expiration(domain_object("example.com", ("expiration", date)))
    assert (read, read.tzinfo) == (expected, UTC)


@pytest.mark.parametrize(
    "date",
    [
        "", "never", "unknown 12", "12", "0000-00-00", "2026-02-30", "2026-13-01", "13.08.2026",
        "0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "1970-01-01T00:00:00Z",
        None, 0, 1786593600, True, {}, ["2026-08-13"], "9" * 5000, "2026-08-13\0",
    ],
)  # fmt: skip
def test_what_is_no_date_is_never_guessed_at(date: Any) -> None:
    with pytest.raises(LookupFailed):
        expiration(domain_object("example.com", ("expiration", date)))


def test_the_latest_of_several_expirations_counts() -> None:
    events = [
        ("Expiration ", "2026-08-13T04:00:00Z"),
        ("expiration", "2025-08-13T04:00:00Z"),
        ("expiration", "soon"),
        ("registrar expiration", "2030-01-01T00:00:00Z"),
        ("registration expiration", "2031-01-01T00:00:00Z"),
    ]
    assert expiration(domain_object("example.com", *events)) == EXPIRY


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["objectClassName", "events", "eventAction", "eventDate", "x"]),
            inner | st.sampled_from(["domain", "expiration", "2026-08-13"]),
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(json_values | st.builds(lambda events: {"objectClassName": "domain", "events": events}, json_values))
def test_any_json_gives_an_expiry_or_a_failure(document: Any) -> None:
    with contextlib.suppress(LookupFailed):
        assert expiration(document).tzinfo is UTC


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        pytest.param(told({"errorCode": 404}, status=404), "does not know", id="404"),
        pytest.param(told({}, status=400), "answered 400", id="400"),
        pytest.param([answer(500, b"oops")], "answered 500", id="500"),
        pytest.param([answer(503, b"oops")], "answered 503", id="503 without Retry-After"),
        pytest.param([answer(204)], "answered 204", id="204"),
        pytest.param([answer(200, b"<html>hello</html>")], "no JSON", id="garbage"),
        pytest.param([answer(200, b"\xff\xfe\x00")], "no JSON", id="bytes"),
        pytest.param([answer(200, b"")], "no JSON", id="empty"),
        pytest.param([answer(200, b"[" * 200_000)], "no JSON", id="deep"),
        pytest.param([answer(200, b'{"events": ' + b"9" * 10_000 + b"}")], "no JSON", id="a huge number"),
        pytest.param([answer(200, b"[]")], "no domain", id="another type"),
        pytest.param(told({"objectClassName": "entity"}), "no domain", id="another object"),
        pytest.param(told(domain_object("example.com")), "no expiration date", id="no event"),
        pytest.param(told(domain_object("example.com", events=None)), "no expiration date", id="no events"),
        pytest.param(told(domain_object("example.com", ("expiration", "soon"))), "cannot be read", id="no date"),
        pytest.param([answer(200, b"x" * 2_000_000)], "too much", id="huge"),
        pytest.param([answer(200, gzip.compress(b" " * 50_000_000), "Content-Encoding: gzip")], "too much", id="bomb"),
        pytest.param([answer(200, b"x", "Content-Encoding: gzip")], "no JSON", id="no gzip"),
        pytest.param([Hang()], "in time", id="silent"),
        pytest.param([b"HTTP/1.1 200 OK\r\n\r\n", Repeat(b" ", 0.02)], "in time", id="dripping"),
        pytest.param([b"\x15\x03\x01"], "cannot be reached", id="no http"),
        pytest.param([answer(200, b"{}", length=99)], "cannot be reached", id="cut short"),
        pytest.param(redirect("/rdap/domain/example.com"), "cannot be reached", id="loop"),
        pytest.param(redirect("file:///etc/hostname"), "cannot be reached", id="a file"),
        pytest.param(redirect("http://10.0.0.1/"), "private or reserved", id="a private address"),
    ],
)
def test_a_lookup_that_fails(script: Script, reason: str, client: RdapClient, registry: Registry) -> None:
    registry.answers["example.com"] = script
    with pytest.raises(LookupFailed, match=reason):
        client.look_up("example.com", now=NOW)


@pytest.mark.parametrize(
    ("header", "wait"),
    [
        (None, DEFAULT_WAIT),
        ("", DEFAULT_WAIT),
        ("soon", DEFAULT_WAIT),
        ("-5", DEFAULT_WAIT),
        ("1.5", DEFAULT_WAIT),
        ("٣", DEFAULT_WAIT),
        ("120", timedelta(minutes=2)),
        (" 120 ", timedelta(minutes=2)),
        ("0", SHORTEST_WAIT),
        ("99999999", LONGEST_WAIT),
        ("9" * 400, LONGEST_WAIT),
        ("Sun, 01 Mar 2026 12:10:00 GMT", timedelta(minutes=10)),
        ("Sun, 01 Mar 2026 11:00:00 GMT", SHORTEST_WAIT),
        ("Sun, 01 Mar 2027 11:00:00 GMT", LONGEST_WAIT),
        ("Sun, 01 Mar 2026 12:10:00", timedelta(minutes=10)),
        ("Sun, 99 Mar 2026 12:10:00 GMT", DEFAULT_WAIT),
    ],
)
def test_how_long_a_registry_is_left_alone(header: str | None, wait: timedelta) -> None:
    assert retry_after(header, now=NOW) == wait


@given(st.text(max_size=40))
def test_any_retry_after_is_kept_within_bounds(header: str) -> None:
    assert SHORTEST_WAIT <= retry_after(header, now=NOW) <= LONGEST_WAIT


@pytest.mark.parametrize(
    ("script", "wait"),
    [
        pytest.param([answer(429)], DEFAULT_WAIT, id="429"),
        pytest.param([answer(429, b"", "Retry-After: 300")], timedelta(minutes=5), id="429 for 5 minutes"),
        pytest.param([answer(503, b"", "Retry-After: 300")], timedelta(minutes=5), id="503 for 5 minutes"),
    ],
)
def test_a_registry_that_is_busy(script: Script, wait: timedelta, client: RdapClient, registry: Registry) -> None:
    registry.answers["example.com"] = script
    with pytest.raises(RegistryBusy) as caught:
        client.look_up("example.com", now=NOW)
    assert caught.value.retry_after == wait
    assert registry.asked == ["example.com"], "and is not asked again at once"


def test_a_top_level_domain_without_a_registry(client: RdapClient, registry: Registry) -> None:
    with pytest.raises(NoRegistry):
        client.look_up("example.cn", now=NOW)
    assert registry.asked == []


def test_a_registry_that_is_listed_by_http_only_is_not_asked_where_the_list_came_by_https(
    registry: Registry, targets: TargetServer, certificates: Any
) -> None:
    body = json.dumps(registry.list_of_registries()).encode()
    secure = targets.serve([answer(200, body)], tls=certificates.good())
    session = GuardedSession(LOOPBACK, ca_file=certificates.ca_file, schemes=frozenset({"https"}))
    with pytest.raises(NoRegistry):
        RdapClient(session, secure.url("/")).look_up("example.com", now=NOW)


@pytest.mark.parametrize(
    "script",
    [
        pytest.param([answer(500)], id="500"),
        pytest.param([answer(200, b"<html>")], id="garbage"),
        pytest.param(told([]), id="a list"),
        pytest.param(told({}), id="nothing"),
        pytest.param(told({"services": []}), id="no services"),
        pytest.param(told({"services": [1, 2]}), id="numbers"),
        pytest.param(told({"services": [[["com"]]]}), id="halves"),
        pytest.param(told({"services": [[[1], ["http://127.0.0.1/"]]]}), id="a number for a domain"),
        pytest.param(told({"services": "abc"}), id="text"),
        pytest.param(told({"services": [[["com"], ["http://[/"]]]}), id="no address"),
        pytest.param([Hang()], id="silent"),
    ],
)
def test_without_a_list_a_lookup_fails_and_the_list_is_left_alone(
    script: Script, client: RdapClient, registry: Registry
) -> None:
    registry.bootstrap = script
    for _ in range(2):
        with pytest.raises(LookupFailed, match="list of registries"):
            client.look_up("example.com", now=NOW)
    assert registry.listed == 1


def test_the_list_is_read_again_each_week_and_an_old_one_serves_until_then(registry: Registry) -> None:
    registry.expires("example.com", "2026-08-13T04:00:00Z")
    client = RdapClient(GuardedSession(LOOPBACK), registry.bootstrap_url)

    def look_up(*, days: float) -> None:
        assert client.look_up("example.com", now=NOW + timedelta(days=days)) == EXPIRY

    look_up(days=0)
    look_up(days=6.99)
    assert registry.listed == 1
    registry.bootstrap = [answer(500)]
    look_up(days=7)
    look_up(days=7.04)
    assert registry.listed == 2, "a failure is not repeated at once"
    registry.bootstrap = None
    look_up(days=7.05)
    look_up(days=14.04)
    assert registry.listed == 3


def test_a_forbidden_list_is_no_way_in(registry: Registry) -> None:
    closed = RdapClient(GuardedSession(EgressGuard()), registry.bootstrap_url)
    with pytest.raises(RdapError, match="private or reserved"):
        closed.look_up("example.com", now=NOW)
    assert registry.site.connections == 0


def test_the_last_label_selects_the_registry() -> None:
    assert top_level("example.co.uk") == "uk"

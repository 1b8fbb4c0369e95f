"""The documented formats of each source: how every field is mapped, and that no file breaks a mapper."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitors.types.tags import settle_tags
from pulsekeeper.importers import gatus, healthchecks, uptime_kuma, uptimerobot
from pulsekeeper.importers.gatus import duration
from pulsekeeper.importers.mapped import (
    MappedFile,
    MappedMonitor,
    MonitorBuilder,
    UnreadableFileError,
    UnsupportedError,
    complete_addresses,
)
from tests.helpers import examples

SAMPLES = Path(__file__).parent / "samples"
READERS: dict[str, Callable[[str], MappedFile]] = {
    "uptime-kuma-v1.json": uptime_kuma.read,
    "uptime-kuma-v2.json": uptime_kuma.read,
    "healthchecks-v3.json": healthchecks.read,
    "uptimerobot-v2.json": uptimerobot.read,
    "uptimerobot-v3.json": uptimerobot.read,
    "gatus.yaml": gatus.read,
}


def sample(name: str) -> dict[str, MappedMonitor]:
    return {each.name: each for each in READERS[name]((SAMPLES / name).read_text()).monitors}


def given_of(mapped: MappedMonitor) -> dict[str, Any]:
    assert mapped.body is not None, mapped.notes
    return dict(mapped.body)


def notes_of(mapped: MappedMonitor) -> dict[str, str]:
    return {note.field: note.text for note in mapped.notes}


def header(name: str, value: str, kind: str = "custom") -> dict[str, str]:
    return {"name": name, "value": value, "type": kind}


def basic(user: str, password: str) -> dict[str, str]:
    return header("Authorization", "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())


def test_a_note_about_a_completed_address_has_no_secret() -> None:
    mapped = uptime_kuma.read(json.dumps([{"type": "http", "name": "Shop", "url": "shop.example/?key=hunter2"}]))
    (found,) = complete_addresses(mapped.monitors, lambda *_: True)
    assert given_of(found)["url"] == "https://shop.example/?key=hunter2"
    assert notes_of(found)["url"] == "is completed to https://shop.example/?key=***"


def test_uptime_kuma_1() -> None:
    found = sample("uptime-kuma-v1.json")
    shop = found["Shop"]
    assert given_of(shop) == {
        "name": "Shop",
        "type": "http",
        "url": "https://shop.example/health",
        "method": "GET",
        "interval_sec": 60,
        "timeout_ms": 48_000,
        "fail_threshold": 3,
        "confirmation_sec": 40,
        "follow_redirects": True,
        "check_ssl": True,
        "request_headers": [header("X-Api-Key", "hunter2-key", "apikey"), header("Accept", "text/html")],
        "tags": ["prod"],
    }
    assert notes_of(shop) == {}
    login = found["Login"]
    assert given_of(login) == {
        "name": "Login",
        "type": "keyword",
        "url": "https://shop.example/login",
        "method": "POST",
        "interval_sec": 300,
        "timeout_ms": 60_000,
        "fail_threshold": 1,
        "follow_redirects": False,
        "tls_verify": False,
        "request_headers": [basic("me", "hunter2-basic"), header("Content-Type", "text/xml; charset=utf-8")],
        "request_body": "<login/>",
        "content_rules": [{"type": "text_contains", "value": "Welcome"}],
    }
    assert set(notes_of(login)) == {"timeout", "accepted_statuscodes", "proxyId"}
    backup = found["Backup"]
    assert (given_of(backup), backup.enabled) == (
        {"name": "Backup", "type": "heartbeat", "interval_sec": 86_400, "grace_sec": 1800},
        False,
    )
    assert given_of(found["Router"]) == {
        "name": "Router",
        "type": "ping",
        "url": "icmp://9.9.9.9",
        "interval_sec": 60,
        "fail_threshold": 2,
        "packets": 1,
    }
    assert given_of(found["Mail"]) == {
        "name": "Mail",
        "type": "port",
        "url": "tcp://mail.example:25",
        "interval_sec": 120,
        "timeout_ms": 5000,
        "fail_threshold": 1,
    }
    assert (found["Router"].notes, found["Mail"].notes) == ((), ())
    zone = found["Zone"]
    assert given_of(zone) == {
        "name": "Zone",
        "type": "dns",
        "url": "dns://1.1.1.1/example.com?type=MX",
        "interval_sec": 300,
        "fail_threshold": 2,
    }
    assert set(notes_of(zone)) == {"dns_last_result"}
    assert set(notes_of(found["Closed port"])) == {"upsideDown"}


def test_uptime_kuma_2() -> None:
    found = sample("uptime-kuma-v2.json")
    api = found["API"]
    assert given_of(api) | {"type": "api", "expect_status": 200, "check_domain": True} == given_of(api)
    assert given_of(api)["content_rules"] == [{"type": "json_field", "path": "services.0.state", "equals": "ok"}]
    assert set(notes_of(api)) == {"maxredirects", "description"}
    assert (api.group, found["Partner"].group, "Site" in found) == ("Site", "", False)
    assert notes_of(found["Partner"]) == {"authMethod": "oauth2-cc is not supported"}
    assert set(notes_of(found["Queue length"])) == {"jsonPathOperator"}
    gateway = found["Gateway"]
    assert given_of(gateway) == {
        "name": "Gateway",
        "type": "ping",
        "url": "icmp://[2001:4860:4860::8888]",
        "interval_sec": 60,
        "timeout_ms": 10_000,
        "fail_threshold": 3,
        "packets": 10,
    }
    assert set(notes_of(gateway)) == {"ping_count", "packetSize", "ping_per_request_timeout", "ipFamily"}
    submission = found["Submission"]
    assert given_of(submission) == {
        "name": "Submission",
        "type": "port",
        "url": "tls://mail.example:587?starttls=smtp",
        "interval_sec": 60,
        "timeout_ms": 10_000,
        "fail_threshold": 1,
        "check_ssl": True,
        "check_domain": True,
    }
    assert submission.notes == ()
    assert notes_of(found["Jabber"]) == {"smtpSecurity": "starttls is supported on ports 25, 587, 143 only"}
    spf = found["SPF"]
    assert given_of(spf) == {
        "name": "SPF",
        "type": "dns",
        "url": "dns://9.9.9.9/example.com?type=TXT",
        "interval_sec": 60,
        "timeout_ms": 10_000,
        "fail_threshold": 1,
        "content_rules": [{"type": "text_contains", "value": "v=spf1"}, {"type": "text_absent", "value": "+all"}],
    }
    assert [note.text for note in spf.notes] == [
        "only 9.9.9.9 is asked",
        "record contains v=spf1: any record may contain it, each condition on its own",
        "record ends_with -all is not supported and is skipped",
        "record not_contains +all: no record may contain it; Uptime Kuma passes if one does not",
    ]
    reverse = given_of(found["Reverse"])
    assert reverse["url"] == "dns://[2620:fe::fe]:5353/8.8.8.8.in-addr.arpa?type=PTR"
    assert reverse["content_rules"] == [{"type": "text_contains", "value": "dns.google"}]
    assert "any record that contains it passes" in notes_of(found["Reverse"])["conditions"]


PORT = {"name": "x", "type": "port", "hostname": "x.example", "port": 993}
DNS = {"name": "x", "type": "dns", "hostname": "x.example", "dns_resolve_server": "1.1.1.1", "dns_resolve_type": "A"}
RECORD = {"type": "expression", "variable": "record", "operator": "contains", "value": "a", "andOr": "and"}


@pytest.mark.parametrize(
    ("fields", "url", "noted"),
    [
        (PORT, "tcp://x.example:993", set()),
        (PORT | {"expiryNotification": True}, "tcp://x.example:993", {"expiryNotification"}),
        (PORT | {"smtpSecurity": "secure"}, "tcp://x.example:993", {"smtpSecurity"}),
        (PORT | {"smtpSecurity": "secure", "expiryNotification": True}, "tls://x.example:993", set()),
        (PORT | {"smtpSecurity": "starttls", "expiryNotification": 1, "port": "143"}, "143?starttls=imap", set()),
        (PORT | {"expectedTlsAlert": "none"}, "tcp://x.example:993", set()),
        (PORT | {"hostname": "2001:db8::1"}, "tcp://[2001:db8::1]:993", set()),
        (DNS, "dns://1.1.1.1/x.example?type=A", set()),
        (DNS | {"dns_resolve_server": "[2620:fe::fe]:5353"}, "dns://[2620:fe::fe]:5353/x.example?type=A", set()),
        (DNS | {"hostname": "a/b?type=MX#c d"}, "dns://1.1.1.1/a%2Fb%3Ftype=MX%23c%20d?type=A", set()),
        (DNS | {"conditions": [RECORD, RECORD | {"andOr": "or"}]}, "dns://1.1.1.1/x.example?type=A", {"conditions"}),
        (DNS | {"conditions": [{"type": "group", "children": []}]}, "dns://1.1.1.1/x.example?type=A", {"conditions"}),
        (DNS | {"conditions": [RECORD | {"value": 5}]}, "dns://1.1.1.1/x.example?type=A", {"conditions"}),
    ],
)
def test_hosts_of_uptime_kuma(fields: dict[str, Any], url: str, noted: set[str]) -> None:
    (mapped,) = uptime_kuma.read(json.dumps([fields])).monitors
    assert given_of(mapped)["url"].endswith(url)
    assert set(notes_of(mapped)) == noted
    assert "content_rules" not in given_of(mapped)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        (PORT | {"hostname": None}, "hostname"),
        (PORT | {"hostname": " "}, "hostname"),
        (PORT | {"hostname": ["x"]}, "hostname"),
        (PORT | {"port": None}, "port"),
        (PORT | {"port": 0}, "port"),
        (PORT | {"port": 21.5}, "port"),
        (PORT | {"port": "imap"}, "port"),
        (PORT | {"expectedTlsAlert": "certificate_required"}, "expectedTlsAlert"),
        (PORT | {"type": "ping", "hostname": ""}, "hostname"),
        (PORT | {"type": "ping", "ping_count": "many"}, "ping_count"),
        (DNS | {"hostname": ""}, "hostname"),
        (DNS | {"dns_resolve_server": "dns.example"}, "dns_resolve_server"),
        (DNS | {"dns_resolve_server": ""}, "dns_resolve_server"),
        (DNS | {"dns_resolve_server": "me:secret@1.1.1.1"}, "dns_resolve_server"),
        (DNS | {"conditions": "record"}, "conditions"),
        (DNS | {"conditions": ["record"]}, "conditions"),
    ],
)
def test_hosts_that_uptime_kuma_would_not_reach(fields: dict[str, Any], field: str) -> None:
    (mapped,) = uptime_kuma.read(json.dumps([fields])).monitors
    assert (mapped.body, set(notes_of(mapped))) == (None, {field})


def test_healthchecks() -> None:
    found = sample("healthchecks-v3.json")
    files = found["Filesystem Backup"]
    assert given_of(files) == {
        "name": "Filesystem Backup",
        "type": "heartbeat",
        "interval_sec": 3600,
        "grace_sec": 600,
        "tags": ["backup", "fs"],
    }
    assert set(notes_of(files)) == {
        "ping_url",
        "desc",
        "success_kw",
        "failure_kw",
        "filter_subject",
    }
    database = found["Database Backup"]
    assert given_of(database) == {
        "name": "Database Backup",
        "type": "heartbeat",
        "schedule": "15 5 * * 1-5",
        "timezone": "Europe/Riga",
        "grace_sec": 1200,
    }
    assert (database.enabled, set(notes_of(database))) == (False, {"ping_url", "methods", "manual_resume"})
    assert "OnCalendar is not supported" in notes_of(found["reports"])["schedule"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"schedule": "0 0 31 2 *"}, "schedule"),
        ({"schedule": "@daily"}, "schedule"),
        ({"schedule": "0 0 L * *"}, "schedule"),
        ({"schedule": "*-*-* 05:00:00"}, "schedule"),
        ({"schedule": "* * * * *", "tz": "Mars/Base"}, "tz"),
        ({"schedule": ["* * * * *"]}, "schedule"),
        ({}, "timeout"),
    ],
)
def test_schedules_of_healthchecks_that_are_not_supported(fields: dict[str, Any], field: str) -> None:
    (mapped,) = healthchecks.read(json.dumps([{"name": "x", "grace": 60, **fields}])).monitors
    assert (mapped.body, set(notes_of(mapped))) == (None, {field})


def test_uptimerobot_2() -> None:
    found = sample("uptimerobot-v2.json")
    assert given_of(found["Google"]) == {
        "name": "Google",
        "type": "http",
        "url": "http://www.google.com",
        "method": "HEAD",
        "interval_sec": 900,
        "timeout_ms": 30_000,
        "fail_threshold": 1,
        "follow_redirects": True,
        "check_ssl": False,
        "check_domain": False,
    }
    page = found["My Web Page"]
    assert given_of(page) | {
        "type": "keyword",
        "method": "GET",
        "request_headers": [basic("me", "hunter2-basic"), header("X-Token", "hunter2-token")],
        "content_rules": [{"type": "text_contains", "value": "Welcome"}],
    } == given_of(page)
    assert not page.enabled
    assert set(notes_of(page)) == {"keywordCaseType", "custom_http_statuses"}
    assert (given_of(page)["tls_verify"], given_of(page)["check_ssl"]) == (False, False)
    assert given_of(found["My FTP Server"]) == {
        "name": "My FTP Server",
        "type": "port",
        "url": "tcp://ftp.mywebpage.example:21",
        "interval_sec": 60,
        "fail_threshold": 1,
    }
    assert given_of(found["PortTest"]) == {
        "name": "PortTest",
        "type": "ping",
        "url": "icmp://mywebpage.example",
        "interval_sec": 300,
        "fail_threshold": 1,
    }
    assert given_of(found["Game server"])["url"] == "tcp://game.example:27015"
    assert given_of(found["IMAP"])["url"] == "tcp://imap.example:143"
    assert notes_of(found["No port"]) == {"port": "is missing"}
    assert given_of(found["Nightly"])["type"] == "heartbeat"


def test_uptimerobot_3() -> None:
    found = sample("uptimerobot-v3.json")
    orders = found["Orders"]
    assert given_of(orders) == {
        "name": "Orders",
        "type": "http",
        "url": "https://orders.example/api",
        "method": "POST",
        "interval_sec": 300,
        "timeout_ms": 30_000,
        "slow_ms": 2500,
        "fail_threshold": 1,
        "follow_redirects": False,
        "expect_status": 201,
        "check_ssl": True,
        "check_domain": True,
        "request_headers": [header("X-Key", "hunter2-key")],
        "request_body": '{"dry": true}',
        "tags": ["prod"],
    }
    errors = found["No errors"]
    assert given_of(errors)["content_rules"] == [{"type": "text_absent", "value": "Fatal error"}]
    assert (errors.enabled, set(notes_of(errors))) == (False, {"httpPassword"})
    assert given_of(errors)["tls_verify"] is False
    assert given_of(found["Import job"])["grace_sec"] == 300
    assert set(notes_of(found["Partner"])) == {"authType"}
    assert given_of(found["Mail"]) == {
        "name": "Mail",
        "type": "port",
        "url": "tcp://mail.example:25",
        "interval_sec": 60,
        "timeout_ms": 10_000,
        "slow_ms": 300,
        "fail_threshold": 1,
        "check_domain": True,
    }
    assert set(notes_of(found["Mail"])) == {"config.ipVersion"}
    assert given_of(found["Router"])["url"] == "icmp://[2606:4700:4700::1111]"
    assert set(notes_of(found["Router"])) == {"groupId"}
    voice = found["Voice"]
    assert given_of(voice) == {
        "name": "Voice",
        "type": "udp",
        "url": "udp://voice.example:5060",
        "interval_sec": 300,
        "timeout_ms": 30_000,
        "fail_threshold": 1,
        "request_body": "OPTIONS",
        "content_rules": [{"type": "text_contains", "value": "SIP/2.0"}],
    }
    assert set(notes_of(voice)) == {"config.udp.payload", "config.udp.packetLossThreshold"}
    zone = given_of(found["Zone"])
    assert (zone["url"], zone["records"]) == ("dns:example.org?type=A", ["93.184.216.34"])
    assert notes_of(found["Zones"]) == {"config.dnsRecords": "must list records of one type; 2 types are listed"}
    assert notes_of(found["Assertions"]) == {"type": "API is not supported"}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"type": "PORT", "url": "x.example"}, "port"),
        ({"type": "PORT", "url": "x.example", "port": "ftp"}, "port"),
        ({"type": "PORT", "port": 21}, "url"),
        ({"type": "PING", "url": ""}, "url"),
        ({"type": "UDP", "url": "x.example", "port": 53}, "config.udp.payload"),
        ({"type": "UDP", "url": "x.example", "port": 53, "config": {"udp": {"payload": 5}}}, "config.udp.payload"),
        ({"type": "DNS", "url": "x.example", "config": {}}, "config.dnsRecords"),
        ({"type": "DNS", "url": "x.example", "config": {"dnsRecords": {"NSEC": ["x"]}}}, "config.dnsRecords"),
        ({"type": "DNS", "url": "x.example", "config": {"dnsRecords": {"A": "1.1.1.1"}}}, "config.dnsRecords.A"),
        ({"type": "DNS", "url": "x.example", "config": {"dnsRecords": {"A": [1]}}}, "config.dnsRecords.A"),
    ],
)
def test_hosts_that_uptimerobot_would_not_reach(fields: dict[str, Any], field: str) -> None:
    (mapped,) = uptimerobot.read(json.dumps([{"friendlyName": "x", **fields}])).monitors
    assert (mapped.body, set(notes_of(mapped))) == (None, {field})


def test_gatus() -> None:
    found = sample("gatus.yaml")
    front = found["front-end"]
    assert given_of(front) == {
        "name": "front-end",
        "type": "http",
        "url": "https://shop.example/$path",
        "method": "GET",
        "interval_sec": 90,
        "timeout_ms": 5000,
        "tls_verify": False,
        "slow_ms": 500,
        "expect_status": 200,
        "follow_redirects": True,
        "fail_threshold": 2,
        "recover_threshold": 2,
        "request_headers": [header("Authorization", "Bearer hunter2-bearer", "bearer")],
    }
    assert set(notes_of(front)) == {
        "alerts[].failure-threshold",
        "alerts[].success-threshold",
        "conditions",
    }
    api = found["api"]
    assert given_of(api)["content_rules"] == [
        {"type": "json_field", "path": "status", "equals": "UP"},
        {"type": "json_field", "path": "data.0.id", "equals": "1"},
        {"type": "json_field", "path": "users"},
    ]
    assert given_of(api) | {"type": "api", "check_ssl": True, "check_domain": True} == given_of(api)
    skipped = [note.text for note in api.notes if "skipped" in note.text]
    assert [text.partition(" is not supported")[0] for text in skipped] == [
        "len([BODY].data) < 5",
        "[BODY].name == pat(john*)",
    ]
    page = found["page"]
    assert given_of(page)["content_rules"] == [
        {"type": "text_contains", "value": "<h1>Example Domain</h1>"},
        {"type": "text_absent", "value": "Fatal error"},
    ]
    assert (given_of(page)["type"], page.enabled) == ("keyword", False)
    query = given_of(found["filter-users"])
    assert json.loads(query["request_body"]) == {"query": '{\n  users(gender: "female") { id }\n}\n'}
    assert given_of(found["ext-ep-test"])["interval_sec"] == 1800
    refused = {name: notes_of(each) for name, each in found.items() if each.body is None}
    assert refused == {
        "from-environment": {"url": "uses the variable $DOMAIN; replace it with its value"},
        "blocked": {"conditions": "[DNS_RCODE] == NXDOMAIN: inverted monitors are not supported"},
        "own-resolver": {"url": "must name a resolver by its IP address"},
        "silent": {"body": "is required: without it Gatus sends nothing, and no reply can be expected"},
        "core-network": {"url": "sctp is not supported"},
        "closed": {"conditions": "[CONNECTED] == false: inverted monitors are not supported"},
        "with-oauth": {"client.oauth2": "is not supported"},
        "no-deadline": {"heartbeat": "an interval is required"},
        "item-crud": {"suites": "suites are not supported"},
    }


@pytest.mark.parametrize("url", ["https://x.example/", "tls://x.example:993", "starttls://x.example:25"])
def test_gatus_without_verification_keeps_the_warnings(url: str) -> None:
    """`check_ssl` needs verification, so the importer drops it; the expiry warnings remain."""
    endpoint = {"name": "x", "url": url, "client": {"insecure": True}, "conditions": ["[CERTIFICATE_EXPIRATION] > 48h"]}
    (mapped,) = gatus.read(json.dumps({"endpoints": [endpoint]})).monitors
    assert (given_of(mapped)["tls_verify"], given_of(mapped)["check_ssl"]) == (False, False)


def test_hosts_of_gatus() -> None:
    found = sample("gatus.yaml")
    common = {"interval_sec": 60, "slow_ms": 60_000}
    assert given_of(found["ping-example"]) == common | {
        "name": "ping-example",
        "type": "ping",
        "url": "icmp://[2001:4860:4860::8888]",
        "slow_ms": 100,
        "packets": 1,
    }
    assert given_of(found["redis"]) == common | {
        "name": "redis",
        "type": "port",
        "url": "tcp://redis.example:6379",
        "interval_sec": 30,
        "timeout_ms": 3000,
        "request_body": "PING\n",
        "content_rules": [{"type": "text_contains", "value": "+PONG"}],
    }
    assert [note.text for note in found["redis"].notes] == [
        "[BODY] == +PONG: an answer that contains it passes",
        "[STATUS] == 200 is not supported and is skipped",
        "are for http only",
    ]
    assert notes_of(found["database"]) == {"body": "is sent, and no reply is awaited, as no condition uses [BODY]"}
    assert given_of(found["ldaps"]) == common | {
        "name": "ldaps",
        "type": "port",
        "url": "tls://ldap.example:636",
        "timeout_ms": 5000,
        "check_ssl": True,
        "check_domain": True,
    }
    submission = found["submission"]
    assert given_of(submission) == common | {
        "name": "submission",
        "type": "port",
        "url": "tls://smtp.gmail.com:587?starttls=smtp",
        "interval_sec": 1800,
        "check_ssl": True,
    }
    assert notes_of(submission)["body"] == "is not sent"
    assert given_of(found["time"]) == common | {
        "name": "time",
        "type": "udp",
        "url": "udp://time.example:37",
        "request_body": "now",
        "content_rules": [{"type": "text_contains", "value": "2026"}],
    }


def test_dns_of_gatus() -> None:
    found = sample("gatus.yaml")
    query = found["dns-query"]
    assert given_of(query) == {
        "name": "dns-query",
        "type": "dns",
        "url": "dns://8.8.8.8/example.com?type=A",
        "interval_sec": 60,
        "slow_ms": 60_000,
        "records": ["93.184.215.14"],
    }
    assert [note.text for note in query.notes] == [
        "[BODY] == 93.184.215.14: it must be the only record; Gatus compares the last one",
        "[DNS_RCODE] == NOERROR: an answer without a record of the type fails too",
    ]
    servers = found["name-servers"]
    assert given_of(servers)["url"] == "dns://[2620:fe::fe]:5353/example.com?type=NS"
    assert given_of(servers)["content_rules"] == [
        {"type": "text_contains", "value": "iana"},
        {"type": "text_contains", "value": "b.iana-servers.net."},
    ]
    assert [note.text for note in servers.notes] == [
        "[BODY] == pat(*.iana-servers.net.) is not supported and is skipped",
        "[BODY] == pat(*iana*): any record may contain it; Gatus compares the last one",
        "[BODY] == b.iana-servers.net.: any record that contains it passes; Gatus compares the last",
        "no condition uses [DNS_RCODE]; NOERROR and a record are expected",
    ]
    reverse = found["reverse"]
    assert given_of(reverse)["url"] == "dns://9.9.9.9/8.8.8.8.in-addr.arpa?type=PTR"
    assert "[BODY] == any(dns.google., google.) is not supported" in notes_of(reverse)["conditions"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"url": "8.8.8.8", "dns": {"query-type": "A"}}, "dns.query-name"),
        ({"url": "8.8.8.8", "dns": {"query-name": ["x"]}}, "dns.query-name"),
        ({"url": "8.8.8.8", "dns": {"query-name": "$NAME"}}, "dns.query-name"),
        ({"url": "8.8.8.8:port", "dns": {"query-name": "x", "query-type": "A"}}, "url"),
        ({"url": "8.8.8.8/x", "dns": {"query-name": "x", "query-type": "A"}}, "url"),
        ({"url": "8.8.8.8", "dns": "x"}, "url"),
        ({"url": "tcp://x:1", "body": "[RANDOM_STRING_5]"}, "body"),
        ({"url": "udp://x:1", "body": ""}, "body"),
        ({"url": "ws://x/"}, "url"),
        ({"url": "ssh://x"}, "url"),
        ({"url": "grpc://x:1"}, "url"),
    ],
)
def test_what_gatus_checks_and_pulsekeeper_does_not(fields: dict[str, Any], field: str) -> None:
    (mapped,) = gatus.read(json.dumps({"endpoints": [{"name": "x", "conditions": [], **fields}]})).monitors
    assert (mapped.body, set(notes_of(mapped))) == (None, {field})


def test_thresholds_of_gatus_that_are_no_numbers_are_ignored() -> None:
    alerts = [{"failure-threshold": [1]}, {"failure-threshold": 5}]
    endpoint = {"name": "x", "url": "https://x.example", "alerts": alerts}
    (mapped,) = gatus.read(json.dumps({"endpoints": [endpoint]})).monitors
    assert given_of(mapped)["fail_threshold"] == 5
    assert "alerts[].failure-threshold" in notes_of(mapped)


def test_durations() -> None:
    assert [duration(text) for text in ("60s", "1h30m", "500ms", "1.5m")] == [60, 5400, 0.5, 90]
    assert [duration(text) for text in ("", "5", "5x", 5, None, "s")] == [None] * 6


@pytest.mark.parametrize("name", READERS)
def test_secrets_are_in_headers_and_nowhere_else(name: str) -> None:
    for mapped in sample(name).values():
        said = repr(mapped) + str(
            {key: value for key, value in (mapped.body or {}).items() if key != "request_headers"}
        )
        assert "hunter2" not in said


def test_a_password_in_an_address_becomes_a_header() -> None:
    text = json.dumps([{"name": "x", "type": "http", "url": "https://me:hunter%32@x.example:8443/a?b"}])
    (mapped,) = uptime_kuma.read(text).monitors
    assert given_of(mapped)["url"] == "https://x.example:8443/a?b"
    assert given_of(mapped)["request_headers"] == [basic("me", "hunter2")]


def test_groups_of_uptime_kuma_are_paths_that_end() -> None:
    groups = [
        {"id": 1, "type": "group", "name": "Europe", "parent": None},
        {"id": 2, "type": "group", "name": "Shop", "parent": 1},
        {"id": 3, "type": "group", "name": "Round", "parent": 4},
        {"id": 4, "type": "group", "name": "Trip", "parent": 3},
    ]
    monitors = [{"type": "push", "name": str(parent), "parent": parent} for parent in (2, "1", 3, 9, None)]
    found = uptime_kuma.read(json.dumps(groups + monitors)).monitors
    assert [each.group for each in found] == ["Europe / Shop", "Europe", "Trip / Round", "", ""]


_ALIASES = "\n".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]" for n in range(1, 12))
_GATUS = "x0: &x0 [lol]\n" + _ALIASES + "\nendpoints:\n- {name: A, url: 'http://a.test/', "
SLOW_TO_MAP = [
    (gatus.read, _GATUS + f"conditions: ['a{' ' * 30_000}']}}"),
    (gatus.read, _GATUS + "conditions: [*x11]}"),
    (gatus.read, _GATUS + "headers: {X: *x11}}"),
    (gatus.read, f"endpoints:\n- {{name: A, url: 'http://a{chr(0x301) * 9_000}{chr(0x327) * 9_000}/'}}"),
    (uptimerobot.read, json.dumps([{"friendly_name": "A", "type": "9" * 5_000}])),
    (uptimerobot.read, json.dumps([{"friendlyName": "A", "type": "PING", "url": f"a{chr(0x301) * 500_000}"}])),
    (uptime_kuma.read, json.dumps([{"type": "dns", "hostname": "a", "dns_resolve_server": chr(0x301) * 500_000}])),
    (uptime_kuma.read, json.dumps([{"type": "dns", "hostname": "a", "dns_resolve_server": "1.1.1.1," * 90_000}])),
    (uptime_kuma.read, json.dumps([{"type": "dns", "hostname": "%" * 500_000, "dns_resolve_server": "1.1.1.1"}])),
]


@pytest.mark.parametrize(("reader", "text"), SLOW_TO_MAP)
def test_no_file_takes_long_to_map(reader: Callable[[str], MappedFile], text: str) -> None:
    before = time.thread_time()
    assert len(reader(text).monitors) == 1
    assert time.thread_time() - before < 1  # of CPU, most of it in reading the YAML


@pytest.mark.parametrize("value", ["!!bool x", "!!int ''", "!!float ''"])
def test_a_tag_that_does_not_fit_its_value_is_no_yaml(value: str) -> None:
    with pytest.raises(UnreadableFileError):
        gatus.read(f"endpoints: {value}")


@pytest.mark.parametrize("reader", [uptime_kuma.read, healthchecks.read, uptimerobot.read, gatus.read])
@pytest.mark.parametrize("text", ["", "x", "[1]", '{"a": 1}', "null", "{" * 400, "[" * 400, "\x00", '"\\ud800"'])
def test_a_file_that_is_none(reader: Callable[[str], MappedFile], text: str) -> None:
    with pytest.raises(UnreadableFileError):
        reader(text)


_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(
        [
            *("http", "push", "port", "ping", "dns", "HTTP", "KEYWORD", "PORT", "PING", "UDP", "DNS", "3", "4"),
            *("https://x.example/", "tcp://x:1", "icmp://x", "starttls://x:25", "udp://x:9", "8.8.8.8", "[::1]:53"),
            *("basic", "starttls", "200-299", "\ud800", "²", "[STATUS] < 300", "[BODY] == x", "[DNS_RCODE] == NOERROR"),
        ]
    )
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=examples(40))
@given(data=st.data())
def test_whatever_a_field_holds_a_mapper_returns(name: str, data: st.DataObject) -> None:
    """Yield each sample with another value in one field of a monitor."""
    text = (SAMPLES / name).read_text()
    document = _document(name, text)
    key = next(key for key in ("monitorList", "checks", "monitors", "data", "endpoints", "2") if key in document)
    items = [document[key]] if key == "2" else document[key]
    item = data.draw(st.sampled_from(items))
    item[data.draw(st.sampled_from(sorted(item)))] = data.draw(_VALUES)
    READERS[name](json.dumps(document))


def _document(name: str, text: str) -> Any:
    if not name.endswith(".yaml"):
        return json.loads(text)
    from ruamel.yaml import YAML

    return YAML(typ="safe", pure=True).load(text)


def test_half_a_character_in_a_header_skips_its_monitor() -> None:
    """A server would reject the whole request."""
    builder = MonitorBuilder({}, name="M")
    builder.add_header("headers", "X-Key", "\ud800")
    with pytest.raises(UnsupportedError) as refused:
        builder.mapped()
    assert refused.value.args[0].field == "request_headers"


KUMA_CHANNELS: list[tuple[dict[str, Any], str, dict[str, str]]] = [
    (
        {"type": "webhook", "webhookURL": "https://hook.example/hunter2", "webhookContentType": "json"},
        "webhook",
        {"url": "https://hook.example/hunter2"},
    ),
    (
        {"type": "telegram", "telegramBotToken": "12345:hunter2", "telegramChatID": -100123},
        "telegram",
        {"bot_token": "12345:hunter2", "chat_id": "-100123"},
    ),
    ({"type": "slack", "slackwebhookURL": "hunter2"}, "slack", {"url": "hunter2"}),
    ({"type": "discord", "discordWebhookUrl": "hunter2"}, "discord", {"url": "hunter2"}),
    ({"type": "teams", "webhookUrl": "hunter2"}, "teams", {"url": "hunter2"}),
    (
        {
            "type": "ntfy",
            "ntfyAuthenticationMethod": "accessToken",
            "ntfytopic": "hunter2",
            "ntfyserverurl": "https://ntfy.sh",
            "ntfyaccesstoken": "tk_hunter2",
        },
        "ntfy",
        {"topic": "hunter2", "server": "https://ntfy.sh", "access_token": "tk_hunter2"},
    ),
    (
        {"type": "pushover", "pushoveruserkey": "hunter2", "pushoverapptoken": "hunter3"},
        "pushover",
        {"user_key": "hunter2", "app_token": "hunter3"},
    ),
    ({"type": "PagerDuty", "pagerdutyIntegrationKey": "hunter2"}, "pagerduty", {"integration_key": "hunter2"}),
    ({"type": "apprise", "appriseURL": "bark://hunter2"}, "apprise", {"apprise_url": "bark://hunter2"}),
]


@pytest.mark.parametrize(("config", "kind", "settings"), KUMA_CHANNELS, ids=[each[1] for each in KUMA_CHANNELS])
def test_channels_of_uptime_kuma(config: dict[str, Any], kind: str, settings: dict[str, str]) -> None:
    entry = {"id": 7, "name": "On call", "active": False, "config": json.dumps(config)}
    found = uptime_kuma.read(json.dumps({"notificationList": [entry], "monitorList": []}))
    (channel,) = found.channels
    assert channel.body == {"name": "On call", "kind": kind, **settings}
    assert (channel.key, channel.enabled) == ("7", False)
    assert "hunter2" not in repr(found)


def test_mail_of_uptime_kuma_has_a_channel_for_each_address() -> None:
    config = {"type": "smtp", "smtpTo": "a@x.example, b@x.example", "smtpPassword": "hunter2", "smtpHost": "x.example"}
    monitors = [{"type": "push", "name": "m", "notificationIDList": {"1": True, "2": False, "3": True}}]
    entry = {"id": 1, "name": "Mail", "config": json.dumps(config)}
    found = uptime_kuma.read(json.dumps({"notificationList": [entry], "monitorList": monitors}))
    assert found.monitors[0].channels == ("1", "3")
    assert [(each.key, (each.body or {}).get("address")) for each in found.channels] == [
        ("1", "a@x.example"),
        ("1", "b@x.example"),
        ("3", None),
    ]
    assert "does not contain its settings" in found.channels[2].notes[0].text


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ('{"type": "signal"}', "type"),
        ('{"type": 5}', "type"),
        ("hunter2", "type"),
        ('{"type": "ntfy", "ntfyAuthenticationMethod": "usernamePassword"}', "ntfyAuthenticationMethod"),
        ('{"type": "telegram", "telegramServerUrl": "https://x.example"}', "telegramServerUrl"),
        ('{"type": "slack", "slackwebhookURL": ["hunter2"]}', "slackwebhookURL"),
    ],
)
def test_channels_that_uptime_kuma_has_and_pulsekeeper_has_not(config: str, field: str) -> None:
    entry = {"id": 1, "name": "Other", "config": config}
    (channel,) = uptime_kuma.read(json.dumps({"notificationList": [entry], "monitorList": []})).channels
    assert (channel.body, [note.field for note in channel.notes]) == (None, [field])
    assert "hunter2" not in repr(channel)


def test_channels_of_gatus() -> None:
    alerting = {
        "slack": {"webhook-url": "https://hooks.slack.com/services/hunter2"},
        "telegram": {"token": "hunter2", "id": "-5"},
        "email": {"to": "a@x.example,b@x.example", "password": "hunter2"},
        "custom": {"url": "https://$HOST/"},
        "opsgenie": {"api-key": "hunter2"},
    }
    alerts = [{"type": "slack"}, {"type": "telegram", "enabled": False}, {"type": "discord"}]
    endpoint = {"name": "x", "url": "https://x.example", "alerts": alerts, "extra-labels": {"env": "prod"}}
    found = gatus.read(json.dumps({"alerting": alerting, "endpoints": [endpoint]}))
    assert found.monitors[0].channels == ("slack", "discord")
    assert given_of(found.monitors[0])["tags"] == ["env: prod"]
    assert [(each.key, (each.body or {}).get("kind")) for each in found.channels] == [
        ("slack", "slack"),
        ("telegram", "telegram"),
        ("email", "email"),
        ("email", "email"),
        ("custom", None),
        ("opsgenie", None),
        ("discord", None),
    ]
    assert found.channels[4].notes[0].text == "uses the variable $HOST; replace it with its value"
    assert "hunter2" not in repr(found)


def test_channels_of_healthchecks_and_uptimerobot() -> None:
    check = {"name": "x", "timeout": 60, "channels": "1bdea468-03bf,ca9d2a7a-27d4", "tags": "prod eu"}
    found = healthchecks.read(json.dumps([check]))
    assert found.monitors[0].channels == ("1bdea468-03bf", "ca9d2a7a-27d4")
    assert given_of(found.monitors[0])["tags"] == ["prod", "eu"]
    assert [each.body for each in found.channels] == [None, None]
    contacts = [{"id": "1", "type": 2, "value": "me@x.example"}, {"id": "2", "type": 1, "value": "+49"}]
    old = uptimerobot.read(
        json.dumps([{"friendly_name": "a", "type": 1, "url": "https://a.example", "alert_contacts": contacts}])
    )
    assert old.monitors[0].channels == ("1", "2")
    assert [(each.body or {}).get("address") for each in old.channels] == ["me@x.example", None]
    monitor = {"friendlyName": "a", "type": "HTTP", "url": "https://a.example"}
    new = uptimerobot.read(json.dumps([{**monitor, "assignedAlertContacts": [{"alertContactId": 5}]}]))
    assert [(each.key, each.body) for each in new.channels] == [("5", None)]


@pytest.mark.parametrize(
    ("given", "tags", "notes"),
    [
        ([{"name": " Prod "}, {"name": "prod"}, {"name": ""}, {"name": None}, 5], ["Prod"], []),
        ([{"name": "env", "value": "prod"}, {"name": "team", "value": " "}], ["env: prod", "team"], []),
        ([{"name": "e\u0301tude"}], ["\u00e9tude"], []),
        ([{"name": "a,b"}], ["a b"], ["a,b becomes a b"]),
        ([{"name": "a\nb"}], ["a b"], None),
        ([{"name": "x" * 41}], ["x" * 39 + "…"], [f"{'x' * 41} becomes {'x' * 39}…"]),
        ([{"name": ","}], None, [", is skipped: a tag cannot be blank."]),
        ([{"name": "\ud800"}], None, None),
        (
            [{"name": str(number)} for number in range(22)],
            [str(number) for number in range(20)],
            ["the limit is 20 tags; the others are skipped"],
        ),
    ],
)
def test_tags_of_uptime_kuma(given: list[Any], tags: list[str] | None, notes: list[str] | None) -> None:
    entry = {"name": "x", "type": "http", "url": "https://x.example/", "tags": given}
    (mapped,) = uptime_kuma.read(json.dumps([entry])).monitors
    assert given_of(mapped).get("tags") == tags
    assert settle_tags(tags or ()) == tuple(tags or ())
    if notes is not None:
        assert [note.text for note in mapped.notes if note.field == "tags"] == notes


@pytest.mark.parametrize(
    ("retries", "pause", "confirmation_sec", "is_noted"),
    [(2, 20, 40, False), (1, 20.4, 20, False), (5, 3_000, 3_600, True), (1, -5, 0, True), (3, 60, None, False)],
)
def test_the_retries_of_uptime_kuma_confirm_an_outage(
    retries: int, pause: float, confirmation_sec: int | None, *, is_noted: bool
) -> None:
    given = {"type": "http", "name": "Shop", "url": "https://shop.example/", "interval": 60}
    (found,) = uptime_kuma.read(json.dumps([given | {"maxretries": retries, "retryInterval": pause}])).monitors
    assert given_of(found).get("confirmation_sec") == confirmation_sec
    assert ("retryInterval" in notes_of(found)) == is_noted

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

from manifests.importers import gatus, healthchecks, uptime_kuma, uptimerobot
from manifests.importers.gatus import duration
from manifests.importers.healthchecks import InvalidScheduleError, longest_gap
from manifests.importers.mapped import MappedMonitor, UnreadableFileError
from tests.helpers import examples

SAMPLES = Path(__file__).parent / "samples"
READERS: dict[str, Callable[[str], list[MappedMonitor]]] = {
    "uptime-kuma-v1.json": uptime_kuma.read,
    "uptime-kuma-v2.json": uptime_kuma.read,
    "healthchecks-v3.json": healthchecks.read,
    "uptimerobot-v2.json": uptimerobot.read,
    "uptimerobot-v3.json": uptimerobot.read,
    "gatus.yaml": gatus.read,
}


def sample(name: str) -> dict[str, MappedMonitor]:
    return {each.name: each for each in READERS[name]((SAMPLES / name).read_text())}


def given_of(mapped: MappedMonitor) -> dict[str, Any]:
    assert mapped.body is not None, mapped.notes
    return dict(mapped.body)


def notes_of(mapped: MappedMonitor) -> dict[str, str]:
    return {note.field: note.text for note in mapped.notes}


def header(name: str, value: str, kind: str = "custom") -> dict[str, str]:
    return {"name": name, "value": value, "type": kind}


def basic(user: str, password: str) -> dict[str, str]:
    return header("Authorization", "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())


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
        "follow_redirects": True,
        "check_ssl": True,
        "request_headers": [header("X-Api-Key", "hunter2-key", "apikey"), header("Accept", "text/html")],
    }
    assert set(notes_of(shop)) == {"retryInterval", "notificationIDList", "tags"}
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
        "request_headers": [basic("me", "hunter2-basic"), header("Content-Type", "text/xml; charset=utf-8")],
        "request_body": "<login/>",
        "content_rules": [{"type": "text_contains", "value": "Welcome"}],
    }
    assert set(notes_of(login)) == {"timeout", "accepted_statuscodes", "ignoreTls", "proxyId"}
    backup = found["Backup"]
    assert (given_of(backup), backup.enabled) == (
        {"name": "Backup", "type": "heartbeat", "interval_sec": 86_400, "grace_sec": 1800},
        False,
    )
    assert (found["Router"].body, notes_of(found["Router"])) == (None, {"type": "ping is not supported"})
    assert set(notes_of(found["Closed port"])) == {"upsideDown"}


def test_uptime_kuma_2() -> None:
    found = sample("uptime-kuma-v2.json")
    api = found["API"]
    assert given_of(api) | {"type": "api", "expect_status": 200, "check_domain": True} == given_of(api)
    assert given_of(api)["content_rules"] == [{"type": "json_field", "path": "services.0.state", "equals": "ok"}]
    assert set(notes_of(api)) == {"maxredirects", "parent", "description"}
    assert notes_of(found["Site"]) == {"type": "group is not supported"}
    assert notes_of(found["Partner"]) == {"authMethod": "oauth2-cc is not supported"}
    assert set(notes_of(found["Queue length"])) == {"jsonPathOperator"}


def test_healthchecks() -> None:
    found = sample("healthchecks-v3.json")
    files = found["Filesystem Backup"]
    assert given_of(files) == {"name": "Filesystem Backup", "type": "heartbeat", "interval_sec": 3600, "grace_sec": 600}
    assert set(notes_of(files)) == {
        "ping_url",
        "tags",
        "desc",
        "channels",
        "success_kw",
        "failure_kw",
        "filter_subject",
    }
    database = found["Database Backup"]
    assert (given_of(database)["interval_sec"], database.enabled) == (3 * 86_400, False), "over the weekend"
    assert "one hour longer" in notes_of(database)["schedule"]
    assert notes_of(found["reports"]) == {"schedule": "is not a cron expression with five fields"}


@pytest.mark.parametrize(
    ("schedule", "gap"),
    [
        ("* * * * *", 60),
        ("*/15 * * * *", 900),
        ("30 2 * * *", 86_400),
        ("0 9-17 * * *", 16 * 3600),
        ("0 0 * * 7", 7 * 86_400),
        ("0 0 * * sun", 7 * 86_400),
        ("0 0 1 * *", 31 * 86_400),
        ("0 0 1 * 1", 7 * 86_400),  # the first of a month, or Mondays
        ("0 0 29 2 *", (4 * 365 + 1) * 86_400),
    ],
)
def test_the_longest_gap_of_a_schedule(schedule: str, gap: int) -> None:
    assert longest_gap(schedule) == gap


@pytest.mark.parametrize("schedule", ["0 0 31 2 *", "@daily", "0 0 * *", "x * * * *", "99 * * * *", ""])
def test_no_such_schedule(schedule: str) -> None:
    with pytest.raises(InvalidScheduleError):
        longest_gap(schedule)


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
    assert set(notes_of(page)) == {"checkSSLErrors", "keywordCaseType", "assignedAlertContacts", "custom_http_statuses"}
    assert notes_of(found["My FTP Server"]) == {"type": "PORT is not supported"}
    assert notes_of(found["PortTest"]) == {"type": "PING is not supported"}
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
    }
    errors = found["No errors"]
    assert given_of(errors)["content_rules"] == [{"type": "text_absent", "value": "Fatal error"}]
    assert (errors.enabled, set(notes_of(errors))) == (False, {"checkSSLErrors", "httpPassword"})
    assert given_of(found["Import job"])["grace_sec"] == 300
    assert set(notes_of(found["Partner"])) == {"authType"}


def test_gatus() -> None:
    found = sample("gatus.yaml")
    front = found["core / front-end"]
    assert given_of(front) == {
        "name": "core / front-end",
        "type": "http",
        "url": "https://shop.example/$path",
        "method": "GET",
        "interval_sec": 90,
        "timeout_ms": 5000,
        "slow_ms": 500,
        "expect_status": 200,
        "follow_redirects": True,
        "fail_threshold": 2,
        "recover_threshold": 2,
        "request_headers": [header("Authorization", "Bearer hunter2-bearer", "bearer")],
    }
    assert set(notes_of(front)) == {
        "client.insecure",
        "alerts",
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
    assert given_of(found["core / ext-ep-test"])["interval_sec"] == 1800
    refused = {name: notes_of(each) for name, each in found.items() if each.body is None}
    assert refused == {
        "from-environment": {"url": "uses the variable $DOMAIN; replace it with its value"},
        "ping-example": {"url": "icmp is not supported"},
        "dns-query": {"url": "a URL without http:// is not supported"},
        "with-oauth": {"client.oauth2": "is not supported"},
        "no-deadline": {"heartbeat": "an interval is required"},
        "item-crud": {"suites": "suites are not supported"},
    }


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
    (mapped,) = uptime_kuma.read(text)
    assert given_of(mapped)["url"] == "https://x.example:8443/a?b"
    assert given_of(mapped)["request_headers"] == [basic("me", "hunter2")]


_ALIASES = "\n".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]" for n in range(1, 12))
_GATUS = "x0: &x0 [lol]\n" + _ALIASES + "\nendpoints:\n- {name: A, url: 'http://a.test/', "
SLOW_TO_MAP = [
    (gatus.read, _GATUS + f"conditions: ['a{' ' * 30_000}']}}"),
    (gatus.read, _GATUS + "conditions: [*x11]}"),
    (gatus.read, _GATUS + "headers: {X: *x11}}"),
    (gatus.read, f"endpoints:\n- {{name: A, url: 'http://a{chr(0x301) * 9_000}{chr(0x327) * 9_000}/'}}"),
    (uptimerobot.read, json.dumps([{"friendly_name": "A", "type": "9" * 5_000}])),
]


@pytest.mark.parametrize(("reader", "text"), SLOW_TO_MAP)
def test_no_file_takes_long_to_map(reader: Callable[[str], list[MappedMonitor]], text: str) -> None:
    before = time.thread_time()
    assert len(reader(text)) == 1
    assert time.thread_time() - before < 1  # of CPU, most of it in reading the YAML


@pytest.mark.parametrize("reader", [uptime_kuma.read, healthchecks.read, uptimerobot.read, gatus.read])
@pytest.mark.parametrize("text", ["", "x", "[1]", '{"a": 1}', "null", "{" * 400, "[" * 400, "\x00", '"\\ud800"'])
def test_a_file_that_is_none(reader: Callable[[str], list[MappedMonitor]], text: str) -> None:
    with pytest.raises(UnreadableFileError):
        reader(text)


_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(
        ["http", "push", "HTTP", "KEYWORD", "https://x.example/", "basic", "200-299", "\ud800", "²", "[STATUS] < 300"]
    )
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=examples(40))
@given(data=st.data())
def test_whatever_a_field_holds_a_mapper_returns(name: str, data: st.DataObject) -> None:
    """A field of each sample's monitors, with something else in it."""
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

"""Defaults, clamps, floors and refusals of a monitor's configuration."""

from __future__ import annotations

from typing import Any

import pytest

from core.errors import ValidationFailed
from monitors import types
from monitors.configuration import Limits, complete, merge, patch
from monitors.types.http import Header
from monitors.types.settings import MonitorConfig

URL = "https://shop.example/health"


def new(given: dict[str, Any] | None = None, *, floor_sec: int = 60) -> MonitorConfig:
    return complete(
        {"url": URL} | (given or {}), Limits(floor_sec=floor_sec, permits_host=lambda host: host != "10.0.0.1")
    )


def changed(stored: MonitorConfig, given: dict[str, Any]) -> MonitorConfig:
    return patch(stored, given, Limits(floor_sec=60, permits_host=lambda _: True))


def test_defaults_of_the_specification() -> None:
    config = new()
    assert config.type == "http"
    assert {name: config[name] for name in types.settings()} == {
        "interval_sec": 60,
        "name": "Untitled",
        "url": URL,
        "method": "HEAD",
        "grace_sec": 60,
        "slow_ms": 1500,
        "timeout_ms": 10_000,
        "expect_status": None,
        "follow_redirects": False,
        "check_ssl": False,
        "tls_verify": True,
        "ca_certificate": None,
        "check_domain": False,
        "content_rules": (),
        "request_headers": (),
        "request_body": None,
        "request_body_encoding": "text",
        "packets": 3,
        "min_replies": 1,
        "records": None,
        "schedule": None,
        "timezone": "UTC",
        "missed": "skip",
        "min_duration_sec": None,
        "max_duration_sec": None,
        "max_pings_per_hour": None,
        "fail_threshold": 3,
        "confirmation_sec": None,
        "locations": ("default",),
        "quorum": None,
        "recover_threshold": 1,
        "tags": (),
    }


RULE = {"type": "text_contains", "value": "ok"}


@pytest.mark.parametrize(
    ("given", "field", "settled"),
    [
        ({"interval_sec": 5}, "interval_sec", 300),
        ({"interval_sec": -5}, "interval_sec", 300),
        ({"interval_sec": 10**15}, "interval_sec", 2_147_483_647),
        ({"interval_sec": 301}, "interval_sec", 301),
        ({}, "interval_sec", 300),
        ({"timeout_ms": 1}, "timeout_ms", 1000),
        ({"timeout_ms": 10**9}, "timeout_ms", 60_000),
        ({"expect_status": 0}, "expect_status", None),
        ({"expect_status": 204}, "expect_status", 204),
        ({"content_rules": [RULE]}, "method", "GET"),
        ({"content_rules": [RULE], "method": "HEAD"}, "method", "GET"),
        ({"content_rules": [RULE], "method": "POST"}, "method", "POST"),
    ],
)
def test_settled_value(given: dict[str, Any], field: str, settled: object) -> None:
    assert new(given, floor_sec=300)[field] == settled


JSON_RULE = {"type": "json_field", "path": "status"}


@pytest.mark.parametrize(
    ("given", "method"),
    [
        ({"type": "http"}, "HEAD"),
        ({"type": "api", "content_rules": [JSON_RULE]}, "GET"),
        ({"type": "api", "content_rules": [JSON_RULE], "method": "HEAD"}, "GET"),
        ({"type": "keyword", "content_rules": [RULE]}, "GET"),
        ({"type": "keyword", "content_rules": [RULE], "method": "POST"}, "POST"),
        ({"type": "scheduler"}, "POST"),
        ({"type": "scheduler", "method": "GET"}, "GET"),
        ({"type": "heartbeat", "url": ""}, "HEAD"),
    ],
)
def test_method_of_each_kind(given: dict[str, Any], method: str) -> None:
    config = new(given)
    assert (config.type, config["method"]) == (given["type"], method)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"type": "api"}, "content_rules"),
        ({"type": "api", "content_rules": [RULE]}, "content_rules"),
        ({"type": "keyword"}, "content_rules"),
        ({"type": "keyword", "content_rules": [JSON_RULE]}, "content_rules"),
        ({"type": "scheduler", "method": "HEAD"}, "method"),
        ({"type": "scheduler", "method": "OPTIONS"}, "method"),
        ({"type": "scheduler", "url": ""}, "url"),
        ({"type": "heartbeat", "url": "nonsense"}, "url"),
        ({"request_headers": [{"name": "pulsekeeper-run-id", "value": "1"}]}, "request_headers[0].name"),
    ],
)
def test_refused_for_the_kind(given: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationFailed) as caught:
        new(given)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("before", "after", "allowed"),
    [
        ("http", "api", True),
        ("api", "keyword", True),
        ("keyword", "http", True),
        ("http", "scheduler", False),
        ("scheduler", "http", False),
        ("http", "heartbeat", False),
        ("heartbeat", "http", False),
        ("heartbeat", "heartbeat", True),
    ],
)
def test_change_of_type(before: str, after: str, allowed: bool) -> None:
    stored = new({"type": before, "content_rules": [RULE, JSON_RULE]})
    if allowed:
        assert changed(stored, {"type": after}).type == after
    else:
        with pytest.raises(ValidationFailed) as caught:
            changed(stored, {"type": after})
        assert caught.value.field == "type"


def header(name: str, value: str = "x") -> dict[str, Any]:
    return {"request_headers": [{"name": name, "value": value}]}


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"url": ""}, "url"),
        ({"url": "shop.example"}, "url"),
        ({"url": "ftp://shop.example/"}, "url"),
        ({"url": "http://"}, "url"),
        ({"url": "http:///path"}, "url"),
        ({"url": "http://user:secret@shop.example/"}, "url"),
        ({"url": "http://user@shop.example/"}, "url"),
        ({"url": "http://shop.example:99999/"}, "url"),
        ({"url": "http://shop.example:0/"}, "url"),
        ({"url": "http://shop .example/"}, "url"),
        ({"url": "http://shop.example/\r\nHost: x"}, "url"),
        ({"url": "http://shop.example\\@10.0.0.1/"}, "url"),
        ({"url": "http://[::1/"}, "url"),
        ({"url": "http://a..b/"}, "url"),
        ({"url": "http://10.0.0.1/"}, "url"),
        ({"url": "http://shop.example/" + "a" * 2048}, "url"),
        ({"content_rules": [RULE] * 5}, "content_rules"),
        ({"content_rules": [{"type": "text_contains"}]}, "content_rules[0].value"),
        ({"content_rules": [RULE, {"type": "json_field"}]}, "content_rules[1].path"),
        ({"request_body": "{}"}, "request_body"),
        ({"request_body": "{}", "method": "GET"}, "request_body"),
        ({"request_body": "{}", "method": "OPTIONS"}, "request_body"),
        ({"request_body": "a" * 8193, "method": "POST"}, "request_body"),
        (header("Content-Length"), "request_headers[0].name"),
        (header("transfer-encoding"), "request_headers[0].name"),
        (header("Connection"), "request_headers[0].name"),
        (header("X Y"), "request_headers[0].name"),
        (header("X\r\nY"), "request_headers[0].name"),
        (header("X", "a\r\nb"), "request_headers[0].value"),
        ({"request_headers": [{"name": "A", "value": ""}, {"name": "a"}]}, "request_headers[1].name"),
        ({"request_headers": [{"name": c, "value": ""} for c in "abcde"]}, "request_headers"),
    ],
)
def test_refused(given: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationFailed) as caught:
        new(given)
    assert caught.value.field == field
    assert field in str(caught.value)


def test_host_header_and_equals_may_be_set() -> None:
    config = new(
        header("Host", "other.example") | {"content_rules": [{"type": "json_field", "path": "a.b", "equals": ""}]}
    )
    assert config["request_headers"][0].name == "Host"
    assert config["content_rules"][0].equals == ""


def test_patch_keeps_header_values_by_name_in_any_case() -> None:
    stored = new({"request_headers": [{"name": "X-Key", "value": "secret"}, {"name": "X-Old", "value": "o"}]})
    merged = changed(stored, {"request_headers": [{"name": "x-key", "type": "apikey"}, {"name": "X-New"}]})
    assert merged["request_headers"] == (Header("x-key", "secret", "apikey"), Header("X-New", "", None))


def test_patch_is_judged_as_the_merged_monitor() -> None:
    stored = new({"method": "POST", "request_body": "{}"})
    with pytest.raises(ValidationFailed) as caught:
        changed(stored, {"method": "GET"})
    assert caught.value.field == "request_body"
    assert changed(stored, {"method": "GET", "request_body": None})["request_body"] is None


def test_removing_the_rules_does_not_turn_get_back_into_head() -> None:
    stored = new({"content_rules": [RULE]})
    assert changed(stored, {"content_rules": []})["method"] == "GET"
    assert changed(stored, {"method": "HEAD"})["method"] == "GET"


def test_values_of_headers_stay_out_of_the_repr() -> None:
    config = merge(new(), {"request_headers": (Header("X-Key", "hunter2"),)})
    assert "hunter2" not in repr(config)


STORED: dict[str, Any] = {
    "url": "https://shop.example/health",
    "method": "POST",
    "request_body": "stays",
    "request_headers": [{"name": "Authorization", "value": "s3cret"}, {"name": "X-Key", "value": "k3y"}],
}
HOST = {"name": "Host", "value": "front.example"}


@pytest.mark.parametrize(
    ("url", "keeps"),
    [
        ("https://shop.example/other?path=1", True),
        ("https://SHOP.example:443/", True),
        ("HTTPS://shop.example", True),
        ("http://shop.example/health", False),
        ("https://shop.example:8443/health", False),
        ("https://shop.example.evil.example/health", False),
        ("https://sh\u043ep.example/health", False),  # a Cyrillic o
        ("https://[::ffff:203.0.113.7]/", False),
    ],
)
def test_header_values_stay_with_their_server(url: str, keeps: bool) -> None:
    after = changed(new(STORED), {"url": url})
    assert [(h.name, h.value, h.dropped) for h in after["request_headers"]] == [
        ("Authorization", "s3cret" if keeps else "", not keeps),
        ("X-Key", "k3y" if keeps else "", not keeps),
    ]
    assert after["request_body"] == "stays", "not secret: the API shows it"
    back = changed(after, {"url": STORED["url"], "name": "Back"})
    assert [h.value for h in back["request_headers"]] == [h.value for h in after["request_headers"]]


def test_spellings_of_one_international_host_are_one_server() -> None:
    stored = new(STORED | {"url": "https://b\u00fccher.example/"})
    assert changed(stored, {"url": "https://xn--bcher-kva.example/"})["request_headers"] == stored["request_headers"]


def test_values_given_with_the_new_server_are_used() -> None:
    headers = [{"name": "authorization", "value": "other"}, {"name": "X-Key"}, {"name": "X-New"}]
    after = changed(new(STORED), {"url": "https://other.example/", "request_headers": headers})
    assert [(h.value, h.dropped) for h in after["request_headers"]] == [("other", False), ("", True), ("", False)]
    emptied = changed(after, {"request_headers": [{"name": "X-Key", "value": ""}]})
    assert [(h.value, h.dropped) for h in emptied["request_headers"]] == [("", False)], "that is what was asked for"


def test_the_host_header_names_a_server_too() -> None:
    named = [{"name": header["name"]} for header in STORED["request_headers"]]
    stored = changed(new(STORED), {"request_headers": [*STORED["request_headers"], HOST]})
    assert changed(stored, {"request_headers": [{"name": "host"}, *named]})["request_headers"][1].value == "s3cret"
    for headers in (named, [*named, HOST | {"value": "evil.example"}]):
        after = changed(stored, {"request_headers": headers})
        assert [h.value for h in after["request_headers"][:2]] == ["", ""]

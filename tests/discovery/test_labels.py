"""Labels as entries of monitors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pulsekeeper.discover.labels import Discovered, Labelled, Listing, discover, parse_defaults

URL = "https://shop.example/"


def read(labels: Mapping[str, str], *more: Labelled, **options: Any) -> Discovered:
    defaults = options.pop("defaults", {})
    limit = options.pop("limit", 100)
    full = {f"pulsekeeper.{name}": value for name, value in labels.items()}
    one = Labelled(place="container web", name="web", labels={"other": "x", **full}, **options)
    return discover(Listing([one, *more]), defaults=defaults, max_per_namespace=limit)


def entries(labels: Mapping[str, str], **options: Any) -> list[dict[str, Any]]:
    found = read(labels, **options)
    assert found.complaints == []
    return [one.entry for one in found.monitors]


def test_the_least_label_is_an_address() -> None:
    assert entries({"url": URL}) == [{"name": "web", "url": URL, "type": "http", "tags": []}]
    assert entries({}) == entries({"url": URL, "ignore": "TRUE"}) == []


@pytest.mark.parametrize(
    ("label", "value", "expected"),
    [
        ("name", " Front  page ", {"name": "Front page"}),
        ("interval", "5m", {"interval_sec": 300}),
        ("interval_sec", "300", {"interval_sec": 300}),
        ("Interval-Sec", "1h", {"interval_sec": 3600}),
        ("timeout", "5s", {"timeout_ms": 5000}),
        ("slow", "800", {"slow_ms": 800}),
        ("slow_ms", "800ms", {"slow_ms": 800}),
        ("confirmation", "2m", {"confirmation_sec": 120}),
        ("expect-status", "204", {"expect_status": 204}),
        ("method", "get", {"method": "GET"}),
        ("check_ssl", "True", {"check_ssl": True}),
        ("enabled", "false", {"enabled": False}),
        ("tags", "web, , prod", {"tags": ["web", "prod"]}),
        ("text_contains", "Wel=come", {"content_rules": [{"type": "text_contains", "value": "Wel=come"}]}),
        (
            "json_field",
            "status = ok",
            {"content_rules": [{"type": "json_field", "path": "status", "equals": "ok"}]},
        ),
        ("json_field", "a.b", {"content_rules": [{"type": "json_field", "path": "a.b"}]}),
        ("type", "keyword", {"type": "keyword"}),
    ],
)
def test_a_setting(label: str, value: str, expected: dict[str, Any]) -> None:
    (entry,) = entries({"url": URL, label: value})
    assert entry == {"name": "web", "url": URL, "type": "http", "tags": [], **expected}


@pytest.mark.parametrize(
    ("label", "value", "words"),
    [
        ("name", " ", "is empty"),
        ("name", "x" * 201, "at most 200 characters"),
        ("name", "a\nb\x00", "control characters"),
        ("interval", "soon", "whole number"),
        ("interval", "1500ms", "whole number"),
        ("interval", "9" * 400, "whole number"),
        ("expect_status", "٤", "whole number"),
        ("check_ssl", "yes", "true or false"),
        ("type", "heartbeat", "must be one of http"),
        ("method", "DELETE", "must be one of HEAD, GET, OPTIONS"),
        ("tags", "x,Discovered:other", "begin with discovered:"),
        ("intervall", "5m", "unknown setting. Did you mean 'interval'?"),
        ("request_headers", "x", "cannot be set by a label"),
        ("project", "Other", "cannot be set by a label"),
        ("locations", "loc_1", "cannot be set by a label"),
        ("ca_certificate", "file:/etc/passwd", "cannot be set by a label"),
        ("url", "file:///etc/passwd", "must be a complete address"),
        ("url", "shop.example", "must be a complete address"),
        ("url", "", "is empty"),
        ("text_contains", "x" * 2049, "more than 2048 characters"),
        ("a.b.url", URL, "must be pulsekeeper.SETTING or pulsekeeper.ID.SETTING"),
        ("a b.url", URL, "must be pulsekeeper.SETTING or pulsekeeper.ID.SETTING"),
    ],
)
def test_an_invalid_label_names_its_object_and_no_value(label: str, value: str, words: str) -> None:
    found = read({"url": URL, label: value} if label != "url" else {"url": value})
    (complaint,) = found.complaints
    assert str(complaint).startswith(f"container web: pulsekeeper.{label}: ")
    assert words in str(complaint)
    assert found.monitors == []
    assert label == "url" or len(value) < 5 or value not in str(complaint)
    assert "web" in found.names or ("", URL) in found.urls  # what it created before stays


def test_several_monitors_of_an_object() -> None:
    labels = {"interval": "5m", "tags": "web", "a.url": URL, "b.url": f"{URL}b", "b.name": "Bee", "b.interval": "10m"}
    first, second = entries({**labels, "b.tags": "x"})
    assert first == {"name": "web: a", "url": URL, "type": "http", "interval_sec": 300, "tags": ["web"]}
    assert (second["name"], second["interval_sec"], second["tags"]) == ("Bee", 600, ["x"])
    third = entries({**labels, "url": f"{URL}c", "name": "Main"})
    assert [one["name"] for one in third] == ["web: a", "Bee", "Main"]


def test_an_invalid_monitor_does_not_stop_the_others() -> None:
    found = read({"a.url": URL, "a.interval": "x", "b.url": URL, "c.name": "C"})
    assert [one.entry["name"] for one in found.monitors] == ["web: b"]
    assert [complaint.label for complaint in found.complaints] == ["pulsekeeper.a.interval", "pulsekeeper.c.url"]
    assert found.names == {"web: a", "C"}


def test_two_spellings_of_one_setting() -> None:
    (complaint,) = read({"url": URL, "interval": "5m", "interval_sec": "300"}).complaints
    assert "sets the same as pulsekeeper.interval" in complaint.message


def test_labels_without_an_address() -> None:
    (complaint,) = read({"name": "x"}).complaints
    assert "no pulsekeeper.url" in str(complaint)


def test_addresses_of_routers() -> None:
    addresses = ["https://a.example/", "http://b.example/x"]
    first, second = entries({"interval": "5m"}, addresses=addresses)
    assert (first["name"], first["url"], first["interval_sec"]) == ("a.example", "https://a.example/", 300)
    assert second["name"] == "b.example/x"
    assert [one["name"] for one in entries({"name": "S"}, addresses=addresses)] == ["S: a.example", "S: b.example/x"]
    (only,) = entries({"name": "S", "path": "/health?x=1", "scheme": "http"}, addresses=addresses[:1])
    assert (only["name"], only["url"]) == ("S", "http://a.example/health?x=1")
    assert [one["url"] for one in entries({"url": URL}, addresses=addresses)] == [URL]
    assert entries({"ignore": "true"}, addresses=addresses) == []
    (complaint,) = read({"path": "health"}, addresses=addresses[:1]).complaints
    assert "must begin with /" in complaint.message


def test_namespaces_cannot_take_names_or_all_places() -> None:
    labels = {"pulsekeeper.url": URL, "pulsekeeper.name": "Shop"}
    other = Labelled(place="service b/x", name="x", labels=labels, namespace="b")
    found = read({"url": URL, "name": "Shop"}, other, namespace="a")
    assert [one.entry["name"] for one in found.monitors] == ["a/Shop", "b/Shop"]
    many = {f"m{number}.url": URL for number in range(5)}
    limited = read(many, other, namespace="a", limit=3)
    assert [one.entry["name"] for one in limited.monitors] == ["a/web: m0", "a/web: m1", "a/web: m2", "b/Shop"]
    assert {"a/web: m3", "a/web: m4"} <= limited.names
    assert "more than 3 monitors" in str(limited.complaints[0])


def test_a_misspelled_label_of_the_address_keeps_the_monitor() -> None:
    assert read({"ulr": URL}).names == {"web"}
    assert read({"ulr": URL, "name": "Shop"}).names == {"Shop"}
    assert read({"a..url": URL}).names == {"web: a"}
    assert read({"name": "Shop"}, namespace="n").names == {"n/Shop"}


def test_hosts_that_several_objects_share() -> None:
    first, second = (
        Labelled(place=f"ingress n/{name}", name=name, namespace="n", labels={}, addresses=[URL]) for name in "ab"
    )
    found = discover(Listing([first, second]), defaults={}, max_per_namespace=9)
    assert ([monitor.place for monitor in found.monitors], found.complaints) == (["ingress n/a"], [])


def test_more_hosts_than_an_object_may_have() -> None:
    found = read({}, addresses=[f"https://h{number}.example/" for number in range(60)])
    assert (len(found.monitors), len(found.names)) == (50, 10)
    assert "more than 50 hosts" in str(found.complaints[0])


def test_the_same_name_twice() -> None:
    other = Labelled(place="container zoo", name="zoo", labels={"pulsekeeper.url": URL, "pulsekeeper.name": "web"})
    found = read({"url": URL}, other)
    assert [one.place for one in found.monitors] == ["container web"]
    assert "named 'web' already, by container web" in str(found.complaints[0])


def test_limits_of_an_object() -> None:
    found = read({f"m{number:03}.url": URL for number in range(30)})
    assert (len(found.monitors), len(found.complaints), len(found.names)) == (20, 1, 10)
    found = read({f"m{number:03}.url": URL for number in range(3000)})
    assert (found.monitors, len(found.complaints) <= 2) == ([], True)


def test_defaults_of_options() -> None:
    defaults = parse_defaults(["interval=5m", "tags=cluster", "locations=loc_1, loc_2", "check-ssl=true"])
    (entry,) = entries({"url": URL, "check_ssl": "false", "tags": "web"}, defaults=defaults)
    assert entry["tags"] == ["cluster", "web"]
    assert (entry["interval_sec"], entry["check_ssl"], entry["locations"]) == (300, False, ["loc_1", "loc_2"])
    for wrong in ("interval", "url=https://x.example", "name=x", "speed=1", "interval=x", "request_headers=x"):
        with pytest.raises(ValueError, match=r"\w"):
            parse_defaults([wrong])

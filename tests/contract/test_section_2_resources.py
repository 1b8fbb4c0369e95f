"""Section 2, "Resources and their fields": every row of its tables.

Elsewhere: the connectors' three tables are in tests/api/test_connectors.py; rules and verdicts in their every case in
tests/checks/test_rules.py and test_verdict.py; the exact latency that is slow in tests/checks/test_verdict.py;
timings and TLS failures of every kind in tests/checks/test_probes.py and test_probes_tls.py; "domain_expires_at:
registration expiry from an RDAP lookup" in tests/api/test_domain_expiry.py.
"""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from accounts.models import User
from core.clock import to_ms, utc_now
from monitors.models import Monitor
from tests.api.client import Api
from tests.contract.driving import check_now, shown
from tests.factories import MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import keep_checked
from tests.site import Site
from tests.targets.certificates import Certificates
from tests.targets.server import Seen, TargetServer, answer, redirect

NUMBER = (int, float)
NULL = type(None)

# Field, types, whether null is one of them.
MONITOR: dict[str, tuple[tuple[type, ...], bool]] = {
    "id": ((str,), False),
    "name": ((str,), False),
    "type": ((str,), False),
    "url": ((str,), False),
    "method": ((str,), False),
    "interval_sec": ((int,), False),
    "slow_ms": ((int,), False),
    "timeout_ms": ((int,), False),
    "expect_status": ((int,), True),
    "follow_redirects": ((bool,), False),
    "check_ssl": ((bool,), False),
    "check_domain": ((bool,), False),
    "domain_expires_at": (NUMBER, True),
    "cert_expires_at": (NUMBER, True),
    "content_rules": ((list,), False),
    "request_headers": ((list,), False),
    "request_body": ((str,), True),
    # Settings of port, udp, ping and dns monitors.
    "request_body_encoding": ((str,), False),
    "packets": ((int,), False),
    "min_replies": ((int,), False),
    "records": ((list,), True),
    # Schedules.
    "schedule": ((str,), True),
    "timezone": ((str,), False),
    "missed": ((str,), False),
    "fail_threshold": ((int,), False),
    "confirmation_sec": ((int,), True),
    "locations": ((list,), False),
    "quorum": ((int,), True),
    "tags": ((list,), False),
    "depends_on": ((list,), False),
    "escalation_policy_id": ((str,), True),
    "recover_threshold": ((int,), False),
    "grace_sec": ((int,), False),
    "last_ping_at": (NUMBER, True),
    "muted_until": (NUMBER, True),
    "enabled": ((bool,), False),
    "project_id": ((str,), True),
    "status": ((str,), True),
    "status_since": (NUMBER, True),
    "last_latency_ms": (NUMBER, True),
    "last_connect_ms": (NUMBER, True),
    "last_ttfb_ms": (NUMBER, True),
    "uptime_24h": (NUMBER, True),
    "avg_latency_24h": (NUMBER, True),
    "last_checked_at": (NUMBER, True),
    "stale_since": (NUMBER, True),
    "stale_reason": ((str,), True),
    # Runs of jobs and their limits.
    "last_duration_ms": (NUMBER, True),
    "min_duration_sec": ((int,), True),
    "max_duration_sec": ((int,), True),
    "max_pings_per_hour": ((int,), True),
    # Verification of certificates.
    "tls_verify": ((bool,), False),
    "ca_certificate": ((str,), True),
}
TOKEN = ["access", "created_at", "expires_at", "id", "last_used_at", "name", "project_id"]
INPUT = [
    *("url", "name", "type", "method", "interval_sec", "grace_sec", "slow_ms", "timeout_ms", "expect_status"),
    *("follow_redirects", "check_ssl", "check_domain", "content_rules", "request_headers", "request_body"),
    *("request_body_encoding", "packets", "min_replies", "records"),
    *("schedule", "timezone", "missed", "min_duration_sec", "max_duration_sec", "max_pings_per_hour"),
    *("tls_verify", "ca_certificate"),
    *("fail_threshold", "confirmation_sec", "locations", "quorum", "recover_threshold", "project_id"),
    *("tags", "depends_on", "escalation_policy_id"),
]
JSON_RULE = {"type": "json_field", "path": "a"}
TEXT_RULE = {"type": "text_contains", "value": "o"}


def is_of(value: Any, types: tuple[type, ...], *, nullable: bool) -> bool:
    return (nullable and value is None) or (isinstance(value, types) and (bool in types or not isinstance(value, bool)))


def try_draft(api: Api, url: str, **given: Any) -> Any:
    answered = api.post("/v1/monitors/test", {"url": url, **given})
    assert answered.status == 200, answered.text
    return answered.json


def created(api: Api, **given: Any) -> Any:
    made = api.post("/v1/monitors", given)
    assert made.status == 201, made.text
    return made.json


# --- Monitor (response) ----------------------------------------------------------------------------------


def test_all_fields_are_always_present(live: Api, site: Site, owner: User) -> None:
    """All fields below are always present; nullable ones are null when noted."""
    monitors = [
        created(live, url=site.url("/ok")),
        created(live, url=site.url("/status/500"), project_id=ProjectFactory(owner=owner).public_id),
        created(live, type="heartbeat"),
        shown(live, MonitorFactory(owner=owner).public_id),
        live.patch(f"/v1/monitors/{MonitorFactory(owner=owner).public_id}", {"name": "x"}).json,
        live.post(f"/v1/monitors/{MonitorFactory(owner=owner).public_id}/mute", {"minutes": 1}).json,
        *live.get("/v1/monitors").json,
    ]
    for monitor in monitors:
        assert sorted(monitor) == sorted(MONITOR)
        wrong = {
            name: monitor[name]
            for name, (types, nullable) in MONITOR.items()
            if not is_of(monitor[name], types, nullable=nullable)
        }
        assert wrong == {}


def test_the_description_says_the_same_of_monitor(snapshot: Path) -> None:
    """All fields below are always present; nullable ones are null when noted."""
    described = json.loads(snapshot.read_text())["components"]["schemas"]["Monitor"]
    assert sorted(described["required"]) == sorted(described["properties"]) == sorted(MONITOR)
    nullable = {name for name, schema in described["properties"].items() if "null" in json.dumps(schema).lower()}
    assert nullable == {name for name, (_, null) in MONITOR.items() if null}


def test_nulls_before_the_first_check(api: Api, user: User) -> None:
    """null until looked up […] null until probed […] null until the first […] null if never set"""
    public_id = MonitorFactory(owner=user).public_id
    keep_checked(utc_now() + timedelta(hours=1))
    monitor = shown(api, public_id)
    nullable = {name for name, (_, nullable) in MONITOR.items() if nullable}
    assert {name for name, value in monitor.items() if value is None} == nullable


def test_timestamps_are_epoch_milliseconds(live: Api, site: Site) -> None:
    """Timestamps are epoch milliseconds (number) unless stated."""
    before = to_ms(utc_now())
    monitor = created(live, url=site.url("/ok"))
    assert before <= monitor["status_since"] <= monitor["last_checked_at"] <= to_ms(utc_now())
    until = live.post(f"/v1/monitors/{monitor['id']}/mute", {"minutes": 1}).json["muted_until"]
    assert before + 60_000 <= until <= to_ms(utc_now()) + 60_000


def test_all_id_values_are_strings(api: Api, user: User) -> None:
    """Format of identifiers (all `id` values are strings)."""
    project = ProjectFactory(owner=user)
    token = api.post("/v1/tokens", {"project_id": project.public_id, "name": "t"}).json
    ids = [MonitorFactory(owner=user).public_id, project.public_id, token["id"], token["project_id"]]
    assert [prefix for prefix, _, _ in (i.partition("_") for i in ids)] == ["mon", "prj", "tok", "prj"]
    assert len({*ids}) == 3


def test_type_lists_all_kinds(snapshot: Path) -> None:
    """one of http, keyword, api, heartbeat, scheduler, dns, port, ping, udp"""
    schemas = json.loads(snapshot.read_text())["components"]["schemas"]
    name = schemas["Monitor"]["properties"]["type"]["$ref"].rsplit("/", 1)[1]
    kinds = ["http", "keyword", "api", "heartbeat", "scheduler"]
    kinds += ["dns", "port", "ping", "udp"]
    assert sorted(schemas[name]["enum"]) == sorted(kinds)


def test_cert_expires_at(live: Api, targets: TargetServer, certificates: Certificates) -> None:
    """TLS certificate expiry; null until probed; read-only"""
    target = targets.serve([answer()], tls=certificates.self_signed())
    monitor = created(live, url=target.url("/"), check_ssl=True)
    assert monitor["cert_expires_at"] > to_ms(utc_now()), "also read if the check fails"
    patched = live.patch(f"/v1/monitors/{monitor['id']}", {"cert_expires_at": 5, "domain_expires_at": 5})
    assert patched.status == 200
    assert patched.json["cert_expires_at"] == monitor["cert_expires_at"]
    assert patched.json["domain_expires_at"] is None


def test_statistics_after_one_check(live: Api, site: Site) -> None:
    """uptime_24h: percent of time non-down over 24 hours; avg_latency_24h; last_latency_ms; last_checked_at"""
    up, down = created(live, url=site.url("/ok")), created(live, url=site.url("/status/500"))
    up, down = (shown(live, monitor["id"]) for monitor in (up, down))
    assert (up["uptime_24h"], down["uptime_24h"]) == (100.0, 0.0)
    assert (up["avg_latency_24h"], down["avg_latency_24h"]) == (up["last_latency_ms"], None)


def test_last_ping_at(api: Api) -> None:
    """heartbeat: last ping; null until the first"""
    monitor = created(api, type="heartbeat")
    before = to_ms(utc_now())
    Api().get(f"/v1/heartbeats/{monitor['id']}/ping")
    pinged = shown(api, monitor["id"])
    assert monitor["last_ping_at"] is None
    assert before <= pinged["last_ping_at"] <= to_ms(utc_now())


# --- ContentRule -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule",
    [
        {"value": "x"},
        {"type": "regex", "value": "x"},
        {"type": "text_contains"},
        {"type": "text_absent"},
        {"type": "text_contains", "path": "a"},
        {"type": "json_field"},
        {"type": "json_field", "value": "a"},
    ],
    ids=json.dumps,
)
def test_required_fields_of_a_rule(api: Api, rule: dict[str, Any]) -> None:
    """type: yes; value: for text rules; path: for json_field"""
    answered = api.post("/v1/monitors", {"url": "http://shop.example/", "content_rules": [rule]})
    assert (answered.status, answered.json["error"]) == (422, "validation_error")


def test_every_rule_must_pass(live: Api, site: Site) -> None:
    """Rule behaviour: every rule must pass."""
    good, bad = {"type": "text_contains", "value": "ok"}, {"type": "text_absent", "value": "ok"}
    assert try_draft(live, site.url("/ok"), content_rules=[good, good])["status"] == "up"
    assert try_draft(live, site.url("/ok"), content_rules=[good, bad])["status"] == "down"
    assert try_draft(live, site.url("/ok"), content_rules=[bad, good])["status"] == "down"


def test_value_is_a_literal(live: Api, targets: TargetServer) -> None:
    """literal to match"""
    target = targets.serve([answer(200, b"price: 5")])
    for value, status in (("price: .", "down"), ("price: 5", "up"), ("Price: 5", "down")):
        rule = {"type": "text_contains", "value": value}
        assert try_draft(live, target.url("/"), content_rules=[rule])["status"] == status


def test_path_is_walked_one_key_at_a_time(live: Api, targets: TargetServer) -> None:
    """dot path into the parsed JSON, walked one key at a time (for example a.b)"""
    target = targets.serve([answer(200, b'{"a": {"b": "c"}, "x.y": 1}')])
    for path, status in (("a.b", "up"), ("a", "up"), ("b", "down"), ("x.y", "down"), ("a.b.c", "down")):
        rule = {"type": "json_field", "path": path}
        assert try_draft(live, target.url("/"), content_rules=[rule])["status"] == status, path


def test_equals_omitted_is_a_presence_check(live: Api, targets: TargetServer) -> None:
    """json_field expected value; when omitted the rule is a presence check (field must exist)"""
    target = targets.serve([answer(200, b'{"a": null, "n": 5}')])
    rules = [{"type": "json_field", "path": "a"}, {"type": "json_field", "path": "n", "equals": "5"}]
    assert try_draft(live, target.url("/"), content_rules=rules)["status"] == "up"
    rules[1]["equals"] = "6"
    assert try_draft(live, target.url("/"), content_rules=rules)["status"] == "down"


def test_three_distinct_failure_verdicts(live: Api, targets: TargetServer) -> None:
    """three distinct failure verdicts: body is not JSON; field missing; field holds a different value"""
    details = []
    for body in (b"<html>", b'{"b": 1}', b'{"a": "other"}'):
        target = targets.serve([answer(200, body)])
        rule = {"type": "json_field", "path": "a", "equals": "wanted"}
        found = try_draft(live, target.url("/"), content_rules=[rule])
        assert (found["status"], found["http_status"]) == ("down", 200)
        details.append(found["detail"])
    assert len(set(details)) == 3
    assert all(details)


# --- HeaderInput, HeaderOut ------------------------------------------------------------------------------


def test_headers_are_sent_and_never_returned(live: Api, targets: TargetServer) -> None:
    """Values are write-only, stored encrypted, and never returned."""
    target = targets.serve([answer()])
    headers = [
        {"name": "X-Key", "value": "hunter2", "type": "apikey"},
        {"name": "X-Bearer", "value": "hunter2", "type": "bearer"},
        {"name": "X-Other", "value": "hunter2", "type": "custom"},
        {"name": "X-Empty"},
    ]
    made = live.post("/v1/monitors", {"url": target.url("/"), "request_headers": headers})
    assert "hunter2" not in made.text
    assert made.json["request_headers"] == [
        {"name": "X-Key", "type": "apikey"},
        {"name": "X-Bearer", "type": "bearer"},
        {"name": "X-Other", "type": "custom"},
        {"name": "X-Empty"},
    ]
    assert [target.seen[-1].header(n) for n in ("x-key", "x-bearer", "x-other")] == ["hunter2"] * 3
    assert "hunter2" not in str(Monitor.objects.values().get()), "stored encrypted"


def test_on_patch_omit_the_value_to_keep_the_stored_one(live: Api, targets: TargetServer) -> None:
    """plaintext; on PATCH, omit to keep the stored value"""
    target = targets.serve([answer()])
    headers = [{"name": "X-Kept", "value": "old"}, {"name": "X-New", "value": "old"}]
    monitor = created(live, url=target.url("/"), request_headers=headers)
    changed = [{"name": "x-kept", "type": "custom"}, {"name": "X-New", "value": "new"}]
    live.patch(f"/v1/monitors/{monitor['id']}", {"request_headers": changed})
    check_now(live, monitor["id"])
    assert (target.seen[-1].header("x-kept"), target.seen[-1].header("x-new")) == ("old", "new")


def test_stored_values_are_not_sent_to_another_server(live: Api, targets: TargetServer) -> None:
    """The answer to the PATCH says which values have to be given again; a Host that was dropped is the URL's."""
    home, away = targets.serve([answer()]), targets.serve([answer()])
    headers = [{"name": "X-Key", "value": "s3cret"}, {"name": "Host", "value": "shop.example"}]
    monitor = created(live, url=home.url("/"), request_headers=headers)
    assert home.seen[-1].header("x-key") == "s3cret"
    moved = live.patch(f"/v1/monitors/{monitor['id']}", {"url": away.url("/")})
    dropped = [{"name": "X-Key", "value_dropped": True}, {"name": "Host", "value_dropped": True}]
    assert moved.json["request_headers"] == dropped
    check_now(live, monitor["id"])
    assert away.seen[-1].header("x-key") in (None, "")
    assert away.seen[-1].header("host") == f"127.0.0.1:{away.port}"
    again = live.patch(f"/v1/monitors/{monitor['id']}", moved.json | {"url": home.url("/")})
    assert (again.status, again.json["request_headers"]) == (200, dropped), "what was read can be sent back"
    given = {"url": away.url("/"), "request_headers": [{"name": "X-Key", "value": "other"}]}
    assert live.patch(f"/v1/monitors/{monitor['id']}", given).json["request_headers"] == [{"name": "X-Key"}]
    check_now(live, monitor["id"])
    assert away.seen[-1].header("x-key") == "other"
    assert "s3cret" not in str([request.headers for request in away.seen])


def test_type_of_a_header_is_a_display_hint_only(live: Api, targets: TargetServer) -> None:
    """bearer, apikey, custom; display hint only"""
    target = targets.serve([answer()])
    try_draft(live, target.url("/"), request_headers=[{"name": "A", "value": "plain", "type": "bearer"}])
    assert target.seen[-1].header("a") == "plain", "nothing is put before it"
    assert target.seen[-1].header("authorization") is None


def test_a_header_needs_its_name(api: Api) -> None:
    """name | string | yes"""
    body = {"url": "http://shop.example/", "request_headers": [{"value": "x"}]}
    assert api.post("/v1/monitors", body).status == 422


# --- MonitorInput and MonitorPatch -----------------------------------------------------------------------


def test_fields_of_the_bodies(snapshot: Path) -> None:
    """MonitorPatch has the same fields as MonitorInput plus `enabled`. No field is marked required in the schema"""
    schemas = json.loads(snapshot.read_text())["components"]["schemas"]
    given = {name: schemas[name] for name in ("MonitorInput", "MonitorPatch")}
    assert sorted(given["MonitorInput"]["properties"]) == sorted(INPUT)
    assert sorted(given["MonitorPatch"]["properties"]) == sorted([*INPUT, "enabled"])
    assert "required" not in given["MonitorInput"]
    assert "required" not in given["MonitorPatch"]


@pytest.mark.parametrize("kind", ["http", "scheduler", "api", "keyword"])
@pytest.mark.parametrize("path", ["/v1/monitors", "/v1/monitors/test"])
def test_url_is_required(api: Api, kind: str, path: str) -> None:
    """required for http and scheduler; omit for heartbeat"""
    rules = {"api": [JSON_RULE], "keyword": [TEXT_RULE]}.get(kind, [])
    answered = api.post(path, {"type": kind, "content_rules": rules})
    assert answered.error.startswith("validation_error url")


DEFAULTS: dict[str, Any] = {
    "name": "Untitled",
    "type": "http",
    "method": "HEAD",
    "interval_sec": 60,  # the plan's minimum
    "grace_sec": 60,
    "slow_ms": 1500,
    "timeout_ms": 10000,
    "expect_status": None,
    "follow_redirects": False,
    "check_ssl": False,
    "check_domain": False,
    "content_rules": [],
    "request_headers": [],
    "request_body": None,
    "fail_threshold": 3,
    "recover_threshold": 1,
    "project_id": None,
    "enabled": True,
    "muted_until": None,
}


@pytest.mark.parametrize(
    ("given", "differing"),
    [
        ({}, {}),
        ({"type": "http"}, {}),
        ({"type": "scheduler"}, {"type": "scheduler", "method": "POST"}),
        ({"type": "api", "content_rules": [JSON_RULE]}, {"type": "api", "method": "GET", "content_rules": [JSON_RULE]}),
        (
            {"type": "keyword", "content_rules": [TEXT_RULE]},
            {"type": "keyword", "method": "GET", "content_rules": [TEXT_RULE]},
        ),
    ],
    ids=["none", "http", "scheduler", "api", "keyword"],
)
def test_defaults(live: Api, site: Site, given: dict[str, Any], differing: dict[str, Any]) -> None:
    """Field | Type | Default"""
    monitor = created(live, url=site.url("/ok"), **given)
    assert {name: monitor[name] for name in DEFAULTS} == DEFAULTS | differing


def test_defaults_of_a_heartbeat(api: Api) -> None:
    """grace_sec | integer | 60 | heartbeat only; extra seconds after interval_sec before 'down'"""
    monitor = created(api, type="heartbeat")
    wanted = {name: value for name, value in DEFAULTS.items() if name != "method"} | {"type": "heartbeat"}
    assert {name: monitor[name] for name in wanted} == wanted
    assert monitor["url"] == ""


def test_each_method_is_sent(live: Api, targets: TargetServer) -> None:
    """HEAD, GET, POST, PUT, PATCH, DELETE, OPTIONS."""
    target = targets.serve([answer()])
    for method in ("HEAD", "GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        assert created(live, url=target.url("/"), method=method)["method"] == method
        assert target.seen[-1].method == method


def test_head_is_forced_to_get_when_content_rules_are_set(live: Api, site: Site) -> None:
    """HEAD is forced to GET when content rules are set."""
    rule = {"type": "text_contains", "value": "ok"}
    assert created(live, url=site.url("/ok"), content_rules=[rule])["method"] == "GET"
    assert created(live, url=site.url("/ok"), content_rules=[rule], method="HEAD")["method"] == "GET"
    assert created(live, url=site.url("/ok"), content_rules=[rule], method="PUT")["method"] == "PUT"
    plain = created(live, url=site.url("/ok"))
    path = f"/v1/monitors/{plain['id']}"
    assert live.patch(path, {"content_rules": [rule]}).json["method"] == "GET"
    assert live.patch(path, {"method": "HEAD"}).json["method"] == "GET"
    assert try_draft(live, site.url("/ok"), content_rules=[rule], method="HEAD")["status"] == "up"


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS"])
@pytest.mark.parametrize("rules", [[], [TEXT_RULE]], ids=["plain", "with rules"])
def test_schedulers_reject_head_and_options(api: Api, user: User, method: str, rules: list[dict[str, Any]]) -> None:
    """Schedulers reject HEAD and OPTIONS and default to POST."""
    body = {"type": "scheduler", "url": "http://shop.example/", "method": method, "content_rules": rules}
    for path in ("/v1/monitors", "/v1/monitors/test"):
        answered = api.post(path, body)
        assert (answered.status, answered.error.split(":")[0]) == (422, "validation_error method")
    stored = MonitorFactory(owner=user, scheduler=True, content_rules=rules)
    assert api.patch(f"/v1/monitors/{stored.public_id}", {"method": method}).status == 422


@pytest.mark.parametrize(("kind", "rule"), [("api", JSON_RULE), ("keyword", TEXT_RULE)])
def test_the_api_style_check_never_uses_head(api: Api, user: User, kind: str, rule: dict[str, Any]) -> None:
    """the API-style check never uses HEAD"""
    stored = MonitorFactory(owner=user, type=kind, content_rules=[rule])
    path = f"/v1/monitors/{stored.public_id}"
    api.patch(path, {"method": "HEAD"})
    assert shown(api, stored.public_id)["method"] == "GET"
    answered = api.patch(path, {"content_rules": []})
    assert answered.status == 422, "it needs a rule"


@pytest.mark.parametrize(
    ("plan", "given", "stored"),
    [
        *[("free", given, stored) for given, stored in ((1, 300), (299, 300), (300, 300), (301, 301), (-5, 300))],
        *[("pro", given, stored) for given, stored in ((0, 60), (59, 60), (60, 60), (61, 61), (3600, 3600))],
    ],
)
def test_interval_is_floored_to_the_plan_minimum(db: None, plan: str, given: int, stored: int) -> None:
    """floored to the plan minimum: 300 on the free plan, 60 on the pro plan"""
    user = UserFactory(plan__name=plan)
    api = Api.signed_in(user)
    assert created(api, type="heartbeat", interval_sec=given)["interval_sec"] == stored
    path = f"/v1/monitors/{MonitorFactory(owner=user).public_id}"
    assert api.patch(path, {"interval_sec": given}).json["interval_sec"] == stored


@pytest.mark.parametrize(
    ("given", "stored"),
    [(-1, 1000), (0, 1000), (999, 1000), (1000, 1000), (1001, 1001), (60000, 60000), (60001, 60000), (10**12, 60000)],
)
def test_timeout_is_clamped(api: Api, given: int, stored: int) -> None:
    """clamped to the range 1000 to 60000"""
    assert created(api, type="heartbeat", timeout_ms=given)["timeout_ms"] == stored


def test_latency_at_or_above_slow_ms_is_slow(live: Api, site: Site) -> None:
    """latency >= this means 'slow'"""
    assert try_draft(live, site.url("/ok"), slow_ms=0)["status"] == "slow"
    assert try_draft(live, site.url("/ok"), slow_ms=60_000)["status"] == "up"


def test_expect_status(live: Api, targets: TargetServer) -> None:
    """exact status required; null or 0 means any 2xx/3xx"""
    target = targets.serve(lambda seen: [answer(int(seen.path[1:]))])
    for code in (200, 204, 299, 301, 304, 399):
        for given in ({}, {"expect_status": None}, {"expect_status": 0}, {"expect_status": code}):
            assert try_draft(live, target.url(f"/{code}"), **given)["status"] == "up", (code, given)
        assert try_draft(live, target.url(f"/{code}"), expect_status=201)["status"] == "down"
    for code in (400, 404, 500, 503):
        assert try_draft(live, target.url(f"/{code}"))["status"] == "down"
        assert try_draft(live, target.url(f"/{code}"), expect_status=code)["status"] == "up"
    monitor = created(live, url=target.url("/200"), expect_status=0)
    assert monitor["expect_status"] is None, "0 is stored as null"


def test_follow_redirects(live: Api, targets: TargetServer) -> None:
    """when off, a 3xx counts as reachable; when on, 3xx is followed and the final response is judged, […] not split"""
    routes = {"/to-ok": redirect("/ok"), "/to-bad": redirect("/bad"), "/ok": [answer()], "/bad": [answer(500)]}
    target = targets.serve(routes)
    off = try_draft(live, target.url("/to-bad"))
    assert (off["status"], off["http_status"]) == ("up", 302)
    assert (off["connect_ms"], off["ttfb_ms"]) != (None, None)
    on = try_draft(live, target.url("/to-bad"), follow_redirects=True)
    assert (on["status"], on["http_status"]) == ("down", 500)
    on = try_draft(live, target.url("/to-ok"), follow_redirects=True)
    assert (on["status"], on["http_status"], on["connect_ms"], on["ttfb_ms"]) == ("up", 200, None, None)


def test_check_ssl(live: Api, targets: TargetServer, certificates: Certificates) -> None:
    """reports certificate/TLS failure as a distinct SSL problem rather than a generic connection error"""
    target = targets.serve([answer()], tls=certificates.self_signed())
    on, off = (try_draft(live, target.url("/"), check_ssl=check_ssl) for check_ssl in (True, False))
    assert (on["status"], off["status"]) == ("down", "down")
    assert on["detail"].startswith("SSL problem: ")
    assert "SSL problem" not in off["detail"]


@pytest.mark.parametrize("method", ["HEAD", "GET", "OPTIONS"])
def test_request_body_is_rejected_without_a_method_for_it(api: Api, user: User, method: str) -> None:
    """only with POST, PUT, PATCH, DELETE (rejected with GET or HEAD)"""
    body = {"url": "http://shop.example/", "method": method, "request_body": "x"}
    for path in ("/v1/monitors", "/v1/monitors/test"):
        assert api.post(path, body).error.startswith("validation_error request_body")
    stored = MonitorFactory(owner=user, method="POST", request_body="x")
    assert api.patch(f"/v1/monitors/{stored.public_id}", {"method": method}).status == 422


def test_request_body_is_sent_with_every_scheduled_check(live: Api, targets: TargetServer) -> None:
    """sent with every scheduled check; content type is application/json unless a Content-Type header is configured"""
    target = targets.serve([answer()])
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        monitor = created(live, url=target.url("/"), method=method, request_body='{"é": 1}')
        check_now(live, monitor["id"])
        for request in target.seen[-2:]:
            assert (request.method, request.body.decode()) == (method, '{"é": 1}')
            assert [value for name, value in request.headers if name == "content-type"] == ["application/json"]
    headers = [{"name": "content-TYPE", "value": "text/csv"}]
    try_draft(live, target.url("/"), method="POST", request_body="a,b", request_headers=headers)
    assert [value for name, value in target.seen[-1].headers if name == "content-type"] == ["text/csv"]


def test_enabled_is_of_patch_only(api: Api, user: User) -> None:
    """enabled | boolean (patch only) | none | false pauses the monitor"""
    assert api.post("/v1/monitors", {"type": "heartbeat", "enabled": False}).status == 422
    path = f"/v1/monitors/{MonitorFactory(owner=user).public_id}"
    assert api.patch(path, {"enabled": False}).json["enabled"] is False


def test_project_id_is_an_id_from_the_projects_list(api: Api, user: User) -> None:
    """id of a project from the projects list"""
    ProjectFactory(owner=user)
    (listed,) = api.get("/v1/projects").json
    assert created(api, type="heartbeat", project_id=listed["id"])["project_id"] == listed["id"]


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("interval_sec", [60, 300, 600, 1800, 3600]),
        ("slow_ms", [500, 1000, 1500, 3000]),
        ("timeout_ms", [5000, 10000, 30000, 60000]),
        ("fail_threshold", [1, 2, 3, 4, 5]),
    ],
)
def test_suggested_values_are_kept(api: Api, user: User, field: str, values: list[int]) -> None:
    """Suggested values offered for tuning: interval 1m, 5m, 10m, 30m, 1h; slow threshold 0.5s, 1s, 1.5s, 3s; […]"""
    path = f"/v1/monitors/{MonitorFactory(owner=user).public_id}"
    assert [api.patch(path, {field: value}).json[field] for value in values] == values


def test_the_marketing_example(live: Api, targets: TargetServer) -> None:
    """The marketing example creates a monitor with type `api` and a json_field rule"""
    target = targets.serve([answer(200, b'{"status": "ok"}')])
    rule = {"type": "json_field", "path": "status", "equals": "ok"}
    monitor = created(live, type="api", url=target.url("/"), content_rules=[rule])
    assert (monitor["type"], monitor["status"], target.seen[-1].method) == ("api", "up", "GET")


# --- CheckResult, Token, Project, Error ------------------------------------------------------------------


def test_check_result(live: Api, site: Site) -> None:
    """All six fields are required. […] detail: null when up; the reason otherwise"""
    for path, slow_ms, status in (("/ok", 1500, "up"), ("/ok", 0, "slow"), ("/status/500", 1500, "down")):
        found = try_draft(live, site.url(path), slow_ms=slow_ms)
        assert sorted(found) == ["connect_ms", "detail", "http_status", "latency_ms", "status", "ttfb_ms"]
        assert (found["status"], found["detail"] is None) == (status, status == "up")
    site.stop()
    refused = try_draft(live, site.url("/ok"))
    assert (refused["status"], refused["http_status"], bool(refused["detail"])) == ("down", None, True)


def test_token_and_token_created(api: Api, user: User) -> None:
    """All Token fields plus `token` (string): the plaintext token, returned once at creation and never again."""
    body = {"project_id": ProjectFactory(owner=user).public_id, "name": "CI"}
    made = api.post("/v1/tokens", body).json
    assert sorted(made) == sorted([*TOKEN, "token"])
    assert (made["expires_at"], made["last_used_at"]) == (None, None), "null = never expires"
    Api(made["token"]).get("/v1/monitors")
    (listed,) = api.get("/v1/tokens").json
    assert sorted(listed) == TOKEN
    assert listed["last_used_at"] >= listed["created_at"]
    timed = api.post("/v1/tokens", {**body, "ttl_seconds": 60}).json
    assert timed["expires_at"] == timed["created_at"] + 60_000


def test_project(api: Api, user: User) -> None:
    """monitors | number | monitor count; list responses only; up, slow, down, unknown: per-project status counts"""
    made = api.post("/v1/projects", {"name": "Shop"}).json
    assert sorted(made) == ["created_at", "escalation_policy_id", "id", "name"]
    MonitorFactory(owner=user, project_id=made["id"])
    (listed,) = api.get("/v1/projects").json
    counts = {"monitors": 1, "up": 0, "slow": 0, "down": 0, "unknown": 1}
    assert listed == made | counts


def test_error(snapshot: Path) -> None:
    """error | string | yes; reason | string | no; limit | number | no"""
    described = json.loads(snapshot.read_text())["components"]["schemas"]["Error"]
    assert (sorted(described["properties"]), described["required"]) == (["error", "limit", "reason"], ["error"])


def test_a_scheduler_succeeds_by_2xx(live: Api, targets: TargetServer) -> None:
    """`scheduler`: […] a 2xx response means success."""

    def script(seen: Seen) -> list[bytes]:
        return [answer(int(seen.path[1:]))]

    target = targets.serve(script)
    for code, status in ((200, "up"), (204, "up"), (302, "down"), (500, "down")):
        assert created(live, type="scheduler", url=target.url(f"/{code}"))["status"] == status

"""Monitors over the API, with a real worker if the response waits for one."""

from __future__ import annotations

import ssl
from typing import Any

import pytest
import trustme
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from checks.results.models import CheckResult
from core.clock import to_ms, utc_now
from core.errors import MonitorLimit
from monitors.models import Monitor
from monitors.services import create_monitor, delete_monitor
from projects.access import Caller
from tests.api.client import Api
from tests.contract.test_section_2_resources import MONITOR
from tests.factories import MonitorFactory, PlanFactory, ProjectFactory, UserFactory
from tests.helpers import NOON, run_concurrently, state_of
from tests.site import Site
from tests.targets.server import TargetServer, answer


def test_creation_answers_with_the_first_check(worker: None, site: Site) -> None:
    api = Api.signed_in(UserFactory())
    before = to_ms(utc_now())
    made = api.post("/v1/monitors", {"url": site.url("/ok"), "name": "Shop", "interval_sec": 60})
    assert made.status == 201
    monitor = made.json
    assert sorted(monitor) == sorted(MONITOR)
    assert (monitor["status"], monitor["name"], monitor["enabled"]) == ("up", "Shop", True)
    assert before <= monitor["status_since"] == monitor["last_checked_at"] <= to_ms(utc_now())
    assert monitor["last_latency_ms"] >= monitor["last_ttfb_ms"] >= monitor["last_connect_ms"] >= 0
    assert monitor["avg_latency_24h"] == monitor["last_latency_ms"]
    assert CheckResult.objects.get().verdict == "up"
    assert api.get(f"/v1/monitors/{monitor['id']}").json["status"] == "up"


def test_a_first_check_that_fails_is_down_at_once(worker: None, site: Site) -> None:
    api = Api.signed_in(UserFactory())
    monitor = api.post("/v1/monitors", {"url": site.url("/status/500")}).json
    assert (monitor["status"], monitor["fail_threshold"]) == ("down", 3)
    assert CheckResult.objects.get().reason_code == "http_failure"


def test_every_field_comes_back_as_it_was_given(worker: None, site: Site) -> None:
    api = Api.signed_in(UserFactory())
    given: dict[str, Any] = {
        "url": site.url("/echo"),
        "name": "Naïve ☃",
        "type": "http",
        "method": "POST",
        "interval_sec": 90,
        "grace_sec": 5,
        "slow_ms": 900,
        "timeout_ms": 5000,
        "expect_status": 200,
        "follow_redirects": True,
        "check_ssl": True,
        "check_domain": True,
        "content_rules": [
            {"type": "text_contains", "value": "hunter2"},
            {"type": "json_field", "path": "method", "equals": "POST"},
            {"type": "json_field", "path": "body"},
        ],
        "request_headers": [{"name": "X-Key", "value": "hunter2", "type": "apikey"}, {"name": "X-Plain", "value": "p"}],
        "request_body": '{"a": 1}',
        "fail_threshold": 2,
        "recover_threshold": 4,
        "tags": ["Web", "Produktion ☃", "a" * 40],
    }
    made = api.post("/v1/monitors", given)
    assert made.status == 201
    shown = given | {"request_headers": [{"name": "X-Key", "type": "apikey"}, {"name": "X-Plain"}]}
    assert {name: made.json[name] for name in given} == shown
    assert made.json["status"] == "up", "the header and the body reached the target, or its echo would not match"
    again = api.patch(f"/v1/monitors/{made.json['id']}", made.json | {"name": "Other"})
    assert (again.status, again.json["name"]) == (200, "Other")
    assert Monitor.objects.get().full_config["request_headers"][0].value == "hunter2", (
        "sent back without values, they stay"
    )


def test_values_of_headers_are_neither_stored_in_clear_nor_answered(worker: None, site: Site) -> None:
    api = Api.signed_in(UserFactory())
    headers = [{"name": "Authorization", "value": "Bearer hunter2", "type": "bearer"}]
    made = api.post("/v1/monitors", {"url": site.url("/ok"), "request_headers": headers})
    listed = api.get("/v1/monitors")
    assert "hunter2" not in made.text + listed.text
    with connection.cursor() as cursor:
        cursor.execute("SELECT monitor::text FROM monitors_monitor AS monitor")
        assert "hunter2" not in cursor.fetchone()[0]


def test_a_draft_is_tested_and_nothing_is_saved(worker: None, site: Site) -> None:
    api = Api.signed_in(UserFactory())
    up = api.post("/v1/monitors/test", {"url": site.url("/ok"), "request_headers": [{"name": "X", "value": "y"}]})
    assert (up.status, up.json["status"], up.json["http_status"], up.json["detail"]) == (200, "up", 200, None)
    down = api.post("/v1/monitors/test", {"url": site.url("/status/503")})
    assert (down.json["status"], down.json["http_status"]) == ("down", 503)
    assert "503" in down.json["detail"]
    assert not Monitor.objects.exists()
    assert not CheckResult.objects.exists()


def test_a_draft_trusts_an_authority_of_its_own(worker: None) -> None:
    own, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.issue_cert("127.0.0.1").configure_cert(context)
    api = Api.signed_in(UserFactory())
    with TargetServer() as targets:
        draft = {"url": targets.serve([answer()], tls=context).url(), "check_ssl": True}
        refused = api.post("/v1/monitors/test", draft).json
        assert (refused["status"], "CA certificate (ca_certificate)" in refused["detail"]) == ("down", True)
        for given in ({"ca_certificate": own.cert_pem.bytes().decode()}, {"tls_verify": False, "check_ssl": False}):
            assert api.post("/v1/monitors/test", draft | given).json["status"] == "up"


def test_a_slow_target_is_waited_for_until_its_timeout(worker: None, site: Site) -> None:
    """Longer than the 5 s after which redis-py by default treats a silent broker as dead."""
    answer = Api.signed_in(UserFactory()).post("/v1/monitors/test", {"url": site.url("/hang"), "timeout_ms": 6000})
    assert (answer.status, answer.json["status"], answer.json["http_status"]) == (200, "down", None)
    assert "6000 ms" in answer.json["detail"]


BAD_BODIES = [
    ({}, "url"),
    ([], ""),
    ("text", ""),
    ({"url": 5}, "url"),
    ({"url": None}, "url"),
    ({"url": "http://169.254.169.254/latest"}, "url"),
    ({"url": "http://[::ffff:10.0.0.1]/"}, "url"),
    ({"url": "http://0xa000001/"}, "url"),
    ({"interval_sec": "60"}, "interval_sec"),
    ({"interval_sec": 60.0}, "interval_sec"),
    ({"interval_sec": True}, "interval_sec"),
    ({"interval_sec": None}, "interval_sec"),
    ({"timeout_ms": "1000"}, "timeout_ms"),
    ({"slow_ms": -1}, "slow_ms"),
    ({"slow_ms": 2**31}, "slow_ms"),
    ({"slow_ms": 2**70}, "slow_ms"),
    ({"grace_sec": -1}, "grace_sec"),
    ({"fail_threshold": 0}, "fail_threshold"),
    ({"recover_threshold": 0}, "recover_threshold"),
    ({"confirmation_sec": -1}, "confirmation_sec"),
    ({"confirmation_sec": 3_601}, "confirmation_sec"),
    ({"confirmation_sec": 1.5}, "confirmation_sec"),
    ({"confirmation_sec": "60"}, "confirmation_sec"),
    ({"locations": []}, "locations"),
    ({"locations": None}, "locations"),
    ({"locations": "default"}, "locations"),
    ({"locations": [5]}, "locations[0]"),
    ({"locations": ["default", "default"]}, "locations"),
    ({"locations": ["nowhere"]}, "locations"),
    ({"locations": [f"loc_{number}" for number in range(17)]}, "locations"),
    ({"quorum": 0}, "quorum"),
    ({"quorum": 2}, "quorum"),
    ({"quorum": "1"}, "quorum"),
    ({"tags": None}, "tags"),
    ({"tags": "web"}, "tags"),
    ({"tags": [5]}, "tags[0]"),
    ({"tags": [None]}, "tags[0]"),
    ({"tags": ["web", ""]}, "tags[1]"),
    ({"tags": ["web", " "]}, "tags[1]"),
    ({"tags": ["a,b"]}, "tags[0]"),
    ({"tags": ["a\nb"]}, "tags[0]"),
    ({"tags": ["a\x00b"]}, "tags[0]"),
    ({"tags": ["a\x85b"]}, "tags[0]"),
    ({"tags": ["a" * 41]}, "tags[0]"),
    ({"tags": ["web", "web"]}, "tags"),
    ({"tags": ["Web", "web "]}, "tags"),
    ({"tags": ["\u00c4", "a\u0308"]}, "tags"),
    ({"tags": [str(number) for number in range(21)]}, "tags"),
    ({"expect_status": "200"}, "expect_status"),
    ({"expect_status": -1}, "expect_status"),
    ({"follow_redirects": 1}, "follow_redirects"),
    ({"check_ssl": "true"}, "check_ssl"),
    ({"name": 5}, "name"),
    ({"name": "a\x00b"}, "name"),
    ({"name": "a" * 201}, "name"),
    ({"type": "snmp"}, "type"),
    ({"type": ["http"]}, "type"),
    ({"method": "TRACE"}, "method"),
    ({"method": "get"}, "method"),
    ({"content_rules": {}}, "content_rules"),
    ({"content_rules": [5]}, "content_rules[0]"),
    ({"content_rules": [{"type": "regex", "value": "x"}]}, "content_rules[0].type"),
    ({"content_rules": [{"type": "text_contains", "value": "x" * 257}]}, "content_rules[0].value"),
    ({"content_rules": [{"type": "json_field", "path": "x" * 129}]}, "content_rules[0].path"),
    ({"content_rules": [{"type": "json_field", "path": "a", "equals": 5}]}, "content_rules[0].equals"),
    ({"content_rules": [{"type": "json_field", "path": "a", "wanted": "5"}]}, "content_rules[0].wanted"),
    ({"request_headers": [{"value": "x"}]}, "request_headers[0].name"),
    ({"request_headers": [{"name": "Host", "type": "cookie"}]}, "request_headers[0].type"),
    ({"request_body": {"a": 1}, "method": "POST"}, "request_body"),
    ({"request_body": "x"}, "request_body"),
    ({"project_id": "prj_nothere"}, "project_id"),
    ({"project_id": 5}, "project_id"),
    ({"enabled": True}, "enabled"),
    ({"status": "up"}, "status"),
    ({"colour": "red"}, "colour"),
]


@pytest.mark.parametrize("path", ["/v1/monitors", "/v1/monitors/test"])
@pytest.mark.parametrize(("body", "field"), BAD_BODIES, ids=lambda value: str(value)[:40])
def test_bad_input_is_422_and_names_the_field(api: Api, path: str, body: Any, field: str) -> None:
    if isinstance(body, dict) and body:
        body = {"url": "http://shop.example/"} | body
    answer = api.post(path, body)
    assert answer.status == 422
    assert answer.error.startswith(f"validation_error {field}")
    assert not Monitor.objects.exists()


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b'{"url": NaN}',
        b'{"name": "\\ud800"}',
        b"\xff\xfe",
        b"[" * 5000,
        b'{"slow_ms": ' + b"9" * 5000 + b"}",
    ],
    ids=["empty", "cut short", "NaN", "lone surrogate", "not UTF-8", "deep nesting", "endless number"],
)
def test_what_is_not_json_is_422(api: Api, raw: bytes) -> None:
    assert api.send("post", "/v1/monitors", raw).status == 422


def test_patch_changes_what_is_given_and_nothing_else(api: Api, user: User) -> None:
    monitor = MonitorFactory(owner=user, up=True, name="Old", slow_ms=700)
    answer = api.patch(f"/v1/monitors/{monitor.public_id}", {"name": "New"})
    assert (answer.status, answer.json["name"], answer.json["slow_ms"], answer.json["status"]) == (
        200,
        "New",
        700,
        "up",
    )


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"interval_sec": None}, "interval_sec"),
        ({"url": ""}, "url"),
        ({"method": "HEAD", "request_body": "x"}, "request_body"),
        ({"type": "heartbeat"}, "type"),
        ({"enabled": None}, "enabled"),
        ({"enabled": "false"}, "enabled"),
        ({"nope": 1}, "nope"),
    ],
)
def test_bad_patch_changes_nothing(api: Api, user: User, given: dict[str, Any], field: str) -> None:
    monitor = MonitorFactory(owner=user, up=True)
    answer = api.patch(f"/v1/monitors/{monitor.public_id}", {"name": "New"} | given)
    assert answer.status == 422
    assert field in answer.error
    assert Monitor.objects.get().name == "Untitled"


def test_pause_and_resume(api: Api, user: User) -> None:
    monitor = MonitorFactory(owner=user, up=True)
    path = f"/v1/monitors/{monitor.public_id}"
    paused = api.patch(path, {"enabled": False})
    assert (paused.json["enabled"], paused.json["status"]) == (False, "up")
    assert state_of(monitor).next_due_at is None
    assert api.patch(path, {"enabled": True}).json["enabled"] is True
    due = state_of(monitor).next_due_at
    assert due is not None
    assert due <= utc_now()


def test_delete(api: Api, user: User) -> None:
    monitor = MonitorFactory(owner=user, up=True)
    path = f"/v1/monitors/{monitor.public_id}"
    assert api.delete(path).json == {"ok": True}
    assert api.delete(path).status == api.get(path).status == api.patch(path, {"name": "x"}).status == 404


@pytest.mark.django_db(transaction=True)
def test_deleted_by_two_at_once_is_found_by_one() -> None:
    user = UserFactory()
    monitor = MonitorFactory(owner=user, up=True)
    outcomes = run_concurrently(*[lambda: delete_monitor(Caller(user), monitor.public_id)] * 2)
    assert sorted(str(type(outcome).__name__) for outcome in outcomes) == ["NoneType", "NotFound"]


def test_lists_own_monitors_and_those_of_projects(user: User) -> None:
    owner, stranger = UserFactory(), UserFactory()
    shared = ProjectFactory(owner=owner, member=user)
    mine = MonitorFactory(owner=user)
    MonitorFactory(owner=owner)
    in_project = MonitorFactory(owner=owner, project=shared)
    listed = Api.signed_in(user).get("/v1/monitors").json
    assert [m["id"] for m in listed] == [mine.public_id, in_project.public_id]
    assert listed[1]["project_id"] == shared.public_id
    by_token = Api.with_token(user, shared).get("/v1/monitors").json
    assert [m["id"] for m in by_token] == [in_project.public_id]
    assert Api.signed_in(stranger).get("/v1/monitors").json == []


def test_a_monitor_of_another_account_is_not_found(user: User) -> None:
    monitor = MonitorFactory(owner=UserFactory())
    outside = MonitorFactory(owner=user)
    token = Api.with_token(user, ProjectFactory(owner=user))
    for caller, other in ((Api.signed_in(user), monitor), (token, monitor), (token, outside)):
        path = f"/v1/monitors/{other.public_id}"
        assert [caller.get(path).status, caller.patch(path, {"bad": 1}).status, caller.delete(path).status] == [404] * 3


def test_project_token_creates_in_its_project_only(worker: None, site: Site) -> None:
    owner = UserFactory()
    project, other = ProjectFactory(owner=owner), ProjectFactory(owner=owner)
    token = Api.with_token(owner, project)
    made = token.post("/v1/monitors", {"url": site.url("/ok")})
    assert (made.status, made.json["project_id"]) == (201, project.public_id)
    assert token.post("/v1/monitors", {"url": site.url("/ok"), "project_id": other.public_id}).status == 422
    assert token.patch(f"/v1/monitors/{made.json['id']}", {"project_id": None}).status == 422


def test_floor_is_that_of_the_project_owners_plan(api: Api, user: User) -> None:
    project = ProjectFactory(owner=UserFactory(plan__name="free"), member=user)
    monitor = MonitorFactory(owner=user)
    path = f"/v1/monitors/{monitor.public_id}"
    assert api.patch(path, {"interval_sec": 1}).json["interval_sec"] == 60
    assert api.patch(path, {"project_id": project.public_id}).json["interval_sec"] == 300


def test_monitor_limit(api: Api, user: User) -> None:
    user.plan = PlanFactory(monitor_limit=1)
    user.save(update_fields=["plan"])
    MonitorFactory(owner=user)
    answer = api.post("/v1/monitors", {"url": "http://shop.example/"})
    assert (answer.status, answer.json["error"], answer.json["limit"]) == (403, "monitor_limit", 1)


@pytest.mark.django_db(transaction=True)
def test_the_cap_holds_under_concurrent_creation() -> None:
    user = UserFactory()
    user.plan = PlanFactory(monitor_limit=3)
    user.save(update_fields=["plan"])
    outcomes = run_concurrently(*[lambda: create_monitor(Caller(user), {"url": "http://shop.example/"}, now=NOON)] * 8)
    assert sum(isinstance(outcome, MonitorLimit) for outcome in outcomes) == 5
    assert Monitor.objects.count() == 3


def test_pages(api: Api, user: User) -> None:
    ids = [MonitorFactory(owner=user).public_id for _ in range(5)]
    path, seen = "/v1/monitors?limit=2", []
    while path:
        page = api.get(path)
        seen.append([m["id"] for m in page.json])
        link = page.headers.get("Link", "")
        assert not link or link.endswith('>; rel="next"')
        path = link.removesuffix('>; rel="next"').removeprefix("<http://testserver")
    assert seen == [ids[:2], ids[2:4], ids[4:]]


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=x", "limit=1001", "limit=٣", "cursor=x", "cursor=LTE=", "cursor=é"]
)
def test_bad_page(api: Api, query: str) -> None:
    answer = api.get(f"/v1/monitors?{query}")
    assert answer.status == 422
    assert query.split("=")[0] in answer.error


def test_the_list_takes_as_many_queries_for_thirty_as_for_one(api: Api, user: User) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert api.get("/v1/monitors").status == 200
        return len(captured)

    MonitorFactory(owner=user, up=True)
    queries()  # notes the session's use
    one = queries()
    project = ProjectFactory(owner=user)
    for _ in range(29):
        MonitorFactory(owner=user, up=True, project=project)
    assert queries() == one <= 7

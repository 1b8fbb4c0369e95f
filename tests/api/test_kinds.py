"""Heartbeat, scheduler, api and keyword monitors over the API, and mutes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from accounts.models import User
from checks.results.models import CheckResult
from core.clock import to_ms, utc_now
from monitors.models import Monitor
from tests.api.client import Api
from tests.factories import MonitorFactory, UserFactory
from tests.site import Site


def test_heartbeat(api: Api) -> None:
    made = api.post("/v1/monitors", {"type": "heartbeat", "interval_sec": 60})
    assert (made.status, made.json["status"], made.json["last_ping_at"], made.json["url"]) == (201, None, None, "")
    ping = f"/v1/heartbeats/{made.json['id']}/ping"
    before = to_ms(utc_now())
    for method in ("post", "get", "head"):
        assert Api().send(method, ping).status == 200
    assert Api().send("post", ping, "job done", content_type="text/plain").json == {"ok": True}
    seen = api.get(f"/v1/monitors/{made.json['id']}").json
    assert seen["status"] == "up"
    assert before <= seen["status_since"] <= seen["last_ping_at"] == seen["last_checked_at"] <= to_ms(utc_now())
    again = api.patch(f"/v1/monitors/{made.json['id']}", seen)
    assert again.status == 200, "what was read can be sent back"


def test_ping_of_what_is_no_heartbeat(user: User) -> None:
    monitor = MonitorFactory(owner=user)
    for name in (monitor.public_id, "mon_nothere", "mon_%00"):
        answer = Api().post(f"/v1/heartbeats/{name}/ping")
        assert (answer.status, answer.json["error"]) == (404, "not_found")


def test_a_heartbeat_draft_has_nothing_to_test(api: Api) -> None:
    answer = api.post("/v1/monitors/test", {"type": "heartbeat"})
    assert (answer.status, answer.error.startswith("validation_error type")) == (422, True)


def test_creating_a_scheduler_fires_it_once(worker: None, site: Site) -> None:
    api = Api.signed_in(UserFactory())
    body = {"type": "scheduler", "url": site.url("/echo"), "request_body": '{"run": true}'}
    rule = {"type": "json_field", "path": "method", "equals": "POST"}
    made = api.post("/v1/monitors", body | {"content_rules": [rule, {"type": "text_contains", "value": "Run-Id"}]})
    assert (made.status, made.json["status"], made.json["method"]) == (201, "up", "POST")
    assert site.requests == 1
    tested = api.post("/v1/monitors/test", body)
    assert (tested.json["status"], site.requests) == ("up", 2), "testing a draft fires it, too"


@pytest.mark.parametrize(("status", "expected"), [(204, "up"), (302, "down"), (404, "down")])
def test_2xx_alone_is_success_of_a_scheduler(worker: None, site: Site, status: int, expected: str) -> None:
    api = Api.signed_in(UserFactory())
    made = api.post("/v1/monitors", {"type": "scheduler", "url": site.url(f"/status/{status}")})
    assert made.json["status"] == expected
    strict = {"type": "scheduler", "url": site.url(f"/status/{status}"), "expect_status": status}
    assert api.post("/v1/monitors/test", strict).json["status"] == "up", "expect_status takes precedence"


def test_api_and_keyword_are_returned_as_given(worker: None, site: Site) -> None:
    api = Api.signed_in(UserFactory())
    echo = {"url": site.url("/echo")}
    rules = [{"type": "json_field", "path": "method", "equals": "GET"}]
    made = api.post("/v1/monitors", echo | {"type": "api", "content_rules": rules})
    assert (made.json["type"], made.json["method"], made.json["status"]) == ("api", "GET", "up")
    rules = [{"type": "text_absent", "value": "GET"}]
    made = api.post("/v1/monitors", echo | {"type": "keyword", "content_rules": rules})
    assert (made.json["type"], made.json["status"]) == ("keyword", "down")


@pytest.mark.parametrize(("minutes", "lasts"), [(1, 1), (10_080, 10_080), (10_081, 10_080), (10**30, 10_080)], ids=str)
def test_mute(api: Api, user: User, minutes: int, lasts: int) -> None:
    monitor = MonitorFactory(owner=user, up=True)
    path = f"/v1/monitors/{monitor.public_id}/mute"
    muted = api.post(path, {"minutes": minutes})
    assert muted.status == 200
    remaining = timedelta(milliseconds=muted.json["muted_until"] - to_ms(utc_now()))
    assert timedelta(minutes=lasts) - timedelta(seconds=30) < remaining <= timedelta(minutes=lasts)
    cleared = api.post(path, {"minutes": 0})
    assert (cleared.status, cleared.json["muted_until"]) == (200, None)


def test_a_mute_that_is_over_is_none(api: Api, user: User) -> None:
    monitor = MonitorFactory(owner=user)
    Monitor.objects.update(muted_until=utc_now())
    assert api.get(f"/v1/monitors/{monitor.public_id}").json["muted_until"] is None


@pytest.mark.parametrize("body", [{}, {"minutes": -1}, {"minutes": "5"}, {"minutes": 1.5}, {"minutes": None}, []])
def test_bad_mutes(api: Api, user: User, body: object) -> None:
    monitor = MonitorFactory(owner=user)
    answer = api.post(f"/v1/monitors/{monitor.public_id}/mute", body)
    assert answer.status == 422
    assert Monitor.objects.get().muted_until is None


def test_a_ping_is_stored_as_a_result(user: User) -> None:
    monitor = MonitorFactory(owner=user, heartbeat=True)
    Api().post(f"/v1/heartbeats/{monitor.public_id}/ping")
    result = CheckResult.objects.get()
    assert (result.monitor_id, result.verdict, result.latency_ms) == (monitor.pk, "up", None)

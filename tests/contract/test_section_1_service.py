"""Section 1, "What the service does".

Elsewhere: "connectors" are in tests/api/test_connectors.py; "a failed check opens an incident", alerts and maintenance
windows in tests/incidents and tests/alerts; status pages in tests/statuspages; the pages of the dashboard, which call
the same services, in tests/dashboard.
"""

from __future__ import annotations

from typing import Any

import pytest

from accounts.models import User
from checks.results.models import CheckResult
from tests.api.client import Api
from tests.contract.driving import check_now, pings_stop_for, shown
from tests.factories import MonitorFactory, PlanFactory, ProjectFactory, UserFactory
from tests.site import Site
from tests.targets.server import TargetServer, answer


def test_runs_checks_records_results_keeps_a_status(live: Api, site: Site) -> None:
    """The service runs checks against targets and records the result. It keeps a status for each […] monitor."""
    up, down = (live.post("/v1/monitors", {"url": site.url(p)}).json for p in ("/ok", "/status/500"))
    check_now(live, up["id"])
    assert CheckResult.objects.count() == 3
    assert {m["id"]: m["status"] for m in live.get("/v1/monitors").json} == {up["id"]: "up", down["id"]: "down"}


def test_http_polls_a_url_and_judges_the_response(live: Api, targets: TargetServer) -> None:
    """`http`: the service polls a URL and judges the response."""
    target = targets.serve([answer(200)])
    monitor = live.post("/v1/monitors", {"type": "http", "url": target.url("/a?b=c")}).json
    target.routes = [answer(500)]
    live.patch(f"/v1/monitors/{monitor['id']}", {"fail_threshold": 1})
    assert (monitor["status"], check_now(live, monitor["id"])["status"]) == ("up", "down")
    assert [(seen.method, seen.path) for seen in target.seen] == [("HEAD", "/a?b=c")] * 2


def test_heartbeat_goes_down_when_pings_stop(live: Api) -> None:
    """`heartbeat`: the customer's job calls the service on a schedule; the monitor goes down when pings stop."""
    monitor = live.post("/v1/monitors", {"type": "heartbeat", "interval_sec": 60}).json
    Api().post(f"/v1/heartbeats/{monitor['id']}/ping")
    assert shown(live, monitor["id"])["status"] == "up"
    assert pings_stop_for(live, monitor["id"], seconds=121)["status"] == "down"


def test_scheduler_calls_the_customers_url(live: Api, targets: TargetServer) -> None:
    """`scheduler`: the service calls the customer's URL on a schedule as a trigger; a 2xx response means success."""
    target = targets.serve([answer(204)])
    body = {"type": "scheduler", "url": target.url("/run"), "request_body": '{"job": 1}'}
    monitor = live.post("/v1/monitors", body).json
    assert (monitor["status"], check_now(live, monitor["id"])["status"]) == ("up", "up")
    assert [(seen.method, seen.path, seen.body) for seen in target.seen] == [("POST", "/run", b'{"job": 1}')] * 2
    runs = {seen.header("pulsekeeper-run-id") for seen in target.seen}
    assert len(runs) == 2, "each slot has its own run id"
    assert all(runs)


def test_an_api_style_check(live: Api, targets: TargetServer) -> None:
    """An API-style check parses a JSON body and asserts on a field at a dot path"""
    target = targets.serve([answer(200, b'{"db": {"state": "fine"}}')])
    rule = {"type": "json_field", "path": "db.state", "equals": "fine"}
    body: dict[str, Any] = {"type": "api", "url": target.url("/"), "content_rules": [rule]}
    monitor = live.post("/v1/monitors", body).json
    target.routes = [answer(200, b'{"db": {"state": "bad"}}')]
    live.patch(f"/v1/monitors/{monitor['id']}", {"fail_threshold": 1})
    assert (monitor["status"], check_now(live, monitor["id"])["status"]) == ("up", "down")


@pytest.mark.parametrize("kind", ["dns", "port", "ping", "udp"])
def test_planned_types(api: Api, kind: str) -> None:
    """dns, port and similar types are described as planned; they exist, with their own address schemes"""
    for path in ("/v1/monitors", "/v1/monitors/test"):
        answered = api.post(path, {"type": kind, "url": "http://shop.example/"})
        assert (answered.status, answered.error.split(":")[0]) == (422, "validation_error url")


def test_projects_group_monitors_and_bound_tokens(api: Api, user: User) -> None:
    """Monitors may be grouped in projects. A project-scoped token can operate on one project's resources only."""
    project = ProjectFactory(owner=user)
    grouped = MonitorFactory(owner=user, project=project)
    alone = MonitorFactory(owner=user)
    assert shown(api, grouped.public_id)["project_id"] == project.public_id
    token = Api.with_token(user, project)
    listed = [monitor["id"] for monitor in token.get("/v1/monitors").json]
    assert (listed, token.get(f"/v1/monitors/{alone.public_id}").status) == ([grouped.public_id], 404)


def test_the_creation_response_and_a_draft(live: Api, site: Site) -> None:
    """The creation response includes the result of the monitor's first check. A draft […] can be test-run"""
    made = live.post("/v1/monitors", {"url": site.url("/status/503")}).json
    found = live.post("/v1/monitors/test", {"url": site.url("/status/503")}).json
    assert (made["status"], found["status"], found["http_status"]) == ("down", "down", 503)
    assert len(live.get("/v1/monitors").json) == 1


@pytest.mark.parametrize(("plan", "floor"), [("free", 300), ("pro", 60)])
def test_project_tokens_on_every_plan(db: None, plan: str, floor: int) -> None:
    """Full API access with project tokens is available on every plan; plan limits still apply."""
    owner = UserFactory(plan__name=plan)
    token = Api.with_token(owner, ProjectFactory(owner=owner))
    made = token.post("/v1/monitors", {"type": "heartbeat", "interval_sec": 1})
    assert (made.status, made.json["interval_sec"]) == (201, floor)
    path = f"/v1/monitors/{made.json['id']}"
    assert [token.get(path).status, token.patch(path, {}).status, token.delete(path).status] == [200] * 3
    owner.plan = PlanFactory(monitor_limit=0)
    owner.save(update_fields=["plan"])
    assert token.post("/v1/monitors", {"type": "heartbeat"}).json["error"] == "monitor_limit"

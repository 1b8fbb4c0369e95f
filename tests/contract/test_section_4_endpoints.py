"""Section 4, "Endpoints": every row of its table, connectors aside, and its rules 2, 3, 4 and 6.

Elsewhere: every route for every caller is tested in tests/api/test_permissions.py; rules 1 and 5 and the rows of
connectors in tests/api/test_connectors.py; pagination ("not shown") in tests/api/test_monitors.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from accounts.models import User
from checks.results.models import CheckResult
from checks.spec import Verdict
from core.clock import to_ms, utc_now
from monitors.models import Monitor, MonitorState
from projects.models import Project
from tests.api.client import Api
from tests.contract.driving import shown
from tests.factories import MonitorFactory, ProjectFactory, UserFactory
from tests.site import Site
from tokens.models import ProjectToken

WEEK_MIN = 10_080


def test_get_monitors(api: Api, user: User) -> None:
    """GET | /v1/monitors | none | 200, array of Monitor (the caller's monitors)"""
    mine, _ = MonitorFactory(owner=user), MonitorFactory()
    listed = api.get("/v1/monitors")
    assert (listed.status, [monitor["id"] for monitor in listed.json]) == (200, [mine.public_id])
    assert listed.json == [shown(api, mine.public_id)]


def test_get_monitors_without_a_credential(api: Api) -> None:
    """200, array of Monitor"""
    assert api.get("/v1/monitors").json == []


def test_post_monitors(live: Api, site: Site) -> None:
    """POST | /v1/monitors | MonitorInput | 201, Monitor (includes the first check result)"""
    made = live.post("/v1/monitors", {"url": site.url("/ok")})
    assert (made.status, made.json["status"], site.requests) == (201, "up", 1)
    assert shown(live, made.json["id"])["last_checked_at"] == made.json["last_checked_at"]


def test_post_test(live: Api, site: Site) -> None:
    """POST | /v1/monitors/test | MonitorInput | 200, CheckResult; runs one check against the draft, saves nothing"""
    found = live.post("/v1/monitors/test", {"url": site.url("/ok")})
    assert (found.status, found.json["status"], site.requests) == (200, "up", 1)
    assert not Monitor.objects.exists()
    assert not CheckResult.objects.exists()


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "ftp://shop.example/"},
        {"url": "shop.example"},
        {"url": "http://user:password@shop.example/"},
        {"url": "http://10.0.0.1/"},
        {"request_headers": [{"name": "Bad Name", "value": "x"}]},
        {"request_headers": [{"name": "X", "value": "a\r\nInjected: b"}]},
        {"content_rules": [{"type": "json_field"}]},
    ],
    ids=str,
)
def test_the_test_endpoint_validates(api: Api, wrong: dict[str, Any]) -> None:
    """The test endpoint validates a URL, headers and rules before a monitor exists."""
    answered = api.post("/v1/monitors/test", {"url": "http://shop.example/"} | wrong)
    assert (answered.status, answered.json["error"]) == (422, "validation_error")
    assert next(iter(wrong)) in answered.json["reason"]


def test_patch_monitor_is_partial(api: Api, user: User) -> None:
    """PATCH | /v1/monitors/<id> | MonitorPatch (partial) | 200, Monitor"""
    monitor = MonitorFactory(owner=user, name="Old", slow_ms=700, up=True)
    before = shown(api, monitor.public_id)
    patched = api.patch(f"/v1/monitors/{monitor.public_id}", {"name": "New"})
    assert (patched.status, patched.json | {"uptime_24h": None}) == (200, before | {"name": "New", "uptime_24h": None})
    assert api.patch(f"/v1/monitors/{monitor.public_id}", {}).status == 200


def test_delete_monitor(api: Api, user: User) -> None:
    """DELETE | /v1/monitors/<id> | none | 200, {ok: boolean}"""
    path = f"/v1/monitors/{MonitorFactory(owner=user, up=True).public_id}"
    gone = api.delete(path)
    assert (gone.status, gone.json) == (200, {"ok": True})
    assert not Monitor.objects.exists()
    assert api.delete(path).status == 404


@pytest.mark.parametrize(
    ("given", "lasts"), [(1, 1), (WEEK_MIN, WEEK_MIN), (WEEK_MIN + 1, WEEK_MIN), (10**12, WEEK_MIN)]
)
def test_mute(api: Api, user: User, given: int, lasts: int) -> None:
    """POST | …/mute | {minutes: integer, required} | 200, Monitor; values are capped at 7 days"""
    before = to_ms(utc_now())
    muted = api.post(f"/v1/monitors/{MonitorFactory(owner=user).public_id}/mute", {"minutes": given})
    assert muted.status == 200
    assert before <= muted.json["muted_until"] - lasts * 60_000 <= to_ms(utc_now())


def test_mute_of_0_clears(api: Api, user: User) -> None:
    """`minutes` is an integer; 0 clears the mute"""
    path = f"/v1/monitors/{MonitorFactory(owner=user).public_id}/mute"
    for _ in range(2):
        api.post(path, {"minutes": 9})
        assert api.post(path, {"minutes": 0}).json["muted_until"] is None
    assert api.post(path, {"minutes": 0}).status == 200, "of what is not muted"


@pytest.mark.parametrize("body", [{}, {"minutes": -1}, {"minutes": 1.5}, {"minutes": "5"}, {"minutes": None}], ids=str)
def test_minutes_is_a_required_integer(api: Api, user: User, body: dict[str, Any]) -> None:
    """{minutes: integer, required}"""
    answered = api.post(f"/v1/monitors/{MonitorFactory(owner=user).public_id}/mute", body)
    assert (answered.status, answered.error.split(":")[0]) == (422, "validation_error minutes")
    assert Monitor.objects.get().muted_until is None


@pytest.mark.parametrize("method", ["post", "get", "head"])
def test_ping(api: Api, method: str) -> None:
    """POST or GET | /v1/heartbeats/<id>/ping | none | 200, {ok: boolean}; public, no token […] records last_ping_at"""
    monitor = api.post("/v1/monitors", {"type": "heartbeat"}).json
    before = to_ms(utc_now())
    pinged = Api().send(method, f"/v1/heartbeats/{monitor['id']}/ping")
    assert pinged.status == 200
    assert pinged.text == "" or pinged.json == {"ok": True}
    assert before <= shown(api, monitor["id"])["last_ping_at"] <= to_ms(utc_now())


def test_a_ping_needs_no_token_and_minds_none(api: Api) -> None:
    """public, no token"""
    monitor = api.post("/v1/monitors", {"type": "heartbeat"}).json
    ping = f"/v1/heartbeats/{monitor['id']}/ping"
    for token in (None, "garbage", "svc_" + "a" * 68, api.token):
        assert Api(token).post(ping).json == {"ok": True}
    assert Api().send("post", ping, "exit 0", content_type="text/plain").status == 200


@pytest.mark.parametrize("kind", ["http", "scheduler", "api", "keyword", "unknown", "project", "deleted"])
@pytest.mark.parametrize("method", ["post", "get", "head"])
def test_ping_of_what_is_no_heartbeat(api: Api, user: User, kind: str, method: str) -> None:
    """The heartbeat ping returns 404 when the id is not a heartbeat monitor or does not exist."""
    rules = {"api": [{"type": "json_field", "path": "a"}], "keyword": [{"type": "text_contains", "value": "a"}]}
    if kind == "project":
        name = ProjectFactory(owner=user).public_id
    elif kind == "unknown":
        name = "mon_aaaaaaaaaaaaaaaaaaaaaaaa"
    elif kind == "deleted":
        name = api.post("/v1/monitors", {"type": "heartbeat"}).json["id"]
        api.delete(f"/v1/monitors/{name}")
    else:
        name = MonitorFactory(owner=user, type=kind, content_rules=rules.get(kind, [])).public_id
    pinged = Api().send(method, f"/v1/heartbeats/{name}/ping")
    assert pinged.status == 404
    assert pinged.text == "" or pinged.json["error"] == "not_found"
    assert not MonitorState.objects.exclude(last_ping_at=None).exists()


def test_tokens(api: Api, user: User) -> None:
    """GET and POST /v1/tokens: 200, array of Token; 201, TokenCreated; DELETE /v1/tokens/<id>: 200, {ok: boolean}"""
    made = api.post("/v1/tokens", {"project_id": ProjectFactory(owner=user).public_id, "name": "CI"})
    listed = api.get("/v1/tokens")
    assert (made.status, listed.status, [t["id"] for t in listed.json]) == (201, 200, [made.json["id"]])
    revoked = api.delete(f"/v1/tokens/{made.json['id']}")
    assert (revoked.status, revoked.json, api.get("/v1/tokens").json) == (200, {"ok": True}, [])


@pytest.mark.parametrize(("role", "status"), [("owner", 201), ("admin", 201), ("member", 201), ("stranger", 400)])
def test_who_may_create_tokens(user: User, role: str, status: int) -> None:
    """project_id is required and the caller must be owner, admin or member of that project"""
    people = {"owner": user, "admin": UserFactory(), "member": UserFactory(), "stranger": UserFactory()}
    project = ProjectFactory(owner=user, admin=people["admin"], member=people["member"])
    api = Api.signed_in(people[role])
    made = api.post("/v1/tokens", {"project_id": project.public_id, "name": "t"})
    assert made.status == status
    assert ProjectToken.objects.count() == (status == 201)


@pytest.mark.parametrize(
    ("ttl", "status"),
    [(59, 422), (60, 201), (7_776_000, 201), (7_776_001, 422), (0, 422), (-60, 422), (None, 422), ("60", 422)],
)
def test_ttl_seconds(api: Api, user: User, ttl: Any, status: int) -> None:
    """ttl_seconds, when given, is between 60 and 7776000 seconds; when omitted the token never expires"""
    body = {"project_id": ProjectFactory(owner=user).public_id, "name": "t"}
    made = api.post("/v1/tokens", body | {"ttl_seconds": ttl})
    assert made.status == status
    if status == 201:
        assert made.json["expires_at"] - made.json["created_at"] == ttl * 1000
    assert api.post("/v1/tokens", body).json["expires_at"] is None


def test_name_of_a_token_is_required(api: Api, user: User) -> None:
    """name: string, required"""
    assert api.post("/v1/tokens", {"project_id": ProjectFactory(owner=user).public_id}).status == 422


def test_projects(api: Api, user: User) -> None:
    """200, array of Project with per-project status counts; PATCH: 200, {ok: boolean} (rename)"""
    made = api.post("/v1/projects", {"name": "Shop"})
    path = f"/v1/projects/{made.json['id']}"
    assert made.status == 201
    for first in (Verdict.UP, Verdict.UP, Verdict.SLOW, Verdict.DOWN, None):
        MonitorFactory(owner=user, first=first, project_id=made.json["id"], created_at=utc_now())
    MonitorFactory(owner=user, up=True)
    renamed = api.patch(path, {"name": "Store"})
    assert (renamed.status, renamed.json) == (200, {"ok": True})
    listed = api.get("/v1/projects")
    counts = {"monitors": 5, "up": 2, "slow": 1, "down": 1, "unknown": 1}
    assert (listed.status, listed.json) == (200, [made.json | counts | {"name": "Store"}])


@pytest.mark.parametrize("body", [{}, {"name": None}, {"name": ""}, {"name": 5}], ids=str)
def test_name_of_a_project_is_required(api: Api, user: User, body: dict[str, Any]) -> None:
    """{name: string, required}"""
    project = ProjectFactory(owner=user, name="Old")
    assert api.post("/v1/projects", body).status == 422
    if body:  # its policy can be changed alone
        assert api.patch(f"/v1/projects/{project.public_id}", body).status == 422
    assert [p.name for p in Project.objects.all()] == ["Old"]


def test_delete_project_detaches(api: Api, user: User) -> None:
    """200, {ok: boolean}; the project's monitors are detached, not deleted"""
    project = ProjectFactory(owner=user)
    monitor = MonitorFactory(owner=user, project=project, up=True)
    token = Api.with_token(user, project)
    gone = api.delete(f"/v1/projects/{project.public_id}")
    assert (gone.status, gone.json) == (200, {"ok": True})
    left = shown(api, monitor.public_id)
    assert (left["project_id"], left["status"]) == (None, "up")
    assert token.get("/v1/monitors").status == 401, "its tokens are revoked"


def test_openapi_json(db: None) -> None:
    """GET | /openapi.json | none | machine-readable description of the API, served by the API itself"""
    served = Api().get("/openapi.json")
    assert served.status == 200
    assert served.headers["Content-Type"].partition(";")[0] in ("application/json", "application/vnd.oai.openapi+json")
    assert served.json["openapi"].startswith("3.")


ROUTES = [
    ("get", "/v1/monitors"),
    ("post", "/v1/monitors"),
    ("post", "/v1/monitors/test"),
    ("patch", "/v1/monitors/{monitor_id}"),
    ("delete", "/v1/monitors/{monitor_id}"),
    ("post", "/v1/monitors/{monitor_id}/mute"),
    ("post", "/v1/heartbeats/{monitor_id}/ping"),
    ("get", "/v1/heartbeats/{monitor_id}/ping"),
    ("get", "/v1/tokens"),
    ("post", "/v1/tokens"),
    ("delete", "/v1/tokens/{token_id}"),
    ("post", "/v1/projects"),
    ("get", "/v1/projects"),
    ("patch", "/v1/projects/{project_id}"),
    ("delete", "/v1/projects/{project_id}"),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_every_row_is_described(db: None, method: str, path: str) -> None:
    """All paths are relative to {base_url}. `<id>` is a string path parameter."""
    operation = Api().get("/openapi.json").json["paths"][path][method]
    given = [p["schema"]["type"] for p in operation.get("parameters", []) if p["in"] == "path"]
    assert given == ["string"] * path.count("{")


@pytest.mark.parametrize(("method", "path"), [r for r in ROUTES if "heartbeats" not in r[1]])
def test_unless_stated_an_endpoint_requires_a_bearer_token(db: None, method: str, path: str) -> None:
    """Unless stated, an endpoint requires a Bearer token (section 5)."""
    answered = Api().send(method, path.replace("{", "").replace("}", ""), {})
    assert (answered.status, answered.json["error"]) == (401, "unauthorized")

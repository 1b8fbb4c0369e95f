"""Section 7, "Errors": every row of its table, connectors aside.

Elsewhere: connectors are tests/api/test_connectors.py; the shape of what Django itself refuses, unknown routes, 405,
413, 415 and crashes in tests/api/test_errors.py; 401 on every authenticated endpoint in test_section_4_endpoints.py and
tests/api/test_permissions.py; 422 for each field in tests/api/test_monitors.py and test_hostile_input.py.
"""

from __future__ import annotations

import re

import pytest

from accounts.models import User
from monitors.models import Monitor
from tests.api.client import Answer, Api
from tests.factories import MonitorFactory, PlanFactory, ProjectFactory, UserFactory
from tokens.models import ProjectToken


def is_error(answered: Answer, status: int, code: str) -> bool:
    """Error bodies are the Error object (error required; reason and limit optional)."""
    body = answered.json
    assert set(body) <= {"error", "reason", "limit"}
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", body["error"]), "a stable snake_case code"
    assert answered.headers["Content-Type"] == "application/json"
    return (answered.status, body["error"]) == (status, code)


@pytest.mark.parametrize("project_id", [None, ""], ids=["missing", "empty"])
def test_400_project_id_missing(api: Api, project_id: str | None) -> None:
    """400 | POST /v1/tokens | project_id missing"""
    body = {"name": "t"} | ({} if project_id is None else {"project_id": project_id})
    assert is_error(api.post("/v1/tokens", body), 400, "project_required")


def test_400_caller_not_permitted(api: Api, user: User) -> None:
    """400 | POST /v1/tokens | […] or caller not permitted on that project"""
    for project_id in (ProjectFactory().public_id, "prj_unknown", MonitorFactory(owner=user).public_id):
        answered = api.post("/v1/tokens", {"project_id": project_id, "name": "t"})
        assert is_error(answered, 400, "project_forbidden")
    assert not ProjectToken.objects.exists()


@pytest.mark.parametrize("token", [None, "garbage", "svc_" + "a" * 68, "ses_" + "a" * 68])
def test_401(db: None, token: str | None) -> None:
    """401 | all authenticated endpoints | missing or invalid token"""
    for path in ("/v1/monitors", "/v1/projects", "/v1/tokens", "/v1/monitors/mon_x"):
        assert is_error(Api(token).get(path), 401, "unauthorized")
    assert is_error(Api(token).post("/v1/monitors", "not even JSON"), 401, "unauthorized")


def test_403_monitor_limit(api: Api, user: User) -> None:
    """403 | POST /v1/monitors | monitor limit reached (error code `monitor_limit`; `limit` may carry the cap)"""
    user.plan = PlanFactory(monitor_limit=2)
    user.save(update_fields=["plan"])
    answers = [api.post("/v1/monitors", {"type": "heartbeat"}) for _ in range(3)]
    assert [answered.status for answered in answers] == [201, 201, 403]
    assert is_error(answers[2], 403, "monitor_limit")
    assert answers[2].json["limit"] == 2
    api.delete(f"/v1/monitors/{answers[0].json['id']}")
    assert api.post("/v1/monitors", {"type": "heartbeat"}).status == 201, "there is room again"


def test_403_a_project_token_was_used(user: User) -> None:
    """403 | POST /v1/tokens | a project token was used instead of a session token"""
    project = ProjectFactory(owner=user)
    body = {"project_id": project.public_id, "name": "t"}
    assert is_error(Api.with_token(user, project).post("/v1/tokens", body), 403, "session_required")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("get", "/v1/monitors/{}", None),
        ("patch", "/v1/monitors/{}", {"name": "x"}),
        ("delete", "/v1/monitors/{}", None),
        ("post", "/v1/monitors/{}/mute", {"minutes": 1}),
        ("delete", "/v1/tokens/{}", None),
        ("patch", "/v1/projects/{}", {"name": "x"}),
        ("delete", "/v1/projects/{}", None),
        ("post", "/v1/heartbeats/{}/ping", None),
        ("get", "/v1/heartbeats/{}/ping", None),
    ],
)
def test_404(api: Api, user: User, method: str, path: str, body: object) -> None:
    """404 | PATCH/DELETE monitor, mute, DELETE token, PATCH/DELETE project, […] heartbeat ping | not found"""
    stranger = UserFactory()
    foreign_project = ProjectFactory(owner=stranger)
    Api.with_token(stranger, foreign_project)
    foreign = MonitorFactory(owner=stranger, project=foreign_project)
    token = ProjectToken.objects.get()
    wrong_kind = ProjectFactory(owner=user) if "projects" not in path else MonitorFactory(owner=user)
    for name in ("mon_unknown", *(foreign.public_id, foreign_project.public_id, token.public_id, wrong_kind.public_id)):
        assert is_error(api.send(method, path.format(name), body), 404, "not_found"), name
    assert {Monitor.objects.get(pk=foreign.pk).name, ProjectToken.objects.get().name} == {"Untitled", "t"}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("post", "/v1/monitors", {"url": 5}),
        ("post", "/v1/monitors/test", {"url": 5}),
        ("patch", "/v1/monitors/{monitor}", {"url": 5}),
        ("post", "/v1/monitors/{monitor}/mute", {"minutes": "1"}),
        ("post", "/v1/tokens", {"project_id": "{project}", "name": 5}),
        ("post", "/v1/projects", {"name": 5}),
        ("patch", "/v1/projects/{project}", {"name": 5}),
        ("get", "/v1/monitors?limit=x", None),
        ("get", "/v1/tokens?limit=x", None),
        ("get", "/v1/projects?cursor=x", None),
    ],
)
def test_422(api: Api, user: User, method: str, path: str, body: dict[str, object] | None) -> None:
    """422 | every authenticated endpoint | validation error"""
    project = ProjectFactory(owner=user)
    monitor = MonitorFactory(owner=user, up=True)
    path = path.format(monitor=monitor.public_id, project=project.public_id)
    if body and body.get("project_id"):
        body = body | {"project_id": project.public_id}
    answered = api.send(method, path, body)
    assert is_error(answered, 422, "validation_error")
    assert answered.json["reason"], "a sentence for a person"
    if body is not None:
        assert is_error(api.send(method, path, "{"), 422, "validation_error"), "malformed JSON, too"

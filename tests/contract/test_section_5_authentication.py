"""Section 5, "Authentication", and the token lifecycle of section 3.

Elsewhere: sessions themselves ("how it is obtained: not shown") are in tests/api/test_credentials.py;
what each route answers to each kind of caller is tests/api/test_permissions.py; that header values are write-only
and encrypted (5.6) is in test_section_2_resources.py; the public ping (5.7) in test_section_4_endpoints.py.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
import time_machine
from django.db import connection
from django.test import Client

from accounts.models import User
from core.clock import utc_now
from monitors.models import Monitor
from projects.models import Project
from tests.api.client import Api
from tests.factories import MonitorFactory, ProjectFactory
from tokens.models import ProjectToken

BODY = {"url": "http://shop.example/"}


def issue(api: Api, project: Project, **given: object) -> Api:
    made = api.post("/v1/tokens", {"project_id": project.public_id, "name": "t", **given})
    assert made.status == 201
    return Api(made.json["token"])


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_scheme(api: Api, scheme: str) -> None:
    """Scheme: HTTP Bearer. Header `Authorization: Bearer <API_KEY>`. (The scheme's case is free: RFC 9110.)"""
    answered = Client().get("/v1/monitors", headers={"Authorization": f"{scheme} {api.token}"})
    assert answered.status_code == 200


@pytest.mark.parametrize(
    "header",
    [
        *("", "Bearer", "Bearer ", "Bearer svc_", "Bearer ses_", "Basic {token}", "Token {token}", "{token}"),
        *("Bearer {token}x", "Bearer {token} {token}", "Bearer x{token}", "Bearer {shortened}", "Bearer {upper}"),
    ],
)
def test_missing_or_invalid(api: Api, header: str) -> None:
    """A missing or invalid token yields 401."""
    token = str(api.token)
    header = header.format(token=token, shortened=token[:-1], upper=token.upper())
    answered = Client().get("/v1/monitors", headers={"Authorization": header} if header else {})
    assert (answered.status_code, answered.json()["error"]) == (401, "unauthorized")
    assert answered.headers["WWW-Authenticate"].startswith("Bearer")


def test_accepted_credentials(api: Api, user: User) -> None:
    """a personal/project access token (a string starting with a fixed service prefix […]) or an app session token"""
    token = issue(api, ProjectFactory(owner=user))
    assert str(token.token).startswith("svc_")
    assert str(api.token).startswith("ses_")
    assert [caller.get("/v1/monitors").status for caller in (api, token)] == [200, 200]


def test_a_token_reads_and_writes_its_own_project_only(api: Api, user: User) -> None:
    """A token is scoped to exactly one project and can read and write only that project's monitors and resources"""
    own, other = ProjectFactory(owner=user), ProjectFactory(owner=user)
    token = issue(api, own)
    inside = MonitorFactory(owner=user, project=own)
    for outside in (MonitorFactory(owner=user, project=other), MonitorFactory(owner=user), MonitorFactory()):
        path = f"/v1/monitors/{outside.public_id}"
        answers = [
            token.get(path),
            token.patch(path, {"name": "x"}),
            token.post(f"{path}/mute", {"minutes": 1}),
            token.delete(path),
        ]
        assert [answered.status for answered in answers] == [404] * 4
    path = f"/v1/monitors/{inside.public_id}"
    assert [monitor["id"] for monitor in token.get("/v1/monitors").json] == [inside.public_id]
    assert token.patch(path, {"name": "new"}).json["name"] == "new"
    assert token.post(f"{path}/mute", {"minutes": 1}).status == 200
    made = token.post("/v1/monitors", {"type": "heartbeat"})
    assert (made.status, made.json["project_id"]) == (201, own.public_id)
    assert token.delete(path).status == 200
    assert Monitor.objects.filter(name="Untitled").count() == 4, "nothing outside has changed"


@pytest.mark.parametrize("body", [{"project_id": None}, {"project_id": "OTHER"}, {"project_id": "FOREIGN"}], ids=str)
def test_a_token_moves_nothing_out_of_its_project(api: Api, user: User, body: dict[str, str | None]) -> None:
    """scoped to exactly one project"""
    own = ProjectFactory(owner=user)
    ids = {"OTHER": ProjectFactory(owner=user).public_id, "FOREIGN": ProjectFactory().public_id}
    given = {"project_id": ids.get(str(body["project_id"]))}
    token = issue(api, own)
    monitor = MonitorFactory(owner=user, project=own)
    for answered in (
        token.post("/v1/monitors", {"type": "heartbeat"} | given),
        token.patch(f"/v1/monitors/{monitor.public_id}", given),
    ):
        assert (answered.status, answered.error.split(":")[0]) == (422, "validation_error project_id")
    assert Monitor.objects.get().project == own


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("get", "/v1/tokens"),
        ("delete", "/v1/tokens/{token}"),
        ("get", "/v1/projects"),
        ("post", "/v1/projects"),
        ("patch", "/v1/projects/{project}"),
        ("delete", "/v1/projects/{project}"),
        ("get", "/v1/account"),
        ("patch", "/v1/account"),
        ("delete", "/v1/sessions/current"),
    ],
)
def test_account_level_endpoints_reject_a_project_token(api: Api, user: User, method: str, path: str) -> None:
    """account-level endpoints reject it"""
    project = ProjectFactory(owner=user)
    token = issue(api, project)
    named = path.format(project=project.public_id, token=ProjectToken.objects.get().public_id)
    answered = token.send(method, named, {"name": "x"})
    assert (answered.status, answered.json["error"]) == (403, "session_required")
    assert (Project.objects.get().name, ProjectToken.objects.count()) == (project.name, 1)


@pytest.mark.parametrize("body", [{}, {"project_id": "OWN", "name": "x"}, {"bad": 1}, "no JSON"], ids=str)
def test_a_token_creates_no_token(api: Api, user: User, body: object) -> None:
    """POST /v1/tokens accepts only a session token; with a project token it returns 403."""
    project = ProjectFactory(owner=user)
    if isinstance(body, dict) and "project_id" in body:
        body = body | {"project_id": project.public_id}
    answered = issue(api, project).post("/v1/tokens", body)
    assert (answered.status, answered.json["error"]) == (403, "session_required")
    assert ProjectToken.objects.count() == 1


def test_the_plaintext_is_returned_once(api: Api, user: User) -> None:
    """The plaintext token is returned once, at creation."""
    token = issue(api, ProjectFactory(owner=user))
    token.get("/v1/monitors")
    assert str(token.token) not in api.get("/v1/tokens").text
    with connection.cursor() as cursor:
        cursor.execute("SELECT token::text FROM tokens_projecttoken AS token")
        stored = cursor.fetchone()[0]
    assert str(token.token)[-52:] not in stored


def test_tokens_expire_at_expires_at(api: Api, user: User) -> None:
    """Tokens may have an expiry (expires_at); Token lifecycle: […] expired at expires_at."""
    with time_machine.travel(utc_now(), tick=False) as clock:
        token = issue(api, ProjectFactory(owner=user), ttl_seconds=60)
        clock.shift(timedelta(seconds=59))
        assert token.get("/v1/monitors").status == 200
        clock.shift(timedelta(seconds=1))
        assert token.get("/v1/monitors").status == 401


def test_tokens_can_be_revoked(api: Api, user: User) -> None:
    """can be revoked with DELETE /v1/tokens/<id>; Token lifecycle: […] revoked by DELETE"""
    project = ProjectFactory(owner=user)
    token, other = issue(api, project), issue(api, project)
    first = ProjectToken.objects.order_by("pk")[0].public_id
    assert api.delete(f"/v1/tokens/{first}").json == {"ok": True}
    assert [caller.get("/v1/monitors").status for caller in (token, other)] == [401, 200]
    assert api.delete(f"/v1/tokens/{first}").status == 404

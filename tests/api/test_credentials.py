"""Sessions, project tokens and projects."""

from __future__ import annotations

from datetime import timedelta

import pytest
import time_machine
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings

from accounts.models import User
from checks.spec import Verdict
from core.clock import to_ms, utc_now
from monitors.models import Monitor, MonitorState
from projects.access import Caller
from projects.models import Project
from tests.api.client import Api
from tests.factories import MembershipFactory, MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import PASSWORD, flush_broker, run_concurrently
from tokens.models import ProjectToken, Session
from tokens.services import revoke_token


def test_sign_in_and_out(user: User) -> None:
    made = Api().post("/v1/sessions", {"email": user.email.upper(), "password": PASSWORD})
    assert made.status == 201
    assert made.json["user"] == {"id": user.public_id, "email": user.email, "plan": "pro"}
    lasts = made.json["expires_at"] - to_ms(utc_now())
    assert 0 <= timedelta(days=14) / timedelta(milliseconds=1) - lasts < 60_000
    caller = Api(made.json["token"])
    assert caller.token is not None
    assert caller.token.startswith("ses_")
    assert caller.get("/v1/monitors").status == 200
    assert caller.delete("/v1/sessions/current").json == {"ok": True}
    assert caller.get("/v1/monitors").status == 401


@pytest.mark.parametrize(
    ("email", "password"), [("user@nowhere.example", PASSWORD), (None, "wrong"), ("", ""), ("a\u00e9", "x")]
)
def test_wrong_credentials(user: User, email: str | None, password: str) -> None:
    answer = Api().post("/v1/sessions", {"email": user.email if email is None else email, "password": password})
    assert answer.status in (401, 422)
    if email != "":
        assert (answer.status, answer.json["error"]) == (401, "invalid_credentials")


def test_a_session_ends_with_its_password_and_with_its_account(user: User) -> None:
    api = Api.signed_in(user)
    user.is_active = False
    user.save(update_fields=["is_active"])
    assert api.get("/v1/monitors").status == 401
    user.is_active = True
    user.set_password("another long password")
    user.save(update_fields=["is_active", "password"])
    assert api.get("/v1/monitors").status == 401


def test_a_session_ends_after_14_days(user: User) -> None:
    api = Api.signed_in(user)
    with time_machine.travel(utc_now() + timedelta(days=14, seconds=1)):
        assert api.get("/v1/monitors").status == 401


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "Bearer ses_", "Bearer ses_x", "Basic abc", "Bearer svc_" + "a" * 68, "Bearer \xff", "x"],
)
def test_missing_or_invalid_token(db: None, header: str) -> None:
    from django.test import Client

    response = Client().get("/v1/monitors", headers={"Authorization": header} if header else {})
    assert (response.status_code, response.json()["error"]) == (401, "unauthorized")
    assert response.headers["WWW-Authenticate"] == "Bearer"


def test_sign_in_is_throttled_by_address(user: User, settings: Settings) -> None:
    settings.THROTTLE_SCALE = 0.1

    flush_broker()
    answers = [Api().post("/v1/sessions", {"email": user.email, "password": "wrong"}) for _ in range(3)]
    assert [answer.status for answer in answers] == [401, 401, 429]
    assert answers[-1].json["error"] == "rate_limited"
    assert int(answers[-1].headers["Retry-After"]) >= 1


def test_project_token_is_shown_once_and_stored_as_a_digest(api: Api, user: User) -> None:
    project = ProjectFactory(owner=user)
    made = api.post("/v1/tokens", {"project_id": project.public_id, "name": "CI", "ttl_seconds": 60})
    assert (made.status, made.json["project_id"], made.json["name"]) == (201, project.public_id, "CI")
    assert made.json["expires_at"] - made.json["created_at"] == 60_000
    plaintext = made.json["token"]
    assert plaintext.startswith("svc_")
    listed = api.get("/v1/tokens").json
    assert [token["id"] for token in listed] == [made.json["id"]]
    assert plaintext not in str(listed)
    with connection.cursor() as cursor:
        cursor.execute("SELECT token::text FROM tokens_projecttoken AS token")
        row = cursor.fetchone()[0]
    assert plaintext not in row
    assert plaintext[-52:] not in row
    assert api.delete(f"/v1/tokens/{made.json['id']}").json == {"ok": True}
    assert Api(plaintext).get("/v1/monitors").status == 401
    assert api.delete(f"/v1/tokens/{made.json['id']}").status == 404


def test_an_expired_token_is_no_token(user: User) -> None:
    project = ProjectFactory(owner=user)
    token = Api.with_token(user, project)
    assert token.get("/v1/monitors").status == 200
    ProjectToken.objects.update(expires_at=utc_now())
    assert token.get("/v1/monitors").status == 401


def test_use_is_noted_at_most_once_a_minute(user: User) -> None:
    api, start = Api.signed_in(user), utc_now()
    noted = []
    for second in (1, 30, 60, 62):
        with time_machine.travel(start + timedelta(seconds=second), tick=False):
            api.get("/v1/monitors")
        noted.append(round((Session.objects.get().last_used_at - start).total_seconds()))  # type: ignore[operator]
    assert noted == [1, 1, 1, 62]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "project_required"),
        ({"project_id": "", "name": "x"}, 400, "project_required"),
        ({"project_id": "prj_nothere", "name": "x"}, 400, "project_forbidden"),
        ({"project_id": "FOREIGN", "name": "x"}, 400, "project_forbidden"),
        ({"project_id": "MINE"}, 422, "validation_error"),
        ({"project_id": "MINE", "name": 5}, 422, "validation_error"),
        ({"project_id": "MINE", "name": "x", "ttl_seconds": 59}, 422, "validation_error"),
        ({"project_id": "MINE", "name": "x", "ttl_seconds": 7_776_001}, 422, "validation_error"),
        ({"project_id": "MINE", "name": "x", "ttl_seconds": "60"}, 422, "validation_error"),
        ({"project_id": "MINE", "name": "x", "scope": "all"}, 422, "validation_error"),
    ],
)
def test_bad_token_requests(api: Api, user: User, body: dict[str, object], status: int, code: str) -> None:
    ids = {"MINE": ProjectFactory(owner=user).public_id, "FOREIGN": ProjectFactory().public_id}
    body = {name: ids.get(str(value), value) for name, value in body.items()}
    answer = api.post("/v1/tokens", body)
    assert (answer.status, answer.json["error"]) == (status, code)
    assert not ProjectToken.objects.exists()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("get", "/v1/tokens"),
        ("post", "/v1/tokens"),
        ("delete", "/v1/tokens/tok_x"),
        ("get", "/v1/projects"),
        ("post", "/v1/projects"),
        ("patch", "/v1/projects/prj_x"),
        ("delete", "/v1/projects/prj_x"),
        ("delete", "/v1/sessions/current"),
        ("get", "/v1/account"),
        ("patch", "/v1/account"),
    ],
)
def test_account_level_endpoints_want_a_session(user: User, method: str, path: str) -> None:
    answer = Api.with_token(user, ProjectFactory(owner=user)).send(method, path, "not even JSON")
    assert (answer.status, answer.json["error"]) == (403, "session_required")


def test_projects(api: Api, user: User) -> None:
    made = api.post("/v1/projects", {"name": "Shop"})
    assert (made.status, sorted(made.json)) == (201, ["created_at", "escalation_policy_id", "id", "name"])
    for first in (Verdict.UP, Verdict.UP, Verdict.SLOW, Verdict.DOWN, None):
        MonitorFactory(owner=user, first=first, project_id=made.json["id"], created_at=utc_now())
    empty = ProjectFactory(owner=user, name="Empty")
    counts = [{k: p[k] for k in ("monitors", "up", "slow", "down", "unknown")} for p in api.get("/v1/projects").json]
    assert counts == [
        {"monitors": 5, "up": 2, "slow": 1, "down": 1, "unknown": 1},
        {"monitors": 0, "up": 0, "slow": 0, "down": 0, "unknown": 0},
    ]
    path = f"/v1/projects/{made.json['id']}"
    assert api.patch(path, {"name": "Store"}).json == {"ok": True}
    assert Project.objects.get(public_id=made.json["id"]).name == "Store"
    assert api.delete(path).json == {"ok": True}
    assert [project["id"] for project in api.get("/v1/projects").json] == [empty.public_id]
    assert {m["project_id"] for m in api.get("/v1/monitors").json} == {None}


def test_a_project_counts_monitors_by_the_status_that_badges_and_status_pages_show(api: Api, user: User) -> None:
    project = ProjectFactory(owner=user)
    fresh, stale, scheduled, paused, down = (
        MonitorFactory(owner=user, project=project, **made)
        for made in (
            {"up": True},
            {"up": True},
            {"first": Verdict.SLOW, "type": "scheduler", "schedule": "*/5 * * * *"},
            {"up": True},
            {"down": True},
        )
    )
    waiting = MonitorFactory(owner=user, project=project, heartbeat=True, up=True)
    Monitor.objects.filter(pk=paused.pk).update(enabled=False)
    now = utc_now()
    MonitorState.objects.filter(pk=fresh.pk).update(last_checked_at=now, next_due_at=now + timedelta(minutes=1))
    MonitorState.objects.filter(pk__in=[stale.pk, scheduled.pk, paused.pk, down.pk]).update(
        last_checked_at=now - timedelta(days=1), next_due_at=now - timedelta(days=1)
    )
    MonitorState.objects.filter(pk=waiting.pk).update(armed_at=now + timedelta(minutes=1))
    [counted] = api.get("/v1/projects").json
    # The paused monitor is not stale, and an outage lasts until a check ends it.
    assert {status: counted[status] for status in ("monitors", "up", "slow", "down", "unknown")} == {
        "monitors": 6, "up": 2, "slow": 0, "down": 1, "unknown": 3,
    }  # fmt: skip


def test_what_a_role_may_do(user: User) -> None:
    owner, admin, member = UserFactory(), UserFactory(), UserFactory()
    project = ProjectFactory(owner=owner, admin=admin, member=member)
    path = f"/v1/projects/{project.public_id}"
    callers = [Api.signed_in(u) for u in (member, admin, user)]
    assert [caller.patch(path, {"name": "N"}).status for caller in callers] == [403, 200, 404]
    assert [caller.delete(path).status for caller in callers] == [403, 403, 404]
    assert Api.signed_in(owner).delete(path).status == 200


def test_who_may_revoke_a_token(db: None) -> None:
    """Owner and admin: any token of the project. Member: their own."""
    owner, admin, member, other, stranger = (UserFactory() for _ in range(5))
    project = ProjectFactory(owner=owner, admin=admin, member=member)
    MembershipFactory(project=project, user=other, role="member")
    callers = {user: Api.signed_in(user) for user in (owner, admin, member, other, stranger)}

    def revoke(by: User, made_by: User) -> int:
        api = Api.with_token(made_by, project)
        token = ProjectToken.objects.latest("pk").public_id
        answer = callers[by].delete(f"/v1/tokens/{token}")
        assert api.get("/v1/monitors").status == (401 if answer.status == 200 else 200)
        return int(answer.status)

    assert [revoke(by, other) for by in callers] == [200, 200, 403, 200, 404]
    assert [revoke(by, owner) for by in callers] == [200, 200, 403, 403, 404]


@pytest.mark.django_db(transaction=True)
def test_a_token_revoked_twice_at_once_and_while_it_is_used() -> None:
    owner = UserFactory()
    project = ProjectFactory(owner=owner)
    api = Api.with_token(owner, project)
    token = ProjectToken.objects.get().public_id
    outcomes = run_concurrently(
        lambda: revoke_token(Caller(owner), token),
        lambda: revoke_token(Caller(owner), token),
        lambda: api.get("/v1/monitors").status,
        lambda: api.get("/v1/monitors").status,
    )
    assert sorted(type(outcome).__name__ for outcome in outcomes[:2]) == ["NoneType", "NotFound"]
    assert set(outcomes[2:]) <= {200, 401}
    assert api.get("/v1/monitors").status == 401


def test_lists_take_a_fixed_number_of_queries(api: Api, user: User) -> None:
    for _ in range(3):
        project = ProjectFactory(owner=user)
        Api.with_token(user, project)
        MonitorFactory(owner=user, project=project)
    api.get("/v1/projects")  # notes the use of the session
    for path in ("/v1/projects", "/v1/tokens"):
        with CaptureQueriesContext(connection) as queries:
            assert len(api.get(path).json) == 3
        assert len(queries) == 2, "session, rows"

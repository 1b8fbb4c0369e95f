"""The account: its fields, plan and usage, and changing the password."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings

from accounts.models import User
from accounts.services import change_password
from core.clock import utc_now
from core.errors import ValidationFailed
from manifests.importing import import_monitors
from monitors.models import Monitor
from projects.access import Caller
from pulsekeeper.importers.mapped import MappedFile, MappedMonitor
from tests.api.client import Api
from tests.factories import MonitorFactory, PlanFactory, ProjectFactory, UserFactory
from tests.helpers import NOON, PASSWORD, flush_broker, run_concurrently
from tests.manifests.helpers import apply_text
from tokens.models import Session
from tokens.services import sign_in

NEW = "another long password"


def test_the_account_shows_plan_and_usage(db: None) -> None:
    plan = PlanFactory(min_interval_sec=120, monitor_limit=7)
    user = UserFactory(plan=plan)
    api = Api.signed_in(user)
    for _ in range(2):
        MonitorFactory(owner=user)
    project = ProjectFactory(member=user)
    MonitorFactory(owner=user, project=project)  # counts against its project's owner
    api.get("/v1/account")  # notes the use of the session
    with CaptureQueriesContext(connection) as queries:
        answer = api.get("/v1/account")
    assert answer.json == {
        "id": user.public_id,
        "email": user.email,
        "plan": {"name": plan.name, "min_interval_sec": 120, "monitor_limit": 7},
        "usage": {"monitors": 2},
    }
    assert len(queries) == 2, "session, count"


def test_a_plan_with_a_default_interval_and_without_a_limit(db: None) -> None:
    user = UserFactory(plan__name="local")
    api = Api.signed_in(user)
    assert api.get("/v1/account").json["plan"] == {"name": "local", "min_interval_sec": 10, "monitor_limit": None}
    heartbeat = {"type": "heartbeat"}
    asked: list[dict[str, int]] = [{}, {"interval_sec": 10}, {"interval_sec": 1}, {"interval_sec": 3600}]
    made = [api.post("/v1/monitors", heartbeat | given).json["interval_sec"] for given in asked]
    assert made == [60, 10, 10, 3600]
    file = "version: 1\nmonitors: [{name: A, type: heartbeat}, {name: B, type: heartbeat, interval_sec: 9}]"
    apply_text(user, file)
    found = Monitor.objects.filter(name__in="AB").order_by("name")
    assert list(found.values_list("interval_sec", flat=True)) == [60, 10]
    mapped = [MappedMonitor("C", {"name": "C", "url": "https://shop.example/"})]
    import_monitors(Caller(user), MappedFile(mapped), place={}, now=NOON)
    assert Monitor.objects.get(name="C").interval_sec == 60
    free = Api.signed_in(UserFactory(plan__name="free"))
    assert free.post("/v1/monitors", heartbeat).json["interval_sec"] == 300


def test_changing_the_password_ends_every_session(api: Api, user: User) -> None:
    other, stranger = Api.signed_in(user), Api.signed_in(UserFactory())
    token = Api.with_token(user, ProjectFactory(owner=user))
    changed = api.patch("/v1/account", {"current_password": PASSWORD, "password": NEW})
    assert (changed.status, changed.json["email"]) == (200, user.email)
    assert [caller.get("/v1/monitors").status for caller in (api, other, stranger, token)] == [401, 401, 200, 200]
    assert not Session.objects.filter(user=user).exists()
    credentials = {"email": user.email, "password": PASSWORD}
    assert Api().post("/v1/sessions", credentials).status == 401
    assert Api().post("/v1/sessions", credentials | {"password": NEW}).status == 201


BAD = [
    ({}, "current_password"),
    ([], "JSON object"),
    ({"password": NEW}, "current_password"),
    ({"current_password": PASSWORD}, "password"),
    ({"current_password": "wrong", "password": NEW}, "current_password"),
    ({"current_password": "", "password": NEW}, "current_password"),
    ({"current_password": f" {PASSWORD}", "password": NEW}, "current_password"),
    ({"current_password": PASSWORD, "password": "short"}, "password: "),
    ({"current_password": PASSWORD, "password": "password123"}, "password: "),
    ({"current_password": PASSWORD, "password": "a" * 1025}, "password: "),
    ({"current_password": PASSWORD, "password": "a\x00bcdefghij"}, "password: "),
    ({"current_password": PASSWORD, "password": None}, "password: "),
    ({"current_password": PASSWORD, "password": 12345678901}, "password: "),
    ({"current_password": PASSWORD, "password": NEW, "email": "x@example.com"}, "email"),
    ({"current_password": PASSWORD, "password": NEW, "plan": "pro"}, "plan"),
]


@pytest.mark.parametrize(("body", "named"), BAD)
def test_bad_changes_change_nothing(api: Api, user: User, body: Any, named: str) -> None:
    answer = api.patch("/v1/account", body)
    assert (answer.status, answer.json["error"]) == (422, "validation_error")
    assert named in answer.error
    assert PASSWORD not in answer.text
    assert User.objects.get().check_password(PASSWORD)
    assert api.get("/v1/account").status == 200


def test_the_current_password_cannot_be_tried_for_long(api: Api, settings: Settings) -> None:
    settings.THROTTLE_SCALE = 1
    settings.THROTTLES = settings.THROTTLES | {"password": (2, 60)}
    flush_broker()
    body = {"current_password": "wrong", "password": NEW}
    assert [api.patch("/v1/account", body).status for _ in range(3)] == [422, 422, 429]
    assert api.get("/v1/account").status == 200


@pytest.mark.django_db(transaction=True)
def test_two_changes_and_a_sign_in_at_once() -> None:
    user = UserFactory()
    outcomes = run_concurrently(
        lambda: change_password(user, current=PASSWORD, new="the first long password"),
        lambda: change_password(user, current=PASSWORD, new="the second long password"),
        lambda: sign_in(email=user.email, password=PASSWORD, now=utc_now()),
    )
    assert sorted(type(outcome).__name__ for outcome in outcomes[:2]) == ["User", "ValidationFailed"]
    assert isinstance(next(o for o in outcomes[:2] if not isinstance(o, User)), ValidationFailed)
    if isinstance(outcomes[2], tuple):
        assert Api(outcomes[2][1]).get("/v1/monitors").status == 401, "signed in with a password that is gone"

"""Sessions of the API: with the second factor, listed, ended; and the end of an account."""

from __future__ import annotations

import pytest
import time_machine
from allauth.account.models import EmailAddress
from django.core import mail
from pytest_django.fixtures import Settings

from accounts.models import User
from alerts.models import AlertChannel
from checks.results.models import DeletedMonitor
from incidents.models import MaintenanceWindow
from incidents.windows import create_window
from monitors.models import Monitor
from projects.access import Caller
from projects.members import add_member
from projects.models import Membership, Project
from tests.api.client import Answer, Api
from tests.factories import ConnectorFactory, MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import NOON, PASSWORD, minutes, run_concurrently
from tests.second_factor import App, stored


def sign_in(user: User, **given: str) -> Answer:
    return Api().post("/v1/sessions", {"email": user.email, "password": PASSWORD, **given})


def test_an_address_that_was_never_confirmed(db: None) -> None:
    user = UserFactory(email="new@example.com", unconfirmed=True)
    assert (sign_in(user).status, sign_in(user).json["error"]) == (403, "email_unverified")
    assert Api().post("/v1/sessions", {"email": user.email, "password": "wrong"}).status == 401
    EmailAddress.objects.filter(user=user).update(verified=True)
    assert sign_in(user).status == 201


def test_an_unconfirmed_account_is_invited_like_a_stranger(user: User) -> None:
    newcomer = UserFactory(email="new@example.com", unconfirmed=True)
    project = ProjectFactory(owner=user)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("django.db.transaction.on_commit", lambda send: send())
        place = add_member(Caller(user), project.public_id, email=newcomer.email, role="member", now=NOON)
    assert place.is_open
    assert [message.to for message in mail.outbox] == [[newcomer.email]]


def test_the_second_factor(user: User) -> None:
    app = App(user)
    assert (sign_in(user).status, sign_in(user).json["error"]) == (401, "mfa_required")
    assert sign_in(user, password="wrong").json["error"] == "invalid_credentials"
    assert sign_in(user, password="wrong", code=app.code()).json["error"] == "invalid_credentials"
    assert sign_in(user, code=app.wrong_code()).json["error"] == "invalid_credentials"
    code = app.code()
    assert sign_in(user, code=code).status == 201
    assert sign_in(user, code=code).status == 401  # used
    recovery = app.recovery_codes[0]
    assert [sign_in(user, code=recovery).status for _ in range(2)] == [201, 401]
    assert app.secret not in stored(user)


def test_codes_of_neighbouring_periods_once_each_and_in_their_order(user: User) -> None:
    app = App(user)
    with time_machine.travel(NOON, tick=False):
        early, late, now = app.code(steps=-2), app.code(steps=2), app.code()
        assert [sign_in(user, code=code).status for code in (early, late, now)] == [401, 401, 201]
        assert sign_in(user, code=app.code(steps=-1)).status == 401  # a code that was seen by a bystander
        assert sign_in(user, code=app.code(steps=1)).status == 201


@pytest.mark.parametrize("kind", ["app", "recovery"])
@pytest.mark.django_db(transaction=True)
def test_a_code_is_used_once_by_two_at_once(kind: str) -> None:
    user = UserFactory()
    app = App(user)
    code = app.code() if kind == "app" else app.recovery_codes[3]
    statuses = run_concurrently(*[lambda: sign_in(user, code=code).status] * 4)
    assert sorted(map(str, statuses)) == ["201", "401", "401", "401"]


def test_codes_cannot_be_tried_for_long(user: User, settings: Settings) -> None:
    app = App(user)
    settings.THROTTLE_SCALE = 1
    settings.THROTTLES = dict.fromkeys(settings.THROTTLES, (1000, 60)) | {"second-factor": (3, 60)}
    tries = [sign_in(user, code=app.wrong_code()).status for _ in range(3)]
    refused = sign_in(user, code=app.code())
    assert (tries, refused.status, refused.json["error"]) == ([401] * 3, 429, "rate_limited")
    assert 0 < int(refused.headers["Retry-After"]) <= 60


def test_sessions_are_listed_and_ended(api: Api, user: User) -> None:
    other, stranger = Api.signed_in(user), Api.signed_in(UserFactory())
    listed = api.get("/v1/sessions").json
    assert [session["current"] for session in listed] == [False, True]
    assert all(session["id"].startswith("sin_") for session in listed)
    assert stranger.delete(f"/v1/sessions/{listed[0]['id']}").status == 404
    assert api.delete(f"/v1/sessions/{listed[0]['id']}").json == {"ok": True}
    assert api.delete(f"/v1/sessions/{listed[0]['id']}").status == 404
    assert (other.get("/v1/account").status, api.get("/v1/account").status) == (401, 200)
    with time_machine.travel(NOON + minutes(60 * 24 * 3650)):
        assert api.get("/v1/sessions").status == 401


def test_deleting_the_account_takes_what_is_its_own(api: Api, user: User) -> None:
    colleague = UserFactory()
    own, shared = ProjectFactory(owner=user), ProjectFactory(owner=colleague, member=user)
    monitor = MonitorFactory(owner=user, project=own)
    kept = MonitorFactory(owner=colleague, project=shared)
    ConnectorFactory(user=user)
    create_window(
        Caller(user), {"name": "Update", "starts_at": NOON, "ends_at": NOON + minutes(5), "monitors": "all"}, now=NOON
    )
    token = Api.with_token(user, shared)
    assert api.send("delete", "/v1/account", {"password": "wrong"}).error.startswith("validation_error password:")
    assert api.send("delete", "/v1/account", {"password": PASSWORD}).json == {"ok": True}
    assert not User.objects.filter(pk=user.pk).exists()
    assert list(Monitor.objects.all()) == [kept]
    assert list(Project.objects.all()) == [shared]
    assert [place.user for place in Membership.objects.all()] == [colleague]
    assert not AlertChannel.objects.filter(owner_id=user.pk).exists()
    assert not MaintenanceWindow.objects.exists()
    assert [row.monitor_id for row in DeletedMonitor.objects.all()] == [monitor.pk]
    assert (api.get("/v1/account").status, token.get("/v1/monitors").status) == (401, 401)
    assert sign_in(user).status == 401
    assert UserFactory(email=user.email).pk != user.pk


def test_an_account_that_others_depend_on_stays(api: Api, user: User) -> None:
    ProjectFactory(owner=user, name="Alone")
    shared = ProjectFactory(owner=user, name="Shop", member=UserFactory())
    refused = api.send("delete", "/v1/account", {"password": PASSWORD})
    assert (refused.status, refused.json["error"]) == (409, "projects_shared")
    assert "“Shop”" in refused.json["reason"]
    assert "Alone" not in refused.json["reason"]
    assert (Project.objects.count(), User.objects.filter(pk=user.pk).exists()) == (2, True)
    api.delete(f"/v1/projects/{shared.public_id}")
    assert api.send("delete", "/v1/account", {"password": PASSWORD}).status == 200


@pytest.mark.django_db(transaction=True)
def test_a_member_comes_while_the_account_goes() -> None:
    """Either the member is added and the account stays, or the project is deleted with its owner."""
    for _ in range(5):
        owner, newcomer = UserFactory(), UserFactory()
        project, api = ProjectFactory(owner=owner), Api.signed_in(owner)

        def go(api: Api = api) -> object:
            return api.send("delete", "/v1/account", {"password": PASSWORD}).status

        def come(api: Api = api, email: str = newcomer.email, project_id: str = project.public_id) -> object:
            return api.post(f"/v1/projects/{project_id}/members", {"email": email, "role": "member"}).status

        outcome = tuple(run_concurrently(go, come))
        assert outcome in {(409, 201), (200, 404), (200, 401)}
        assert Project.objects.filter(pk=project.pk).exists() is (outcome[0] == 409)

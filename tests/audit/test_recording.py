"""Actions over the API are recorded, each entry in the same transaction as the action."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings

import audit.services
from accounts.models import User
from accounts.services import create_account
from alerts.models import AlertChannel
from audit.actions import Action
from audit.models import Entry
from audit.tasks import sweep
from connectors.services import disconnect
from core.clock import utc_now
from projects.access import Caller
from projects.members import accept_invitations
from projects.models import Membership, Project
from projects.services import create_project, update_project
from tests.api.client import Api
from tests.audit.reading import actions, forget_all, last
from tests.factories import ConnectorFactory, ProjectFactory, UserFactory
from tests.helpers import PASSWORD
from tests.second_factor import App

AGENT = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"


def send(api: Api, method: str, path: str, body: Any = None) -> Any:
    answer = api.send(method, path, body)
    assert answer.status < 300, answer.text
    return answer.json


def test_what_is_done_to_a_project_its_people_and_its_tokens(api: Api, user: User) -> None:
    friend = UserFactory(email="friend@example.com")
    forget_all()
    project = send(api, "post", "/v1/projects", {"name": "Shop"})["id"]
    home = f"/v1/projects/{project}"
    send(api, "patch", home, {"name": "Store"})
    member = send(api, "post", f"{home}/members", {"email": friend.email, "role": "member"})["id"]
    send(api, "patch", f"{home}/members/{member}", {"role": "admin"})
    send(api, "delete", f"{home}/members/{member}")
    invited = {"email": "new@example.com", "role": "member"}
    invitation = send(api, "post", f"{home}/members", invited)["id"]
    send(api, "delete", f"{home}/members/{invitation}")
    token = send(api, "post", "/v1/tokens", {"project_id": project, "name": "CI"})
    channel = send(
        Api(token["token"]), "post", "/v1/alert-channels", {"kind": "webhook", "url": "http://127.0.0.1:9/secret-path"}
    )
    send(api, "patch", f"/v1/alert-channels/{channel['id']}", {"secret": "hunter22hunter22", "name": "Pager"})
    send(api, "delete", f"/v1/alert-channels/{channel['id']}")
    send(api, "delete", f"/v1/tokens/{token['id']}")
    send(api, "delete", home)
    found = [
        (entry.action, entry.actor_type, entry.target_id, entry.target_name, entry.details)
        for entry in Entry.objects.filter(project_public_id=project).order_by("pk")
    ]
    hook = {"kind": "webhook"}
    assert found == [
        ("project.created", "user", project, "Shop", {}),
        ("project.updated", "user", project, "Store", {"before": "Shop"}),
        ("member.added", "user", member, friend.email, {"role": "member"}),
        ("member.updated", "user", member, friend.email, {"role": "admin", "before": "member"}),
        ("member.removed", "user", member, friend.email, {"role": "admin"}),
        ("member.invited", "user", invitation, "new@example.com", {"role": "member"}),
        ("invitation.revoked", "user", invitation, "new@example.com", {"role": "member"}),
        ("token.created", "user", token["id"], "CI", {}),
        ("channel.created", "token", channel["id"], "http://127.0.0.1:9", hook),
        ("channel.updated", "user", channel["id"], "Pager", hook | {"fields": ["name", "secret"]}),
        ("channel.deleted", "user", channel["id"], "Pager", hook),
        ("token.revoked", "user", token["id"], "CI", {}),
        ("project.deleted", "user", project, "Store", {}),
    ]
    everything = str(list(Entry.objects.values()))
    assert not any(secret in everything for secret in (token["token"], "hunter22", "secret-path", PASSWORD))
    assert set(Entry.objects.values_list("actor_id", "actor_email")) == {(user.pk, user.email)}
    assert actions(subject_id=friend.pk) == ["member.added", "member.updated", "member.removed"]


def test_leaving_and_joining(user: User) -> None:
    project = ProjectFactory(member=user)
    send(Api.signed_in(user), "delete", f"/v1/projects/{project.public_id}/members/{user.memberships.get().public_id}")
    assert (last().action, last().actor_id, last().subject_id) == ("member.left", user.pk, None)
    Membership.objects.create(
        project=project,
        role="admin",
        invited_email=user.email,
        invitation_digest=b"1",
        invited_until=utc_now() + timedelta(days=1),
    )
    assert accept_invitations(user, now=utc_now()) == 1
    assert (last().action, last().project_id, last().details) == ("member.joined", project.pk, {"role": "admin"})
    assert accept_invitations(user, now=utc_now()) == 0


def test_signing_in_and_what_follows(user: User) -> None:
    forget_all()
    client = Client(REMOTE_ADDR="192.0.2.7", headers={"User-Agent": f"{AGENT}\x00{'x' * 500}"})
    given = {"email": user.email, "password": PASSWORD}
    made = client.post("/v1/sessions", given, content_type="application/json")
    entry = last()
    assert (entry.action, entry.actor_id, entry.subject_id) == ("sign_in.succeeded", user.pk, None)
    assert (entry.address, entry.details) == ("192.0.2.7", {"door": "api"})
    assert entry.user_agent.startswith(f"{AGENT} xxx")
    assert len(entry.user_agent) == 200
    api = Api(made.json()["token"])
    assert entry.target_id == api.get("/v1/sessions").json[0]["id"]
    send(api, "delete", f"/v1/sessions/{entry.target_id}")
    assert (last().action, last().target_id) == ("session.revoked", entry.target_id)
    api = Api.signed_in(user)
    send(api, "patch", "/v1/account", {"current_password": PASSWORD, "password": "quite another long one"})
    assert last().action == "password.changed"
    disconnect(Caller(ConnectorFactory(user=user).user), "vercel")
    assert (last().action, last().target_name, last().actor_type) == ("connector.unlinked", "Shop Ltd", "operator")


def test_the_address_is_the_one_that_throttles_count(user: User, settings: Settings) -> None:
    from core.egress import parse_networks

    settings.TRUSTED_PROXIES = parse_networks("127.0.0.0/8")
    client = Client(headers={"X-Forwarded-For": "203.0.113.9, 2001:db8::1"})
    client.post("/v1/sessions", {"email": user.email, "password": "wrong"}, content_type="application/json")
    assert last().address == "2001:db8::1"


def test_failures_name_the_account_and_no_input(user: User) -> None:
    forget_all()
    Api().post("/v1/sessions", {"email": user.email, "password": "hunter2"})
    Api().post("/v1/sessions", {"email": "hunter2@example.com", "password": PASSWORD})
    app = App(user)
    tried = {"email": user.email, "password": PASSWORD}
    assert Api().post("/v1/sessions", tried).error.startswith("mfa_required")
    Api().post("/v1/sessions", tried | {"code": app.wrong_code()})
    assert Api().post("/v1/sessions", tried | {"code": app.code()}).status == 201
    entries = Entry.objects.order_by("pk")
    assert [(e.action, e.actor_type, e.subject_id, e.actor_id) for e in entries] == [
        ("sign_in.failed", "anonymous", user.pk, None),
        ("sign_in.failed", "anonymous", None, None),
        ("second_factor.failed", "anonymous", user.pk, None),
        ("second_factor.used", "user", None, user.pk),
        ("sign_in.succeeded", "user", None, user.pk),
    ]
    assert "hunter2" not in str(list(Entry.objects.values()))


@pytest.mark.parametrize("action", [Action.SIGN_IN_FAILED, Action.SECOND_FACTOR_FAILED])
def test_a_flood_of_failures_fills_no_disk(user: User, action: Action, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit.services, "STRANGERS_KEPT", 5)
    other = UserFactory()
    forget_all()
    with time_machine.travel(utc_now(), tick=False) as clock:
        for _ in range(audit.services.FAILURES_KEPT + 5):
            audit.services.record_failure(action, subject=user)
            audit.services.record_failure(action, subject=None)
        audit.services.record_failure(action, subject=other)
        kept = audit.services.FAILURES_KEPT
        assert len(actions(subject_id=user.pk)) == kept
        assert (len(actions(subject_id=None)), len(actions(subject_id=other.pk))) == (5, 1)
        clock.shift(audit.services.FAILURE_WINDOW)
        audit.services.record_failure(action, subject=user)
        assert len(actions(subject_id=user.pk)) == kept + 1


def test_an_entry_is_one_statement_and_of_the_transaction(user: User) -> None:
    caller = Caller(user)
    project = create_project(caller, name="Shop", now=utc_now())
    forget_all()

    def queries(act: Callable[[], object]) -> list[str]:
        with CaptureQueriesContext(connection) as captured:
            act()
        return [query["sql"] for query in captured if "audit_entry" in query["sql"]]

    (insert,) = queries(lambda: update_project(caller, project.public_id, {"name": "Store"}))
    assert insert.startswith("INSERT")
    with transaction.atomic():
        update_project(caller, project.public_id, {"name": "Lost"})
        transaction.set_rollback(True)
    assert (actions(), Project.objects.get().name) == (["project.updated"], "Store")


def test_what_cannot_be_recorded_does_not_happen(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    caller = Caller(user)
    monkeypatch.setattr(Entry, "save", _full_disk)
    api = Api()
    with pytest.raises(OSError, match="full"):
        create_project(caller, name="Shop", now=utc_now())
    assert not Project.objects.exists()
    assert api.post("/v1/sessions", {"email": user.email, "password": PASSWORD}).status == 500
    assert not user.api_sessions.exists()


def _full_disk(*_: object, **__: object) -> None:
    raise OSError("the disk is full")


def test_pings_are_no_business_of_the_log(user: User) -> None:
    from django.conf import settings

    order = settings.MIDDLEWARE
    assert order.index("config.middleware.pings") < order.index("audit.origin.remember_origin")
    assert order.index("config.middleware.status_pages") < order.index("audit.origin.remember_origin")


def test_commands_are_the_operator_s(db: None) -> None:
    user = create_account(email="new@example.com", password=PASSWORD, plan=UserFactory().plan.name)
    entry = last(Action.ACCOUNT_CREATED)
    assert (entry.actor_type, entry.actor_id, entry.target_name) == ("operator", user.pk, user.email)
    assert (entry.address, entry.user_agent, entry.details) == (None, "", {"plan": "pro"})


def test_old_entries_are_swept(user: User, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit.services, "SWEPT_AT_ONCE", 2)
    settings.AUDIT_KEPT_DAYS = 10
    now = utc_now()
    forget_all()
    for days in (12, 11, 10, 9, 0, 30):
        with time_machine.travel(now - timedelta(days=days), tick=False):
            audit.services.record(Action.PASSWORD_CHANGED, actor=user)
    with time_machine.travel(now, tick=False):
        sweep()
    assert set(Entry.objects.values_list("at", flat=True)) == {now - timedelta(days=9), now}


def test_a_channel_whose_address_owner_agrees(user: User) -> None:
    from django.utils.crypto import salted_hmac

    project = ProjectFactory(owner=user)
    Api.signed_in(user).post(
        "/v1/alert-channels", {"kind": "email", "address": "on-call@example.com", "project_id": project.public_id}
    )
    channel = AlertChannel.objects.latest("pk")
    digest = salted_hmac("pulsekeeper.alert-channels", "token", algorithm="sha256").digest()
    AlertChannel.objects.filter(pk=channel.pk).update(confirmation_digest=digest)
    assert Client().post("/alert-channels/confirm/token").status_code == 200
    entry = last()
    assert (entry.action, entry.actor_type, entry.actor_id) == ("channel.confirmed", "anonymous", None)
    assert (entry.subject_id, entry.project_id, entry.target_id) == (user.pk, project.pk, channel.public_id)

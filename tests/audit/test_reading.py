"""The audit log over the API: which entries each caller can read."""

from __future__ import annotations

from typing import Any

import pytest

import audit.services
from accounts.models import User
from audit.actions import Action
from audit.models import Entry
from core.clock import to_ms
from tests.api.client import Api
from tests.audit.reading import forget_all
from tests.factories import ProjectFactory, UserFactory
from tests.helpers import PASSWORD

OWN = "/v1/account/audit-log"


def rows(api: Api, path: str) -> list[Any]:
    answer = api.get(path)
    assert answer.status == 200, answer.text
    return list(answer.json)


def test_one_s_own_log(api: Api, user: User) -> None:
    Api().post("/v1/sessions", {"email": user.email, "password": "wrong"})
    stranger = Api.signed_in(UserFactory())
    newest, *rest = rows(api, OWN)
    entry = Entry.objects.get(action=Action.SIGN_IN_FAILED)
    assert newest == {
        "id": entry.public_id,
        "at": to_ms(entry.at),
        "action": "sign_in.failed",
        "actor_type": "anonymous",
        "actor_id": None,
        "actor_email": None,
        "project_id": None,
        "target_id": None,
        "target_name": None,
        "address": "127.0.0.1",
        "user_agent": None,
        "details": {"door": "api"},
    }
    assert [row["action"] for row in rest] == ["sign_in.succeeded", "account.created"]
    assert not {row["id"] for row in rows(stranger, OWN)} & {row["id"] for row in rows(api, OWN)}


def test_addresses_are_visible_to_their_own_user_only(api: Api, user: User) -> None:
    admin, friend = UserFactory(), UserFactory()
    project = ProjectFactory(owner=user, admin=admin, member=friend)
    place = friend.memberships.get().public_id
    Api.signed_in(admin).patch(f"/v1/projects/{project.public_id}/members/{place}", {"role": "admin"})
    path = f"/v1/projects/{project.public_id}/audit-log?action=member.updated"
    ((his,), (hers,)) = rows(Api.signed_in(admin), path), rows(api, path)
    assert (his["address"], his["actor_email"]) == ("127.0.0.1", admin.email)
    assert hers == his | {"address": None, "user_agent": None}
    (told,) = rows(Api.signed_in(friend), f"{OWN}?action=member.updated")
    assert told == hers, "whose place it is reads it too"
    assert rows(api, f"{OWN}?action=member.updated") == [], "what others did to others is of the project's log"


def test_staff_has_no_name_for_those_whom_it_serves(api: Api, user: User) -> None:
    staff = UserFactory()
    entry = audit.services.record(Action.PLAN_CHANGED, actor=staff, subject=user, target_name=user.email)
    Entry.objects.filter(pk=entry.pk).update(actor_type="staff", address="192.0.2.1")
    (mine,) = rows(api, f"{OWN}?action=plan.changed")
    assert (mine["actor_type"], mine["actor_id"], mine["actor_email"], mine["address"]) == ("staff", None, None, None)
    (theirs,) = rows(Api.signed_in(staff), f"{OWN}?action=plan.changed")
    assert (theirs["actor_email"], theirs["address"]) == (staff.email, "192.0.2.1")


def test_pages_newest_first(api: Api, user: User) -> None:
    forget_all()
    names = [f"n{number}" for number in range(5)]
    for name in names:
        audit.services.record(Action.CHANNEL_DELETED, actor=user, target_name=name)
    found, path = [], f"{OWN}?limit=2&action=channel.deleted"
    while path:
        answer = api.get(path)
        found += [row["target_name"] for row in answer.json]
        path = answer.headers.get("Link", "").partition(">")[0].removeprefix("<http://testserver")
    assert found == names[::-1]


@pytest.mark.parametrize("query", ["action=nonsense", "action=", "limit=0", "cursor=x"])
def test_bad_queries(api: Api, user: User, query: str) -> None:
    project = ProjectFactory(owner=user)
    for path in (OWN, f"/v1/projects/{project.public_id}/audit-log"):
        assert api.get(f"{path}?{query}").status == 422
        assert Api.with_token(user, project).get(f"{path}?{query}").error.startswith("session_required")


def test_a_new_password_does_not_hide_what_was(api: Api, user: User) -> None:
    api.patch("/v1/account", {"current_password": PASSWORD, "password": "quite another long one"})
    token = Api().post("/v1/sessions", {"email": user.email, "password": "quite another long one"}).json["token"]
    assert [row["action"] for row in rows(Api(token), OWN)][:2] == ["sign_in.succeeded", "password.changed"]

"""Members of a project: adding, inviting, roles, leaving, and what ends with a membership."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.core import mail
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings

from accounts.models import User
from core.clock import to_ms, utc_now
from core.errors import ApiError, Forbidden, NotFound, ProjectForbidden, ValidationFailed
from projects.access import Caller
from projects.members import accept_invitations, add_member, remove_member
from projects.models import Membership, Project
from projects.services import delete_project
from projects.tasks import sweep
from tests.api.client import Api
from tests.factories import MembershipFactory, MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import run_concurrently
from tests.processes.up import free_port
from tokens.models import ProjectToken
from tokens.services import create_token


def path_of(project: Project, member: Membership | str | None = None) -> str:
    path = f"/v1/projects/{project.public_id}/members"
    if member is None:
        return path
    return f"{path}/{member if isinstance(member, str) else member.public_id}"


def place(project: Project, user: User) -> Membership:
    return Membership.objects.get(project=project, user=user)


def test_an_existing_account_is_a_member_at_once(api: Api, user: User) -> None:
    project, friend = ProjectFactory(owner=user), UserFactory()
    monitor = MonitorFactory(owner=user, project=project)
    theirs = Api.signed_in(friend)
    assert theirs.get(f"/v1/monitors/{monitor.public_id}").status == 404
    made = api.post(path_of(project), {"email": f" {friend.email.upper()}", "role": "member"})
    assert made.status == 201
    assert re.fullmatch(r"mbr_[a-z2-7]{26}", made.json.pop("id"))
    assert abs(made.json["created_at"] - to_ms(utc_now())) < 60_000
    assert {k: v for k, v in made.json.items() if k not in ("id", "created_at")} == {
        "user_id": friend.public_id,
        "email": friend.email,
        "role": "member",
        "status": "active",
        "expires_at": None,
    }
    assert theirs.get(f"/v1/monitors/{monitor.public_id}").status == 200
    assert [p["id"] for p in theirs.get("/v1/projects").json] == [project.public_id]
    again = api.post(path_of(project), {"email": friend.email, "role": "admin"})
    assert again.error == "validation_error email: is already a member."
    assert api.post(path_of(project), {"email": user.email, "role": "admin"}).status == 422
    assert not mail.outbox


@pytest.mark.django_db(transaction=True)
def test_an_unknown_address_is_invited_and_joins_by_signing_in() -> None:
    owner = UserFactory()
    project, api = ProjectFactory(owner=owner, name="Shop\r\nBcc: x@example.com"), Api.signed_in(owner)
    made = api.post(path_of(project), {"email": "New@Example.com", "role": "admin"})
    assert (made.status, made.json["status"], made.json["email"]) == (201, "invited", "new@example.com")
    lasts = made.json["expires_at"] - made.json["created_at"]
    assert lasts == timedelta(days=14) / timedelta(milliseconds=1)
    (sent,) = mail.outbox
    assert sent.to == ["new@example.com"]
    assert owner.email in sent.body
    assert '"Shop Bcc: x@example.com"' in sent.body
    (token,) = re.findall(r"/invitations/(\w+)", str(sent.body))
    with connection.cursor() as cursor:
        cursor.execute("SELECT m::text FROM projects_membership m")
        assert token not in str(cursor.fetchall()), "only a digest is stored"
    page = Client().get(f"/invitations/{token}")
    assert (page.status_code, b"Shop" in page.content) == (200, True)
    assert Client().get("/invitations/nonsense").status_code == 404

    again = api.post(path_of(project), {"email": "new@example.com", "role": "member"})
    assert (again.status, "already invited" in again.error) == (422, True)
    assert api.patch(path_of(project, made.json["id"]), {"role": "member"}).json["role"] == "member"

    newcomer = Api.signed_in(UserFactory(email="new@example.com"))
    assert [p["id"] for p in newcomer.get("/v1/projects").json] == [project.public_id]
    listed = newcomer.get(path_of(project)).json
    assert [(m["id"], m["role"], m["status"], m["expires_at"]) for m in listed[1:]] == [
        (made.json["id"], "member", "active", None)
    ]
    assert Client().get(f"/invitations/{token}").status_code == 404, "taken up"
    assert accept_invitations(User.objects.get(email="new@example.com"), now=utc_now()) == 0


def test_an_invitation_that_was_withdrawn_or_ran_out_gives_nothing(api: Api, user: User) -> None:
    withdrawn, expired = ProjectFactory(owner=user), ProjectFactory(owner=user)
    for project in (withdrawn, expired):
        assert api.post(path_of(project), {"email": "late@example.com", "role": "member"}).status == 201
    (open_place,) = (m for m in api.get(path_of(withdrawn)).json if m["status"] == "invited")
    assert api.delete(path_of(withdrawn, open_place["id"])).json == {"ok": True}
    Membership.objects.filter(project=expired, user=None).update(invited_until=utc_now())
    assert len(api.get(path_of(expired)).json) == 1
    late = Membership.objects.get(project=expired, user=None)
    assert api.delete(path_of(expired, late)).status == 404
    assert Api.signed_in(UserFactory(email="late@example.com")).get("/v1/projects").json == []
    assert api.post(path_of(expired), {"email": "other@example.com", "role": "member"}).status == 201
    assert not Membership.objects.filter(pk=late.pk).exists(), "swept by the next invitation"


def test_expired_invitations_are_swept_and_members_stay(user: User) -> None:
    project = ProjectFactory(owner=user, member=UserFactory())
    add_member(Caller(user), project.public_id, email="a@example.com", role="member", now=utc_now())
    sweep()
    assert Membership.objects.count() == 3
    with time_machine.travel(utc_now() + timedelta(days=14), tick=False):
        sweep()
    assert Membership.objects.count() == 2


def test_an_account_younger_than_its_invitation_can_be_added(api: Api, user: User) -> None:
    project = ProjectFactory(owner=user)
    api.post(path_of(project), {"email": "new@example.com", "role": "member"})
    newcomer = UserFactory(email="new@example.com")  # has not signed in
    made = api.post(path_of(project), {"email": "new@example.com", "role": "admin"})
    assert (made.json["status"], made.json["role"]) == ("active", "admin")
    assert place(project, newcomer).role == "admin"
    assert Membership.objects.filter(project=project).count() == 2


@pytest.mark.django_db(transaction=True)
def test_a_lost_email_is_logged_and_the_invitation_stands(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    owner = UserFactory()
    project = ProjectFactory(owner=owner)
    settings.EMAIL_PORT = free_port()
    settings.EMAIL_HOST = "127.0.0.1"
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    made = Api.signed_in(owner).post(path_of(project), {"email": "a@example.com", "role": "member"})
    assert (made.status, made.json["status"]) == (201, "invited")
    assert "could not be sent" in caplog.text
    assert "a@example.com" not in caplog.text


BAD = [
    ({}, "email"),
    ([], ""),
    ({"email": "a@example.com"}, "role"),
    ({"role": "member"}, "email"),
    ({"email": "a@example.com", "role": "owner"}, "role"),
    ({"email": "a@example.com", "role": ["admin"]}, "role"),
    ({"email": "a@example.com", "role": None}, "role"),
    ({"email": 5, "role": "member"}, "email"),
    ({"email": "", "role": "member"}, "email"),
    ({"email": "no address", "role": "member"}, "email"),
    ({"email": "a@example.com\r\nBcc: b@example.com", "role": "member"}, "email"),
    ({"email": "a" * 250 + "@example.com", "role": "member"}, "email"),
    ({"email": "a\x00@example.com", "role": "member"}, "email"),
    ({"email": "a@example.com", "role": "member", "name": "x"}, "name"),
]


@pytest.mark.parametrize(("body", "named"), BAD)
def test_bad_bodies_add_no_members(api: Api, user: User, body: Any, named: str) -> None:
    project = ProjectFactory(owner=user)
    answer = api.post(path_of(project), body)
    assert answer.status == 422
    assert named in answer.error
    assert Membership.objects.count() == 1


@pytest.mark.parametrize("body", [{}, {"role": "owner"}, {"role": 1}, {"role": "admin", "email": "x@y.zz"}, []])
def test_bad_bodies_change_no_role(api: Api, user: User, body: Any) -> None:
    friend = UserFactory()
    project = ProjectFactory(owner=user, member=friend)
    assert api.patch(path_of(project, place(project, friend)), body).status == 422
    assert place(project, friend).role == "member"


def test_the_owner_stays(api: Api, user: User) -> None:
    admin = UserFactory()
    project = ProjectFactory(owner=user, admin=admin)
    owner_place = place(project, user)
    for caller in (api, Api.signed_in(admin)):
        assert caller.patch(path_of(project, owner_place), {"role": "admin"}).status == 422
        assert caller.delete(path_of(project, owner_place)).status == 422
    assert place(project, user).role == "owner"


def test_what_each_role_may_do(user: User) -> None:
    owner, admin, member, other = UserFactory(), UserFactory(), UserFactory(), UserFactory()
    project = ProjectFactory(owner=owner, admin=admin, member=member)
    MembershipFactory(project=project, user=other, role="member")
    elsewhere = place(ProjectFactory(owner=owner), owner)
    callers = [Api.signed_in(u) for u in (owner, admin, member, user)]
    target = path_of(project, place(project, other))

    def all_of(method: str, path: str, body: Any = None) -> list[int]:
        return [caller.send(method, path, body).status for caller in callers]

    assert all_of("get", path_of(project)) == [200, 200, 200, 404]
    assert all_of("patch", target, {"role": "member"}) == [200, 200, 403, 404]
    assert all_of("patch", path_of(project, elsewhere), {"role": "member"}) == [404, 404, 403, 404]
    assert all_of("delete", path_of(project, elsewhere)) == [404, 404, 404, 404]
    assert all_of("patch", path_of(project, "mbr_nothere"), "no JSON") == [404, 404, 403, 404]
    for n, status in enumerate([201, 201, 403, 404]):
        body = {"email": f"invited{n}@example.com", "role": "member"}
        assert callers[n].post(path_of(project), body).status == status
    assert callers[2].post(path_of(project), "no JSON").status == 403
    assert callers[2].delete(target).status == 403
    assert callers[3].delete(target).status == 404
    assert callers[1].delete(target).status == 200
    assert callers[2].delete(path_of(project, place(project, member))).status == 200, "leaving"
    assert callers[2].get(path_of(project)).status == 404


def test_a_project_token_manages_no_members(user: User) -> None:
    project = ProjectFactory(owner=user)
    token = Api.with_token(user, project)
    for method, path in (
        ("get", path_of(project)),
        ("post", path_of(project)),
        ("patch", path_of(project, place(project, user))),
        ("delete", path_of(project, place(project, user))),
        ("get", path_of(project) + "?limit=x"),
        ("delete", "/v1/projects/prj_x/members/mbr_x"),
    ):
        answer = token.send(method, path, "no JSON")
        assert (answer.status, answer.json["error"]) == (403, "session_required"), (method, path)


def test_removal_ends_access_and_the_tokens_the_member_made(api: Api, user: User) -> None:
    friend = UserFactory()
    project, other = ProjectFactory(owner=user, member=friend), ProjectFactory(owner=user, member=friend)
    monitor = MonitorFactory(owner=user, project=project)
    session, revoked = Api.signed_in(friend), Api.with_token(friend, project)
    kept = [Api.with_token(friend, other), Api.with_token(user, project)]
    address = f"/v1/monitors/{monitor.public_id}"
    assert [caller.get(address).status for caller in (session, revoked)] == [200, 200]
    assert api.delete(path_of(project, place(project, friend))).json == {"ok": True}
    assert [caller.get(address).status for caller in (session, revoked)] == [404, 401]
    assert [caller.get("/v1/monitors").status for caller in kept] == [200, 200]
    assert ProjectToken.objects.filter(project=project).count() == 1


def test_a_token_whose_maker_is_no_member_any_more_opens_nothing(user: User) -> None:
    friend = UserFactory()
    project = ProjectFactory(owner=user, member=friend)
    token = Api.with_token(friend, project)
    place(project, friend).delete()  # bypasses the service that would have revoked it
    assert token.get("/v1/monitors").status == 401


def test_the_list_is_paged_in_a_fixed_number_of_queries(api: Api, user: User) -> None:
    project = ProjectFactory(owner=user)
    for n in range(5):
        add_member(Caller(user), project.public_id, email=UserFactory().email, role="member", now=utc_now())
        add_member(Caller(user), project.public_id, email=f"i{n}@example.com", role="member", now=utc_now())
    api.get("/v1/projects")  # notes the use of the session
    with CaptureQueriesContext(connection) as few:
        first = api.get(path_of(project) + "?limit=3")
    with CaptureQueriesContext(connection) as many:
        everybody = api.get(path_of(project)).json
    assert (len(few), len(many)) == (3, 3), "session, project and role, members"
    pages, link = [first.json], first.headers["Link"]
    while link:
        address = re.findall(r"<http://[^/]+([^>]+)>", link)[0]
        answer = api.get(address)
        pages.append(answer.json)
        link = answer.headers.get("Link")
    assert [member for page in pages for member in page] == everybody
    assert len(everybody) == 11


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "cursor=!"])
def test_bad_pages(api: Api, user: User, query: str) -> None:
    assert api.get(f"{path_of(ProjectFactory(owner=user))}?{query}").status == 422


@pytest.mark.django_db(transaction=True)
def test_two_who_invite_the_same_person_at_once() -> None:
    owner, admin, friend = UserFactory(), UserFactory(), UserFactory()
    project = ProjectFactory(owner=owner, admin=admin)

    def add(by: User, email: str) -> Any:
        return lambda: add_member(Caller(by), project.public_id, email=email, role="member", now=utc_now())

    for email in (friend.email, "new@example.com"):
        outcomes = run_concurrently(add(owner, email), add(admin, email), add(owner, email))
        assert sorted(type(outcome).__name__ for outcome in outcomes) == [
            "Membership",
            "ValidationFailed",
            "ValidationFailed",
        ]
    assert len(mail.outbox) == 1


@pytest.mark.django_db(transaction=True)
def test_a_newcomer_signs_in_while_being_added() -> None:
    owner = UserFactory()

    def race(email: str) -> None:
        project = ProjectFactory(owner=owner)
        add_member(Caller(owner), project.public_id, email=email, role="member", now=utc_now())
        newcomer = UserFactory(email=email)
        outcomes = run_concurrently(
            lambda: Api.signed_in(newcomer),
            lambda: add_member(Caller(owner), project.public_id, email=email, role="admin", now=utc_now()),
        )
        assert isinstance(outcomes[1], Membership | ValidationFailed)
        assert Membership.objects.filter(project=project, user=newcomer).count() == 1
        assert not Membership.objects.filter(project=project, user=None).exists()

    for n in range(5):
        race(f"new{n}@example.com")


@pytest.mark.django_db(transaction=True)
def test_a_token_made_while_its_maker_is_removed() -> None:
    owner = UserFactory()

    def race() -> None:
        friend = UserFactory()
        project = ProjectFactory(owner=owner, member=friend)
        member_id = place(project, friend).public_id

        def create() -> object:
            return create_token(Caller(friend), project_id=project.public_id, name="t", ttl_seconds=None, now=utc_now())

        made, _removed = run_concurrently(
            create, lambda: remove_member(Caller(owner), project.public_id, member_id, now=utc_now())
        )
        assert isinstance(made, tuple | ProjectForbidden)
        assert not ProjectToken.objects.filter(project=project).exists()

    for _ in range(8):
        race()


@pytest.mark.django_db(transaction=True)
def test_a_project_deleted_while_it_is_used() -> None:
    """No deadlock and no crash: each other action either completes before, or finds no project."""

    def race() -> None:
        owner, friend = UserFactory(), UserFactory()
        project = ProjectFactory(owner=owner, member=friend)
        member_id = place(project, friend).public_id
        caller, name = Caller(owner), project.public_id
        outcomes = run_concurrently(
            lambda: delete_project(caller, name),
            lambda: delete_project(caller, name),
            lambda: create_token(Caller(friend), project_id=name, name="t", ttl_seconds=None, now=utc_now()),
            lambda: add_member(caller, name, email="new@example.com", role="member", now=utc_now()),
            lambda: remove_member(Caller(friend), name, member_id, now=utc_now()),
        )
        assert sum(outcome is None for outcome in outcomes[:2]) == 1
        for outcome in outcomes:
            if isinstance(outcome, ApiError):
                assert isinstance(outcome, NotFound | ProjectForbidden)
        assert not Project.objects.filter(pk=project.pk).exists()

    for _ in range(8):
        race()


@pytest.mark.django_db(transaction=True)
def test_two_admins_remove_each_other() -> None:
    owner, a, b = UserFactory(), UserFactory(), UserFactory()
    project = ProjectFactory(owner=owner, admin=a)
    MembershipFactory(project=project, user=b, role="admin")
    ids = {user: place(project, user).public_id for user in (a, b)}

    def remove(by: User, who: User) -> Any:
        return lambda: remove_member(Caller(by), project.public_id, ids[who], now=utc_now())

    outcomes = run_concurrently(remove(a, b), remove(b, a))
    assert [outcome for outcome in outcomes if outcome is not None]
    assert all(isinstance(o, NotFound | Forbidden) for o in outcomes if o is not None)
    assert Membership.objects.filter(project=project).count() == 2


def test_an_invited_account_joins_in_the_time_of_its_invitation(user: User) -> None:
    project = ProjectFactory(owner=user)
    add_member(Caller(user), project.public_id, email="new@example.com", role="member", now=utc_now())
    newcomer = UserFactory(email="new@example.com")
    with time_machine.travel(utc_now() + timedelta(days=14, seconds=1)):
        assert accept_invitations(newcomer, now=utc_now()) == 0
    assert accept_invitations(newcomer, now=utc_now()) == 1

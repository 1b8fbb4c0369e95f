"""The pages of projects, for each role."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.core import mail
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings

from accounts.models import User
from core.clock import utc_now
from monitors.models import Monitor, MonitorState
from projects.access import Caller
from projects.members import add_member
from projects.models import Membership, Project, Role
from tests.factories import MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import flush_broker
from tokens.models import ProjectToken
from tokens.services import create_token

HOSTILE = "<script>alert(1)</script>"
ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt;"


def text_of(answer: Any) -> str:
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode())))


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def place_of(project: Project, user: User) -> Membership:
    return Membership.objects.get(project=project, user=user)


def path_of(project: Project, rest: str = "") -> str:
    return f"/projects/{project.public_id}{rest}"


def place_path(place: Membership) -> str:
    return path_of(place.project, f"/members/{place.public_id}")


def test_the_list_counts_states_and_names_the_role(web: Client, user: User) -> None:
    assert "No projects" in text_of(web.get("/projects"))
    shop = ProjectFactory(owner=user, name=HOSTILE)
    MonitorFactory(owner=user, project=shop, up=True)
    MonitorFactory(owner=user, project=shop, down=True)
    MonitorFactory(owner=user, project=shop)
    stale = MonitorFactory(owner=user, project=shop, up=True)
    late = utc_now() - timedelta(days=1)
    MonitorState.objects.filter(monitor__project=shop).exclude(pk=stale.pk).update(
        next_due_at=utc_now(), claimed_at=None
    )
    MonitorState.objects.filter(pk=stale.pk).update(next_due_at=late, last_checked_at=late)
    ProjectFactory(name="Joined", admin=user)
    ProjectFactory(name="Alien")
    page = web.get("/projects")
    assert "1 down 1 not checked 1 waiting 1 up owner" in text_of(page)
    assert "Joined no monitors admin" in text_of(page)
    assert "Alien" not in text_of(page)
    assert ESCAPED in page.content.decode()
    assert HOSTILE not in page.content.decode()


def test_lists_need_as_many_queries_for_one_as_for_many(web: Client, user: User) -> None:
    def queries(path: str) -> int:
        with CaptureQueriesContext(connection) as found:
            assert web.get(path).status_code == 200
        return len(found)

    def more() -> None:
        other = ProjectFactory(owner=user)
        for project in (shop, other):
            create_token(Caller(user), project_id=project.public_id, name="t", ttl_seconds=None, now=utc_now())
        add_member(Caller(user), shop.public_id, email=UserFactory().email, role="member", now=utc_now())

    shop = ProjectFactory(owner=user)
    paths = ("/projects", path_of(shop), "/tokens", "/monitors/new")
    more()
    few = [queries(path) for path in paths]
    for _ in range(3):
        more()
    assert [queries(path) for path in paths] == few
    assert max(few) <= 20


@pytest.mark.parametrize("name", ["", " ", "\x00", "n" * 201])
def test_a_bad_name_is_reported_and_kept(web: Client, user: User, name: str) -> None:
    shop = ProjectFactory(owner=user, name="Before")
    key = "a-key"
    for path in ("/projects", path_of(shop, "/rename")):
        answer = web.post(path, {"name": name, "form_key": key})
        assert answer.status_code == 200
        assert answer.content.decode().count('class="errorlist"') == 1
        if len(name) > 200:
            assert f'value="{name}"' in answer.content.decode()
    assert [project.name for project in Project.objects.all()] == ["Before"]


def test_a_form_makes_one_project_however_often_it_is_sent(web: Client) -> None:
    sent = {"name": HOSTILE, "form_key": "a-key"}
    first, again = web.post("/projects", sent), web.post("/projects", sent)
    project = Project.objects.get()
    assert first.headers["Location"] == again.headers["Location"] == path_of(project)
    assert HOSTILE not in web.get(path_of(project)).content.decode()


def test_a_project_is_renamed_and_deleted(web: Client, user: User) -> None:
    shop = ProjectFactory(owner=user)
    monitor = MonitorFactory(owner=user, project=shop)
    create_token(Caller(user), project_id=shop.public_id, name="t", ttl_seconds=None, now=utc_now())
    assert web.post(path_of(shop, "/rename"), {"name": "Stores"}).headers["Location"] == path_of(shop)
    assert "Stores" in text_of(web.get(path_of(shop)))
    page = web.get(path_of(shop)).content.decode()
    assert "Its monitors stay" in page
    assert web.post(path_of(shop, "/delete")).headers["Location"] == "/projects"
    assert not Project.objects.exists()
    assert not ProjectToken.objects.exists()
    assert Monitor.objects.get(pk=monitor.pk).project is None


def test_members_come_and_strangers_are_invited(web: Client, user: User) -> None:
    shop, bert = ProjectFactory(owner=user), UserFactory()
    sent = {"email": bert.email.upper(), "role": "member"}
    assert web.post(path_of(shop, "/members"), sent).status_code == 302
    assert place_of(shop, bert).role == Role.MEMBER
    stranger = {"email": "new@example.com", "role": "admin"}
    assert web.post(path_of(shop, "/members"), stranger).status_code == 302
    page = text_of(web.get(path_of(shop)))
    assert "Invitation sent to new@example.com." in page
    assert "new@example.com Admin; valid until" in page
    for again in (sent, stranger):
        answer = web.post(path_of(shop, "/members"), again)
        assert answer.status_code == 200
        assert "already" in text_of(answer)
        assert again["email"] in answer.content.decode(), "what was typed is kept"
    invitation = Membership.objects.get(invited_email="new@example.com")
    assert web.post(place_path(invitation), {"action": "remove"}).status_code == 302
    assert not Membership.objects.filter(invited_email="new@example.com").exists()


@pytest.mark.django_db(transaction=True)
def test_an_invitation_is_sent() -> None:
    user = UserFactory()
    shop = ProjectFactory(owner=user)
    signed_in(user).post(path_of(shop, "/members"), {"email": "new@example.com", "role": "member"})
    assert [message.to for message in mail.outbox] == [["new@example.com"]]


@pytest.mark.parametrize(
    "given",
    [
        {"email": "", "role": "member"},
        {"email": "no-domain", "role": "member"},
        {"email": f"{HOSTILE}@example.com", "role": "member"},
        {"email": "a@example.com", "role": "owner"},
        {"email": "a@example.com", "role": ""},
    ],
)
def test_bad_members_are_reported_and_kept(web: Client, user: User, given: dict[str, str]) -> None:
    shop = ProjectFactory(owner=user)
    answer = web.post(path_of(shop, "/members"), given)
    page = answer.content.decode()
    assert answer.status_code == 200
    assert page.count('class="errorlist"') == 1
    assert HOSTILE not in page
    assert unescape(page).count(f'name="email" value="{given["email"]}"') == (1 if given["email"] else 0)
    assert Membership.objects.count() == 1


def test_invitations_are_throttled_with_those_of_the_api(web: Client, user: User, settings: Settings) -> None:
    flush_broker()
    settings.THROTTLE_SCALE = 1
    settings.THROTTLES = settings.THROTTLES | {"invite": (1, 60)}
    shop = ProjectFactory(owner=user)
    for number in range(2):
        answer = web.post(path_of(shop, "/members"), {"email": f"a{number}@example.com", "role": "member"})
    assert "Too many requests" in text_of(answer)
    assert Membership.objects.filter(user=None).count() == 1


OFFERS = {
    "Add a member": ("owner", "admin"),
    "Rename": ("owner", "admin"),
    "Make admin": ("owner", "admin"),
    "Withdraw invitation": ("owner", "admin"),
    "/invitations/mbr_": ("owner", "admin"),
    "Delete project": ("owner",),
    "Leave project": ("admin", "member"),
    "New token": ("owner", "admin", "member"),
}


@pytest.mark.parametrize("role", ["owner", "admin", "member"])
def test_what_a_role_may_not_do_is_neither_offered_nor_done(db: None, role: str) -> None:
    people = {"owner": UserFactory(), "admin": UserFactory(), "member": UserFactory()}
    shop = ProjectFactory(owner=people["owner"], admin=people["admin"], member=people["member"])
    other = add_member(Caller(people["owner"]), shop.public_id, email=UserFactory().email, role="member", now=utc_now())
    add_member(Caller(people["owner"]), shop.public_id, email="new@example.com", role="member", now=utc_now())
    web = signed_in(people[role])
    page = text_of(web.get(path_of(shop)))
    assert {offer: offer in page for offer in OFFERS} == {offer: role in who for offer, who in OFFERS.items()}

    manager = role != "member"
    assert web.post(path_of(shop, "/rename"), {"name": "New"}).status_code == (302 if manager else 403)
    sent = {"email": UserFactory().email, "role": "member"}
    assert web.post(path_of(shop, "/members"), sent).status_code == (302 if manager else 403)
    for action in ("admin", "remove"):
        assert web.post(place_path(other), {"action": action}).status_code == (302 if manager else 403)
    assert Membership.objects.filter(pk=other.pk).exists() is not manager
    assert web.post(path_of(shop, "/delete")).status_code == (302 if role == "owner" else 403)


def test_the_owner_stays_the_owner(web: Client, user: User) -> None:
    shop = ProjectFactory(owner=user)
    own = place_of(shop, user)
    for action, told in (("member", "role of a project"), ("remove", "cannot be removed"), ("king", "must be one of")):
        assert web.post(place_path(own), {"action": action}).headers["Location"] == path_of(shop)
        assert told in text_of(web.get(path_of(shop)))
    assert place_of(shop, user).role == Role.OWNER


def test_a_member_leaves_and_sees_nothing_any_more(web: Client, user: User) -> None:
    shop = ProjectFactory(member=user)
    assert web.post(place_path(place_of(shop, user)), {"action": "remove"}).headers["Location"] == "/projects"
    assert web.get(path_of(shop)).status_code == 404


def test_a_project_of_another_account_is_not_found(web: Client) -> None:
    alien = ProjectFactory()
    owner_place = Membership.objects.get(project=alien)
    assert web.get(path_of(alien)).status_code == 404
    for path, sent in (
        (path_of(alien, "/rename"), {"name": "x"}),
        (path_of(alien, "/delete"), {}),
        (path_of(alien, "/members"), {"email": "a@example.com", "role": "member"}),
        (place_path(owner_place), {"action": "remove"}),
    ):
        assert web.post(path, sent).status_code == 404
        assert web.get(path).status_code == 405


def test_forms_are_refused_without_their_token(user: User) -> None:
    web = Client(enforce_csrf_checks=True)
    web.force_login(user)
    shop = ProjectFactory(owner=user)
    rest = ("", "/rename", "/delete", "/members", f"/members/{place_of(shop, user).public_id}")
    assert [web.post(path_of(shop, part)).status_code for part in rest] == [403] * len(rest)
    assert web.post("/projects", {"name": "x", "form_key": "k"}).status_code == 403


def test_an_invitation_that_ran_out_is_not_shown(web: Client, user: User) -> None:
    shop = ProjectFactory(owner=user)
    add_member(
        Caller(user), shop.public_id, email="late@example.com", role="member", now=utc_now() - timedelta(days=15)
    )
    assert "late@example.com" not in text_of(web.get(path_of(shop)))

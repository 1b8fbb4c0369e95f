"""The pages of API tokens."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.test import Client

from accounts.models import User
from core.clock import utc_now
from projects.access import Caller
from projects.models import Project
from tests.api.client import Api
from tests.factories import ProjectFactory, UserFactory
from tests.helpers import run_concurrently
from tokens.models import ProjectToken
from tokens.services import create_token

HOSTILE = "<script>alert(1)</script>"
NEW = "/tokens/new"


def typed(project: Project, **given: str) -> dict[str, str]:
    return {
        "form_key": "a-key",
        "name": "Pipeline",
        "project_id": project.public_id,
        "access": "write",
        "lifetime": "never",
        "custom": "",
    } | given


def text_of(answer: Any) -> str:
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode())))


def plaintexts_in(answer: Any) -> set[str]:
    return set(re.findall(r"svc_\w+", answer.content.decode()))


def make_token(user: User, project: Project, *, name: str = "Pipeline", age: timedelta = timedelta(0)) -> ProjectToken:
    return create_token(Caller(user), project_id=project.public_id, name=name, ttl_seconds=60, now=utc_now() - age)[0]


def test_a_token_is_shown_once_and_works(web: Client, user: User) -> None:
    sent = typed(ProjectFactory(owner=user), name=HOSTILE)
    answer = web.post(NEW, sent)
    (plaintext,) = plaintexts_in(answer)
    assert Api(plaintext).get("/v1/monitors").status == 200
    assert "no-store" in answer.headers["Cache-Control"]
    assert f"curl -H 'Authorization: Bearer {plaintext}'" in text_of(answer).replace('"', "'")
    assert HOSTILE not in answer.content.decode()
    assert "Access read and write" in text_of(answer)

    again = web.post(NEW, sent, follow=True)  # what a reload sends
    assert again.redirect_chain == [("/tokens", 302)]
    assert "was already created" in text_of(again)
    assert not plaintexts_in(again)
    assert HOSTILE not in again.content.decode()
    assert ProjectToken.objects.count() == 1
    only_read = web.post(NEW, sent | {"access": "read", "form_key": "another"})
    assert "Access read only" in text_of(only_read)


@pytest.mark.django_db(transaction=True)
def test_a_double_click_makes_one_token() -> None:
    user = UserFactory()
    project = ProjectFactory(owner=user)

    def send() -> int:
        web = Client()
        web.force_login(user)
        return int(web.post(NEW, typed(project)).status_code)

    assert sorted(run_concurrently(send, send, send), key=str) == [200, 302, 302]
    assert ProjectToken.objects.count() == 1


@pytest.mark.parametrize(
    ("lifetime", "custom", "lives"),
    [
        ("never", "", None),
        ("7d", "nonsense", timedelta(days=7)),
        ("90d", "", timedelta(days=90)),
        ("custom", "12h", timedelta(hours=12)),
        ("custom", "60", timedelta(seconds=60)),
        ("custom", "90d", timedelta(days=90)),
    ],
)
def test_how_long_a_token_lives(web: Client, user: User, lifetime: str, custom: str, lives: timedelta | None) -> None:
    assert web.post(NEW, typed(ProjectFactory(owner=user), lifetime=lifetime, custom=custom)).status_code == 200
    token = ProjectToken.objects.get()
    assert (None if token.expires_at is None else token.expires_at - token.created_at) == lives


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"name": ""}, "This field is required."),
        ({"name": "n" * 201}, "at most 200 characters"),
        ({"name": "\x00"}, "Null characters"),
        ({"project_id": ""}, "This field is required."),
        ({"project_id": "prj_of_nobody"}, "not one of the available choices"),
        ({"lifetime": "1d"}, "not one of the available choices"),
        ({"lifetime": "custom"}, "Enter a lifetime"),
        ({"lifetime": "custom", "custom": "59s"}, "At least 1m."),
        ({"lifetime": "custom", "custom": "91d"}, "At most 90d."),
        ({"lifetime": "custom", "custom": "a while"}, "Enter a duration such as"),
    ],
)
def test_bad_input_is_reported_and_kept(web: Client, user: User, given: dict[str, str], error: str) -> None:
    answer = web.post(NEW, typed(ProjectFactory(owner=user), name=HOSTILE) | given)
    page = answer.content.decode()
    assert answer.status_code == 200
    assert page.count('class="errorlist"') == 1
    assert error in text_of(answer)
    assert HOSTILE not in page
    if "name" not in given:
        assert f'value="{HOSTILE}"' in unescape(page)
    assert not ProjectToken.objects.exists()


def test_a_project_of_another_account_gets_no_token(web: Client) -> None:
    assert web.post(NEW, typed(ProjectFactory())).status_code == 200
    assert not ProjectToken.objects.exists()


def test_the_list_shows_whose_they_are_and_when_they_end(web: Client, user: User) -> None:
    assert "No API tokens" in text_of(web.get("/tokens"))
    shop, alien = ProjectFactory(owner=user, name=HOSTILE), UserFactory()
    make_token(user, shop, name=HOSTILE)
    make_token(user, shop, name="Old", age=timedelta(days=1))
    make_token(alien, ProjectFactory(owner=alien), name="Foreign")
    page = web.get("/tokens")
    assert text_of(page).count("Revoke") == 3, "two buttons, and the column's name"
    assert "expired" in text_of(page)
    assert user.email in text_of(page)
    assert "Foreign" not in text_of(page)
    assert HOSTILE not in page.content.decode()


def test_who_has_no_project_is_led_to_making_one(web: Client) -> None:
    assert "Create a project" in text_of(web.get("/tokens"))
    assert "No project yet" in text_of(web.get(NEW))


def test_a_member_revokes_his_own_tokens_and_a_manager_all(web: Client, user: User) -> None:
    owner = UserFactory()
    shop = ProjectFactory(owner=owner, member=user)
    own, other = make_token(user, shop, name="Mine"), make_token(owner, shop, name="Others")
    page = web.get("/tokens").content.decode()
    assert (own.public_id in page, other.public_id in page) == (True, False)
    assert web.post(f"/tokens/{other.public_id}/revoke").status_code == 403
    assert web.post(f"/tokens/{own.public_id}/revoke").headers["Location"] == "/tokens"
    assert web.post(f"/tokens/{own.public_id}/revoke").status_code == 404
    manager = Client()
    manager.force_login(owner)
    assert manager.post(f"/tokens/{other.public_id}/revoke").status_code == 302
    assert not ProjectToken.objects.exists()


def test_foreign_tokens_are_not_there(web: Client) -> None:
    alien = UserFactory()
    token = make_token(alien, ProjectFactory(owner=alien))
    assert web.post(f"/tokens/{token.public_id}/revoke").status_code == 404
    assert web.get(f"/tokens/{token.public_id}/revoke").status_code == 405


def test_forms_are_refused_without_their_token(user: User) -> None:
    web = Client(enforce_csrf_checks=True)
    web.force_login(user)
    shop = ProjectFactory(owner=user)
    token = make_token(user, shop)
    assert web.post(NEW, typed(shop)).status_code == 403
    assert web.post(f"/tokens/{token.public_id}/revoke").status_code == 403
    assert ProjectToken.objects.count() == 1

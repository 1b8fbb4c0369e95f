"""Pages of the security log: of an account and of a project."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

import audit.services
from accounts.models import User
from audit.actions import Action
from audit.models import Entry
from dashboard import security_log
from projects.access import Caller
from projects.services import update_project
from tests.factories import ProjectFactory, UserFactory


def text(client: Client, path: str, status: int = 200) -> str:
    answer = client.get(path)
    assert answer.status_code == status
    return answer.content.decode()


def test_one_s_own(web: Client, user: User) -> None:
    project = ProjectFactory(owner=user, name="Shop <1>")
    audit.services.record_failure(Action.SIGN_IN_FAILED, subject=user, details={"door": "api"})
    page = text(web, "/account/log/")
    for said in (
        "Created the project",
        "Shop &lt;1&gt;",
        f"/projects/{project.public_id}",
        "over the API",
        "by a command",
    ):
        assert said in page
    page = text(web, "/account/log/?action=sign_in.failed")
    assert "Failed to sign in</span>" in page
    assert "Created the project</span>" not in page
    assert "No matching entries" in text(web, "/account/log/?action=connector.linked")
    assert "Created the project</span>" in text(web, "/account/log/?action=nonsense&before=1e9")


def test_an_action_of_a_newer_version(web: Client, user: User) -> None:
    ProjectFactory(owner=user)
    Entry.objects.update(action="project.moved")
    assert "project.moved" in text(web, "/account/log/")


def test_a_project_s_is_for_those_who_manage_it(web: Client, user: User) -> None:
    admin, member = UserFactory(), UserFactory()
    project = ProjectFactory(owner=user, admin=admin, member=member)
    path = f"/projects/{project.public_id}/log"
    assert path in text(web, f"/projects/{project.public_id}")
    for person, status in ((user, 200), (admin, 200), (member, 403), (UserFactory(), 404)):
        client = Client()
        client.force_login(person)
        shown = text(client, path, status)
        assert ("Created the project" in shown) == (status == 200)
    client = Client()
    client.force_login(member)
    assert path not in text(client, f"/projects/{project.public_id}")
    assert Client().get(path).status_code == 302


def test_pages_of_it_in_as_many_queries_as_one_entry_takes(
    web: Client, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(security_log, "PAGE", 10)

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            text(web, "/account/log/")
        return len(captured)

    project = ProjectFactory(owner=user)
    text(web, "/account/log/")
    one = queries()
    for number in range(15):
        update_project(Caller(user), ProjectFactory(owner=user).public_id, {"name": f"n{number:02}"})
    update_project(Caller(user), project.public_id, {"name": "last"})
    assert queries() == one
    page, seen = text(web, "/account/log/?action=project.updated"), 0
    while True:
        seen += page.count("Changed the project</span>")
        if 'rel="next"' not in page:
            break
        page = text(
            web,
            "/account/log/" + page.split('rel="next"')[0].rpartition('href="')[2].split('"')[0].replace("&amp;", "&"),
        )
    assert seen == 16

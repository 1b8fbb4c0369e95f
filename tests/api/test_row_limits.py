"""Rows that one request reads together are limited in number."""

from __future__ import annotations

from typing import Any

import pytest

from accounts.models import User
from tests.api.client import Api
from tests.factories import IncidentFactory, MonitorFactory, ProjectFactory, UserFactory
from tests.statuspages.making import make_page

pytestmark = pytest.mark.django_db
UPDATE = {"title": "t", "text": "t", "status": "investigating"}


def project(user: User) -> tuple[str, Any]:
    return "/v1/projects", {"name": "p"}


def token(user: User) -> tuple[str, Any]:
    return "/v1/tokens", {"project_id": ProjectFactory(owner=user).public_id, "name": "t"}


def member(user: User) -> tuple[str, Any]:
    path = f"/v1/projects/{ProjectFactory(owner=user).public_id}/members"
    return path, {"email": "{n}@example.com", "role": "member"}


def comment(user: User) -> tuple[str, Any]:
    incident = IncidentFactory(monitor=MonitorFactory(owner=user))
    return f"/v1/incidents/{incident.public_id}/comments", {"text": "t"}


def update(user: User) -> tuple[str, Any]:
    page = make_page(user, [])
    note = Api.signed_in(user).post(f"/v1/status-pages/{page.public_id}/notes", UPDATE).json
    return f"/v1/status-pages/{page.public_id}/notes/{note['id']}/updates", {"text": "t", "status": "investigating"}


@pytest.mark.parametrize(
    ("make", "limit", "there"),
    [
        (project, "projects.services.MAX_PROJECTS", 0),
        (token, "tokens.services.MAX_TOKENS", 0),
        (member, "projects.members.MAX_MEMBERS", 1),
        (comment, "incidents.services.MAX_COMMENTS", 0),
        (update, "statuspages.services.MAX_UPDATES", 1),
    ],
)
def test_the_number_is_limited(make: Any, limit: str, there: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit, 3)
    user = UserFactory()
    path, body = make(user)
    api = Api.signed_in(user)
    answers = []
    for number in range(5 - there):
        named = {key: value.replace("{n}", str(number)) for key, value in body.items()}
        answers.append(api.post(path, named))
    assert [answer.status < 300 for answer in answers] == [True] * (3 - there) + [False] * 2
    assert answers[-1].status == 403
    assert answers[-1].json["error"] == "limit_reached"
    assert answers[-1].json["limit"] == 3


def test_a_note_at_its_limit_can_be_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statuspages.services.MAX_UPDATES", 1)
    user = UserFactory()
    path, body = update(user)
    assert Api.signed_in(user).post(path, body | {"status": "resolved"}).status == 201

"""Rows that one request reads together are limited in number."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection

from accounts.models import User
from tests.api.client import Api
from tests.factories import ChannelFactory, IncidentFactory, MonitorFactory, ProjectFactory, UserFactory
from tests.statuspages.making import make_page

pytestmark = pytest.mark.django_db
SOON = 1_900_000_000_000
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


def test_an_account_chooses_a_limited_number_of_monitors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("projects.placement.MAX_LINKS", 6)
    user = UserFactory()
    api = Api.signed_in(user)
    ids = [MonitorFactory(owner=user).public_id for _ in range(3)]
    chosen = {"monitors": "chosen", "monitor_ids": ids[:2]}
    groups = [{"monitors": [{"monitor_id": one, "name": "n"} for one in ids[:2]]}]
    bodies: dict[str, Any] = {
        "/v1/alert-channels": {"kind": "webhook", "url": "https://hooks.example.com/"} | chosen,
        "/v1/maintenance-windows": {"name": "w", "starts_at": SOON, "ends_at": SOON + 60_000} | chosen,
        "/v1/status-pages": {"name": "p", "slug": "p", "groups": groups},
    }
    made = [f"{path}/{api.post(path, body).json['id']}" for path, body in bodies.items()]
    more = [chosen | {"monitor_ids": ids}, chosen | {"monitor_ids": ids}, {"groups": groups + _group(ids[2])}]
    answers = [api.post(path, body | {"slug": "q"} if "slug" in body else body) for path, body in bodies.items()]
    answers += [api.patch(path, body) for path, body in zip(made, more, strict=True)]
    assert {(answer.status, answer.json["error"], answer.json["limit"]) for answer in answers} == {
        (403, "limit_reached", 6)
    }
    # The same number and fewer are accepted, and leave room for others.
    assert api.patch(made[0], chosen | {"monitor_ids": ids[1:]}).status == 200
    assert api.patch(made[1], {"monitors": "all", "monitor_ids": []}).status == 200
    assert [api.patch(path, body).status for path, body in zip(made[1:], more[1:], strict=True)] == [403, 200]
    other = Api.signed_in(UserFactory())
    assert other.post("/v1/status-pages", {"name": "p", "slug": "r"}).status == 201


def _group(monitor_id: str) -> list[dict[str, Any]]:
    return [{"name": "more", "monitors": [{"monitor_id": monitor_id, "name": "n"}]}]


@pytest.mark.django_db(transaction=True)
def test_concurrent_changes_count_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("projects.placement.MAX_LINKS", 3)
    user = UserFactory()
    monitors = [MonitorFactory(owner=user).public_id for _ in range(2)]
    channels = [ChannelFactory(owner=user, monitors="chosen", monitor_ids=monitors[:1]) for _ in range(2)]
    with ThreadPoolExecutor() as threads:
        statuses = threads.map(lambda channel: _choose(user, channel.public_id, monitors), channels)
    assert sorted(statuses) == [200, 403]


def _choose(user: User, channel_id: str, monitor_ids: list[str]) -> Any:
    try:
        return Api.signed_in(user).patch(f"/v1/alert-channels/{channel_id}", {"monitor_ids": monitor_ids}).status
    finally:
        connection.close()


def test_a_note_at_its_limit_can_be_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statuspages.services.MAX_UPDATES", 1)
    user = UserFactory()
    path, body = update(user)
    assert Api.signed_in(user).post(path, body | {"status": "resolved"}).status == 201

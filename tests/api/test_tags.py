"""Tags of monitors over the API: stored, listed and found."""

from __future__ import annotations

from typing import Any

import pytest

from accounts.models import User
from core.clock import utc_now
from monitors.models import Monitor
from monitors.services import create_monitor
from projects.access import Caller
from tests.api.client import Api
from tests.factories import ProjectFactory, UserFactory


def tagged(user: User, *tags: str, **given: Any) -> Monitor:
    return create_monitor(Caller(user), {"url": "http://shop.example/", "tags": list(tags), **given}, now=utc_now())


def test_they_come_back_trimmed_and_in_the_given_order(api: Api, no_worker: None) -> None:
    made = api.post("/v1/monitors", {"type": "heartbeat", "tags": [" web ", "Produktion", "a\u0308"]})
    assert (made.status, made.json["tags"]) == (201, ["web", "Produktion", "\u00e4"])
    path = f"/v1/monitors/{made.json['id']}"
    assert api.patch(path, {"name": "Other"}).json["tags"] == made.json["tags"]
    assert api.patch(path, made.json).json["tags"] == made.json["tags"]
    assert api.patch(path, {"tags": ["b", "a"]}).json["tags"] == ["b", "a"]
    refused = api.patch(path, {"tags": ["a", "A"]})
    assert (refused.status, refused.json["error"]) == (422, "validation_error")
    assert api.patch(path, {"tags": []}).json["tags"] == []
    assert api.post("/v1/monitors", {"type": "heartbeat"}).json["tags"] == []


def test_a_change_has_another_etag_and_is_logged_with_values(api: Api, user: User) -> None:
    monitor = tagged(user, "web", "db")
    path = f"/v1/monitors/{monitor.public_id}"
    before = api.get(path).headers["ETag"]
    assert api.patch(path, {"tags": ["web"]}).headers["ETag"] != before
    entry = api.get("/v1/account/audit-log").json[0]
    assert entry["details"]["changes"] == [{"field": "tags", "before": "web; db", "after": "web"}]


def test_the_list_counts_monitors_and_ignores_case(api: Api, user: User) -> None:
    assert api.get("/v1/tags").json == []
    tagged(user, "Web", "zone b")
    tagged(user, "web", "Äpfel", "äußer")
    tagged(user, "WEB", "ÄUSSER")
    tagged(user)
    assert api.get("/v1/tags").json == [
        {"name": "WEB", "monitors": 3},
        {"name": "zone b", "monitors": 1},
        {"name": "Äpfel", "monitors": 1},
        {"name": "ÄUSSER", "monitors": 2},
    ]


def test_each_caller_sees_the_tags_of_their_monitors(user: User) -> None:
    member, stranger = UserFactory(), UserFactory()
    project = ProjectFactory(owner=user, member=member)
    tagged(user, "own")
    tagged(user, "shared", project_id=project.public_id)
    tagged(stranger, "foreign")

    def names(api: Api) -> list[str]:
        return [tag["name"] for tag in api.get("/v1/tags").json]

    assert names(Api.signed_in(user)) == ["own", "shared"]
    assert names(Api.signed_in(member)) == names(Api.with_token(user, project)) == ["shared"]
    assert names(Api.signed_in(stranger)) == ["foreign"]


def test_a_tag_is_gone_with_its_last_monitor(api: Api, user: User) -> None:
    monitor = tagged(user, "web")
    assert api.delete(f"/v1/monitors/{monitor.public_id}").status == 200
    assert api.get("/v1/tags").json == []


@pytest.mark.usefixtures("no_worker")
def test_an_account_export_has_them(api: Api, user: User) -> None:
    tagged(user, "Web")
    (monitor,) = api.get("/v1/account/export").json["monitors"]
    assert monitor["tags"] == ["Web"]

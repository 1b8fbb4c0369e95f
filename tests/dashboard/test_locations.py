"""Locations in the form and on the page of a monitor, and the pages of locations."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.test import Client

from accounts.models import User
from core.clock import utc_now
from locations.models import Location
from monitors.models import Monitor
from projects.models import Membership, Project
from tests.api.client import Api
from tests.dashboard.test_monitor_pages import typed
from tests.dashboard.test_two_tabs import differences, opened
from tests.factories import MonitorFactory, ProjectFactory, UserFactory
from tests.locations import add_agent, shared

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_worker")]

OFFERED = "locations_offered"


def private(owner: User, name: str = "Office", **given: Any) -> Location:
    return Location.objects.create(owner=owner, name=name, created_at=utc_now(), **given)


@pytest.fixture
def project(user: User) -> Project:
    return ProjectFactory(owner=user, name="Shop")


def text_of(web: Client, path: str, **query: Any) -> str:
    answer = web.get(path, query)
    assert answer.status_code == 200
    return unescape(" ".join(answer.content.decode().split()))


def test_with_the_default_location_alone_the_form_shows_nothing(web: Client, user: User) -> None:
    private(UserFactory())
    monitor = MonitorFactory(owner=user)
    for path in ("/monitors/new", f"/monitors/{monitor.public_id}/edit"):
        assert 'name="locations"' not in text_of(web, path)
        assert 'name="quorum"' not in text_of(web, path)
    assert "Check from" not in text_of(web, f"/monitors/{monitor.public_id}")
    assert web.post("/monitors/new", typed()).status_code == 302
    assert Monitor.objects.latest("pk").locations == ["default"]


def test_the_form_shows_the_state_of_each_location(web: Client, user: User, project: Project) -> None:
    add_agent(shared(preselected=True), seen=utc_now())
    add_agent(private(user, "Cellar <1>"))
    private(user)
    private(user, "Stall", project=project)
    page = web.get("/monitors/new").content.decode()
    assert "Cellar &lt;1&gt;" in page
    page = unescape(" ".join(page.split()))
    for name, state in {
        "Frankfurt": "online · shared",
        "Cellar <1>": "offline · private",
        "Office": "no agent yet · private",
    }.items():
        assert f'{name} <span class="muted small">{state}' in page
    assert "Stall" not in page
    assert "Stall" in text_of(web, "/monitors/new", project=project.public_id)
    assert "Two: both must see an outage." in page
    assert re.findall('name="locations" value="([^"]*)" checked', page) == ["default", "fra"], "the preselected ones"


def test_locations_and_quorum_are_stored(web: Client, user: User) -> None:
    for name in ("fra", "sin"):
        shared(name, name=name)
    given = typed(locations=["default", "sin"], quorum="2")
    assert web.post("/monitors/new", given).status_code == 302
    monitor = Monitor.objects.get()
    assert (monitor.locations, monitor.quorum) == (["default", "sin"], 2)
    page = text_of(web, f"/monitors/{monitor.public_id}")
    assert "<dt>Locations that must agree</dt><dd>2</dd>" in page

    path = f"/monitors/{monitor.public_id}/edit"
    assert opened(web, path)["locations"] == ["default", "sin"]
    version = monitor.config_version
    assert web.post(path, opened(web, path) | {"name": "Renamed"}).status_code == 302
    monitor.refresh_from_db()
    assert (monitor.config_version, monitor.quorum) == (version, 2), "nothing else was changed"
    assert web.post(path, opened(web, path) | {"locations": ["fra", "sin"], "quorum": ""}).status_code == 302
    monitor.refresh_from_db()
    assert (monitor.locations, monitor.quorum) == (["sin", "fra"], None), "the order stays"
    assert web.post(path, typed()).status_code == 302
    monitor.refresh_from_db()
    assert monitor.locations == ["sin", "fra"], "a form without locations keeps them"
    same = Api.signed_in(user).patch(f"/v1/monitors/{monitor.public_id}", {"locations": ["sin", "fra"]})
    assert same.status == 200
    assert Monitor.objects.get().config_version == monitor.config_version, "a list of the same locations is no change"
    log = text_of(web, f"/monitors/{monitor.public_id}/changes")
    assert "sin; fra" in log


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"locations": [], OFFERED: "default fra"}, "Needs at least one location."),
        ({"locations": ["fra"], "quorum": "2"}, "Is more than the number of locations."),
        ({"locations": ["fra", "x" * 50]}, "40"),
        ({"locations": ["fra", "gone"]}, "cannot be checked from"),
    ],
)
def test_what_is_refused_is_explained_beside_the_field(web: Client, given: dict[str, Any], error: str) -> None:
    shared()
    answer = web.post("/monitors/new", typed(**given))
    assert answer.status_code == 200
    page = answer.content.decode()
    assert error in page.split('id="locations"')[1].split("</section>")[0]
    assert not Monitor.objects.exists()


def test_another_project_offers_its_locations(web: Client, user: User, project: Project) -> None:
    mine, stall = private(user), private(user, "Stall", project=project, preselected=True)
    before = {"locations": ["default", mine.public_id], OFFERED: f"default {mine.public_id}"}
    page = text_of(web, "/monitors/locations", project_id=project.public_id, quorum="2", **before)
    for location in ("default", mine.public_id, stall.public_id):
        assert f'value="{location}" checked' in page
    assert 'value="2"' in page
    assert 'value="default" checked' not in text_of(
        web, "/monitors/locations", project_id=project.public_id, **before | {"locations": [mine.public_id]}
    )
    assert "Stall" not in text_of(web, "/monitors/locations", project_id="", **before)
    assert "Stall" not in text_of(web, "/monitors/locations", project_id="nonsense", **before)

    monitor = MonitorFactory(owner=user, project=project, locations=["default"])
    path = f"/monitors/{monitor.public_id}/edit"
    moved = opened(web, path) | {"locations": [stall.public_id], "project_id": ""}
    refused = web.post(path, moved).content.decode()
    assert "cannot be checked from" in refused
    page = text_of(web, "/monitors/locations", monitor=monitor.public_id, project_id=project.public_id)
    assert f'value="{stall.public_id}" checked' not in page, "only a new monitor gets the preselected ones"


def test_a_member_keeps_a_location_of_the_owner_alone(web: Client, user: User) -> None:
    owner = UserFactory()
    shop = ProjectFactory(owner=owner)
    Membership.objects.create(project=shop, user=user, role="member")
    theirs, other = private(owner, "Attic"), private(owner, "Shed")
    monitor = MonitorFactory(owner=owner, project=shop, locations=["default", theirs.public_id])
    path = f"/monitors/{monitor.public_id}/edit"
    assert "Attic" in text_of(web, path)
    assert other.name not in text_of(web, path)
    assert web.post(path, opened(web, path) | {"name": "Renamed"}).status_code == 302
    monitor.refresh_from_db()
    assert monitor.locations == ["default", theirs.public_id]


def test_two_tabs_that_change_locations(web: Client, user: User) -> None:
    shared()
    monitor = MonitorFactory(owner=user, name="First")
    path = f"/monitors/{monitor.public_id}/edit"
    mine = opened(web, path)
    assert web.post(path, opened(web, path) | {"locations": ["default", "fra"]}).status_code == 302
    page = web.post(path, mine | {"name": "Mine"}).content.decode()
    assert ("Check from", "Default", "Default; Frankfurt") in differences(page)
    page = web.post(path, typed(form_etag=mine["form_etag"][0])).content.decode()
    assert "Check from" not in [label for label, _, _ in differences(page)], "it was sent without"

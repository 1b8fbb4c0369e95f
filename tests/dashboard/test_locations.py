"""Locations in the form and on the page of a monitor, and the pages of locations."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from accounts.models import User
from checks.agent_protocol import PROTOCOL
from checks.results.models import CheckResult
from core.clock import utc_now
from locations import services
from locations.models import Agent, Location
from monitors.models import LocationFailure, Monitor, MonitorState
from monitors.stale import NOWHERE
from projects.models import Membership, Project
from tests.api.client import Api
from tests.dashboard.test_monitor_pages import typed
from tests.dashboard.test_monitors import queries
from tests.dashboard.test_two_tabs import HOSTILE, differences, opened
from tests.factories import MonitorFactory, PlanFactory, ProjectFactory, UserFactory
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
    assert Monitor.objects.get().config_version == monitor.config_version, "the same locations in a list change nothing"
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


def partial_outage(monitor: Monitor, location: Location, **given: Any) -> LocationFailure:
    given = {"failures": 3, "since": utc_now(), "detail": f"No way from {HOSTILE}."} | given
    version = {"config_version": monitor.config_version}
    key = None if location.is_default else location.pk
    return LocationFailure.objects.create(monitor=monitor, location_id=key, **version, **given)


def test_a_partial_outage_is_shown_and_its_location_left_out(web: Client, user: User) -> None:
    here, there = Location.objects.get(), shared(name=HOSTILE)
    add_agent(there, seen=utc_now())
    other = MonitorFactory(owner=user, name="Fine", up=True)
    monitor = MonitorFactory(owner=user, name="Mine", up=True, locations=["default", "fra"], quorum=2)
    partial_outage(monitor, here, failures=2)
    path = f"/monitors/{monitor.public_id}"
    assert "Leave out" not in text_of(web, path)
    failure = partial_outage(monitor, there)
    page = web.get(path).content.decode()
    assert HOSTILE not in page
    assert "Partial outage" in page
    assert "3 checks in a row" in page
    assert page.count("Leave out") == 1
    overview = web.get("/monitors", {"state": "partial"}).content.decode()
    assert HOSTILE not in overview
    assert "Fails from" in overview
    assert monitor.public_id in overview
    assert other.public_id not in overview
    (url,) = re.findall('action="(/monitors/[^"]+/leave-out/[^"]+)"', page)
    assert web.post(url, follow=True).status_code == 200
    monitor.refresh_from_db()
    assert (monitor.locations, monitor.quorum) == (["default"], 1)
    assert "Partial outage" not in text_of(web, path).split("<main")[1].split('id="facts"')[0]
    assert web.post(url).status_code == 404
    assert web.post(url.replace("fra", "default")).status_code == 422
    assert failure.failures == 3


def test_who_may_leave_a_location_out(web: Client) -> None:
    shared()
    monitor = MonitorFactory(locations=["default", "fra"])
    assert web.post(f"/monitors/{monitor.public_id}/leave-out/fra").status_code == 404
    assert web.get(f"/monitors/{monitor.public_id}/leave-out/fra").status_code in (404, 405)
    monitor.refresh_from_db()
    assert monitor.locations == ["default", "fra"]


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


def command_in(page: str) -> str:
    (command,) = re.findall(r">(pulsekeeper agent [^<]+)<", page)
    return str(command)


def test_a_location_is_created_connected_and_deleted(web: Client, user: User, settings: Settings) -> None:
    settings.BASE_URL = "https://status.example"
    given = {"form_key": "a-key", "name": HOSTILE, "project_id": ""}
    answer = web.post("/locations", given)
    page = answer.content.decode()
    location = Location.objects.get(owner=user)
    path = f"/locations/{location.public_id}"
    assert "--allow 10.0.0.0/8" in page, "else it refuses what is in the same network"
    token = command_in(page).removeprefix("pulsekeeper agent --server https://status.example --join ")
    assert "no-store" in answer.headers["Cache-Control"]
    assert HOSTILE not in page
    again = web.post("/locations", given, follow=True)  # what a reload sends
    assert again.redirect_chain == [(path, 302)]
    assert token not in again.content.decode()

    (poll,) = re.findall('data-poll="([^"]+)"', page)
    assert web.get(poll).status_code == 204
    agent, _ = services.join(token=token, name=HOSTILE, version="1.0", protocol=PROTOCOL, now=utc_now())
    joined = web.get(poll).content.decode()
    assert ">joined<" in joined
    Agent.objects.update(last_seen_at=utc_now(), checks_per_min=7, lag_ms=40)
    connected = web.get(poll).content.decode()
    assert ">connected<" in connected
    assert "40 ms" in connected
    assert HOSTILE not in connected
    (poll,) = re.findall('data-poll="([^"]+)"', connected)
    assert web.get(poll).status_code == 204

    assert command_in(web.post(f"{path}/join-token").content.decode()) != command_in(page)
    assert web.post(f"{path}/agents/{agent.public_id}/revoke").status_code == 302
    assert not Agent.objects.exists()
    assert web.post(path, opened(web, path) | {"name": "Office", "preselected": "on"}).status_code == 302
    location.refresh_from_db()
    assert (location.name, location.preselected) == ("Office", True)
    assert "Office" in text_of(web, "/locations")

    monitor = MonitorFactory(owner=user, locations=[location.public_id])
    refused = web.post(f"{path}/delete", follow=True)
    assert "Monitors are checked from this location" in refused.content.decode()
    monitor.delete()
    assert web.post(f"{path}/delete").status_code == 302
    assert web.get(path).status_code == 404


def test_the_limit_of_the_plan_is_a_message_on_the_form(web: Client, user: User) -> None:
    user.plan = PlanFactory(location_limit=1)
    user.save()
    private(user)
    page = web.post("/locations", {"form_key": "a-key", "name": "Second", "project_id": ""}).content.decode()
    assert "The plan&#x27;s limit of private locations is reached." in page
    assert 'value="Second"' in page


@pytest.mark.parametrize("role", ["owner", "admin", "member", None])
def test_who_may_change_the_location_of_a_project(web: Client, user: User, role: str | None) -> None:
    owner = user if role == "owner" else UserFactory()
    shop = ProjectFactory(owner=owner, name="Shop")
    if role in ("admin", "member"):
        Membership.objects.create(project=shop, user=user, role=role)
    location = private(owner, "Stall", project=shop)
    agent, path = add_agent(location), f"/locations/{location.public_id}"
    writes = [path, f"{path}/join-token", f"{path}/agents/{agent.public_id}/revoke", f"{path}/delete"]
    if role is None:
        assert [web.get(one).status_code for one in (path, f"{path}/live")] == [404, 404]
        assert "Stall" not in text_of(web, "/locations")
    else:
        page = text_of(web, path)
        shown = [f'action="{one}"' in page for one in writes]
        assert shown == [role != "member"] * 4
        assert "Stall" in text_of(web, "/locations")
        assert (">Shop</option>" in text_of(web, "/locations")) == (role != "member")
    answers = [web.post(one, {"name": "Other"}, follow=True) for one in writes]
    if role in (None, "member"):
        assert Location.objects.get(pk=location.pk).name == "Stall"
        assert Agent.objects.count() == 1
        assert not any("pulsekeeper agent" in answer.content.decode() for answer in answers)
    else:
        assert not Location.objects.filter(pk=location.pk).exists()


@pytest.mark.parametrize("is_staff", [True, False])
def test_staff_change_shared_locations(web: Client, user: User, *, is_staff: bool) -> None:
    shared()
    user.is_staff = user.is_superuser = is_staff
    user.save()
    for path in ("/locations/fra", "/locations/default"):
        assert (f'action="{path}"' in text_of(web, path)) == is_staff
        assert f'action="{path}/delete"' not in text_of(web, "/locations/default")
        web.post(path, {"preselected": "on", "name": "Other"})
    fra = Location.objects.get(public_id="fra")
    assert (fra.name, fra.preselected) == (("Other", True) if is_staff else ("Frankfurt", False))
    assert web.post("/locations/default/join-token", follow=True).status_code == 200


def test_the_pages_take_as_many_queries_for_one_as_for_many(web: Client, user: User, project: Project) -> None:
    path = f"/locations/{private(user, project=project).public_id}"
    monitor = MonitorFactory(owner=user)
    paths = ("/locations", path, f"{path}/live", f"/monitors/{monitor.public_id}/edit", "/monitors/new")
    for number in range(2):
        add_agent(Location.objects.get(owner=user, project=project), name=f"one-{number}", seen=utc_now())
        add_agent(shared(f"one-{number}"), seen=utc_now())
    few = [queries(web, one) for one in paths]
    for number in range(5):
        other = private(user, f"Office {number}")
        add_agent(other, name=f"probe-{number}", seen=utc_now())
        add_agent(Location.objects.get(owner=user, project=project), name=f"probe-{number}")
    assert [queries(web, one) for one in paths] == few


def test_the_page_of_a_monitor_shows_its_locations(web: Client, user: User) -> None:
    fra, office = shared(), private(user, HOSTILE)
    add_agent(fra, seen=utc_now())
    monitor = MonitorFactory(owner=user, locations=["default", "fra", office.public_id])
    path, now = f"/monitors/{monitor.public_id}", utc_now()
    for claim, (location, verdict, confirmed) in enumerate(
        [(None, "up", None), (fra.pk, "up", None), (fra.pk, "down", False), (10**6, "up", None)]
    ):
        CheckResult.objects.create(
            monitor_id=monitor.pk,
            checked_at=now - timedelta(seconds=50 - claim),
            claim=claim,
            location_id=location,
            verdict=verdict,
            latency_ms=120 + claim,
            confirmed=confirmed,
            reason_code="timeout" if verdict == "down" else None,
        )
    page = web.get(path).content.decode()
    assert HOSTILE not in page
    page = " ".join(page.split())
    card = page.split('id="places"')[1].split("</section>")[0]
    rows = [" ".join(re.sub("<[^>]+>", " ", row).split()) for row in card.split("<li")[1:]]
    assert rows[0].split(">")[-1].strip().startswith("Default 120 ms")
    assert "Frankfurt 122 ms" in rows[1]
    assert rows[1].endswith("Down")
    assert rows[2].endswith("no agent yet · not among the last checks")
    checks = page.split('id="checks"')[1].split("</section>")[0]
    assert re.findall('class="place">([^<]*)<', checks) == ["a former location", "Frankfurt", "Frankfurt", "Default"]
    assert checks.count(">unconfirmed<") == 1
    assert "Not confirmed by other locations: it does not count." in checks

    (poll,) = re.findall('data-poll="([^"]+)"', page)
    assert web.get(poll.replace("&amp;", "&")).status_code == 204
    Agent.objects.update(network_down=True)
    assert "offline" in web.get(poll.replace("&amp;", "&")).content.decode().split('id="places"')[1]

    few = queries(web, path)
    more = [shared(f"more-{number}") for number in range(5)]
    Monitor.objects.update(locations=["default", *(location.public_id for location in more)])
    assert queries(web, path) == few


@pytest.mark.parametrize(("fault", "is_ours"), [(NOWHERE, False), ("No worker may ping.", True)])
def test_offline_locations_are_no_problem_of_pulsekeeper(web: Client, user: User, fault: str, *, is_ours: bool) -> None:
    location = private(user)
    monitor = MonitorFactory(owner=user, locations=[location.public_id], interval_sec=60)
    MonitorState.objects.update(fault=fault, fault_since=utc_now() - timedelta(hours=1))
    shown = text_of(web, f"/monitors/{monitor.public_id}")
    assert fault in shown
    assert ("This is a problem of Pulsekeeper" in shown) is is_ours


def test_a_monitor_of_the_default_location_shows_none(web: Client, user: User) -> None:
    monitor = MonitorFactory(owner=user)
    CheckResult.objects.create(monitor_id=monitor.pk, checked_at=utc_now(), claim=1, verdict="up", latency_ms=1)
    page = web.get(f"/monitors/{monitor.public_id}").content.decode()
    assert 'class="place"' not in page
    assert re.search('<section [^>]*id="places"[^>]* hidden>', page)

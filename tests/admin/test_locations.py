"""Locations and agents in the admin."""

from __future__ import annotations

import re
from collections.abc import Callable

from django.test import Client
from django.urls import reverse

from core.clock import utc_now
from locations.models import DEFAULT, Agent, JoinToken, Location
from locations.services import create_location, join
from monitors.models import Monitor
from projects.access import Caller
from tests.admin.test_actions import act, noted
from tests.audit.reading import actions, last
from tests.factories import MonitorFactory, UserFactory
from tests.locations import add_agent, shared

ADD = "admin:locations_location_add"


def page(location: Location) -> str:
    return reverse("admin:locations_location_change", args=[location.pk])


def test_staff_add_and_change_shared_ones(staff: Client) -> None:
    assert 'value="loc_' not in staff.get(reverse(ADD)).content.decode()
    for wrong in ("loc_1", "Fra", DEFAULT):
        assert staff.post(reverse(ADD), {"public_id": wrong, "name": "Frankfurt"}).status_code == 200
    assert staff.post(reverse(ADD), {"public_id": "fra", "name": "Frankfurt"}).status_code == 302
    fra = Location.objects.get(public_id="fra")
    assert (fra.name, fra.is_private, fra.preselected) == ("Frankfurt", False, False)
    changed = {"public_id": "ber", "name": "Frankfurt am Main", "preselected": "on"}
    assert staff.post(page(fra), changed).status_code == 302
    fra.refresh_from_db()
    assert (fra.public_id, fra.name, fra.preselected) == ("fra", "Frankfurt am Main", True)
    assert actions(target_id="fra") == ["location.created", "location.updated"]
    assert (last().actor_type, sorted(last().details["fields"])) == ("staff", ["name", "preselected"])


def test_the_default_one_has_the_name_of_the_setting(staff: Client) -> None:
    default = Location.objects.get(public_id=DEFAULT)
    assert staff.post(page(default), {"name": "Other"}).status_code == 302
    default.refresh_from_db()
    assert (default.title, default.preselected) == ("Default", False)


def test_private_ones_are_not_changed(staff: Client) -> None:
    office, _ = create_location(Caller(UserFactory()), {"name": "Office"}, now=utc_now())
    assert staff.post(page(office), {"name": "Mine"}).status_code == 403
    assert act(staff, Location, "issue_join_token", office) == (
        "0 locations were given a join token. Not changed: 1 is private, or without agents."
    )
    assert JoinToken.objects.count() == 1


def test_a_join_token_is_shown_once(staff: Client) -> None:
    fra, default = shared(), Location.objects.get(public_id=DEFAULT)
    told = act(staff, Location, "issue_join_token", fra, default)
    found = re.search(r"Frankfurt: (join_\w{68}) is valid for one hour and one agent\.", told)
    assert found is not None, told
    assert noted(Location)[0][2] == "Given a join token."
    assert join(token=found[1], name="probe", version="1", protocol=1, now=utc_now())[0].location == fra


def test_unused_ones_are_deleted(staff: Client) -> None:
    fra, ber = shared(), shared("ber")
    Monitor.objects.filter(pk=MonitorFactory().pk).update(locations=["ber"])
    told = act(staff, Location, "remove", fra, ber, Location.objects.get(public_id=DEFAULT))
    assert told == "1 location was deleted. Not changed: 2 are in use."
    assert list(Location.objects.order_by("pk").values_list("public_id", flat=True)) == [DEFAULT, "ber"]
    assert (noted(Location)[0][0], last().action) == (str(fra.pk), "location.deleted")


def test_agents_are_revoked(staff: Client, with_rights: Callable[..., Client]) -> None:
    agent = add_agent(shared())
    viewer = with_rights("locations.view_agent", "locations.view_location")
    act(viewer, Agent, "revoke", agent)
    assert Agent.objects.exists()
    assert act(staff, Agent, "revoke", agent) == "1 agent was revoked."
    assert not Agent.objects.exists()
    assert last().action == "agent.revoked"

"""Which locations a monitor may name, and how its checks on demand reach them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from core.clock import utc_now
from core.errors import LocationInUse, NoWorker, ValidationFailed
from locations.models import Location
from locations.services import create_location, delete_location
from monitors.checking import on_demand
from monitors.models import Monitor
from monitors.services import create_monitor, update_monitor
from projects.access import Caller
from projects.models import Role
from tests.factories import MembershipFactory, MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import flush_broker, state_of
from tests.locations import add_agent, shared

pytestmark = pytest.mark.django_db(transaction=True)
URL = "https://shop.example/"


@pytest.fixture(autouse=True)
def _own_broker() -> Iterator[None]:
    flush_broker()
    yield
    flush_broker()


@pytest.fixture
def caller() -> Caller:
    return Caller(UserFactory())


def private(caller: Caller, **given: str) -> str:
    location, _ = create_location(caller, {"name": "Office", **given}, now=utc_now())
    return location.public_id


def locations_of(caller: Caller, **given: object) -> list[str]:
    monitor = create_monitor(caller, {"url": URL, **given}, now=utc_now())
    return list(Monitor.objects.get(pk=monitor.pk).locations)


def test_a_monitor_without_any_has_those_that_are_preselected(caller: Caller) -> None:
    shared("ams")
    assert locations_of(caller) == ["default"]
    shared("fra", preselected=True)
    assert locations_of(caller) == ["default", "fra"]
    Location.objects.update(preselected=False)
    assert locations_of(caller) == ["default"]
    assert locations_of(caller, locations=["fra", "ams"]) == ["fra", "ams"]


def test_the_default_location_alone_is_stored_as_null(caller: Caller) -> None:
    locations_of(caller)
    locations_of(caller, locations=["default"])
    assert Monitor.objects.filter(locations__isnull=True).count() == 2


def test_private_locations_are_for_the_monitors_of_their_place(caller: Caller) -> None:
    project = ProjectFactory(owner=caller.user)
    here = {"project_id": project.public_id}
    own, of_project = private(caller), private(caller, **here)
    assert locations_of(caller, locations=[own]) == [own]
    assert locations_of(caller, locations=[own, of_project], **here) == [own, of_project]
    with pytest.raises(ValidationFailed):
        locations_of(caller, locations=[of_project])
    stranger = Caller(UserFactory())
    for one in (own, of_project):
        with pytest.raises(ValidationFailed):
            locations_of(stranger, locations=[one])


def test_a_member_keeps_a_location_of_the_owner_and_cannot_add_one(caller: Caller) -> None:
    project = ProjectFactory(owner=caller.user)
    member = Caller(UserFactory())
    MembershipFactory(project=project, user=member.user, role=Role.MEMBER)
    own, here = private(caller), {"project_id": project.public_id}
    with pytest.raises(ValidationFailed):
        locations_of(member, locations=[own], **here)
    monitor = create_monitor(caller, {"url": URL, "locations": [own], **here}, now=utc_now())
    update_monitor(member, monitor.public_id, {"name": "New", "locations": [own]}, now=utc_now())
    assert Monitor.objects.get(pk=monitor.pk).locations == [own]


def test_a_monitor_does_not_leave_the_place_of_its_locations(caller: Caller) -> None:
    project = ProjectFactory(owner=caller.user)
    of_project = private(caller, project_id=project.public_id)
    given = {"url": URL, "locations": [of_project], "project_id": project.public_id}
    monitor = create_monitor(caller, given, now=utc_now())
    with pytest.raises(ValidationFailed) as refused:
        update_monitor(caller, monitor.public_id, {"project_id": None}, now=utc_now())
    assert refused.value.field == "locations"
    update_monitor(caller, monitor.public_id, {"project_id": None, "locations": ["default"]}, now=utc_now())


def test_a_private_address_needs_private_locations_alone(caller: Caller) -> None:
    own = private(caller)
    given = {"url": "http://10.1.2.3/"}
    assert locations_of(caller, **given, locations=[own]) == [own]
    for locations in (["default"], [own, "default"]):
        with pytest.raises(ValidationFailed) as refused:
            locations_of(caller, **given, locations=locations)
        assert refused.value.field == "url"
    monitor = Monitor.objects.get()
    with pytest.raises(ValidationFailed):
        update_monitor(caller, monitor.public_id, {"locations": ["default"]}, now=utc_now())


def test_a_location_in_use_is_not_deleted(caller: Caller) -> None:
    own = private(caller)
    locations_of(caller, locations=["default", own])
    with pytest.raises(LocationInUse):
        delete_location(caller, own)
    Monitor.objects.get().delete()
    delete_location(caller, own)
    with pytest.raises(ValidationFailed):
        locations_of(caller, locations=[own])


def test_another_location_outdates_running_checks(caller: Caller) -> None:
    shared("fra")
    monitor = MonitorFactory(owner=caller.user, up=True)
    version = monitor.config_version
    update_monitor(caller, monitor.public_id, {"locations": ["default", "fra"]}, now=utc_now())
    assert Monitor.objects.get(pk=monitor.pk).config_version == version + 1
    update_monitor(caller, monitor.public_id, {"quorum": 2}, now=utc_now())
    assert Monitor.objects.get(pk=monitor.pk).config_version == version + 1


def test_a_check_on_demand_needs_an_online_location(caller: Caller) -> None:
    fra = shared("fra")
    monitor = MonitorFactory(owner=caller.user, up=True, locations=["fra"])
    with pytest.raises(NoWorker) as refused:
        on_demand.check_now(monitor, now=utc_now())
    assert refused.value.reason == "None of its locations is online."
    agent = add_agent(fra, seen=utc_now())
    on_demand.start(monitor, now=utc_now())
    assert state_of(monitor).agent_id == agent.pk


def test_header_values_do_not_go_to_a_private_location_that_is_added(caller: Caller) -> None:
    shared("fra")
    own, other = private(caller), private(caller)
    header = {"name": "X-Key", "value": "s3cret"}
    given = {"url": URL, "request_headers": [header], "locations": ["default", own]}
    monitor = create_monitor(caller, given, now=utc_now())

    def change(**changed: object) -> list[str]:
        update_monitor(caller, monitor.public_id, changed, now=utc_now())
        return [header.value for header in Monitor.objects.get(pk=monitor.pk).full_config["request_headers"]]

    assert change(locations=["default", "fra", own]) == ["s3cret"]
    assert change(locations=["default"]) == ["s3cret"]
    assert change(locations=[own]) == [""]
    assert change(locations=[own, other], request_headers=[header]) == ["s3cret"]

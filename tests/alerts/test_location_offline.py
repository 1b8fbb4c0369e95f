"""Alerts about private locations that are offline: who gets one, when, and when not."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
import redis
from django.conf import settings
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from accounts.services import create_account, delete_account
from alerts.events import DEFAULT_TOPICS, Topic
from alerts.locations import WAIT, notify_locations
from alerts.models import AlertChannel, Delivery, DeliveryItem
from alerts.outbox import load
from checks.agent_protocol import OFFLINE_SEC
from core.clock import to_ms
from core.metrics import ProcessReports
from locations.models import Agent, Location
from locations.services import delete_location, revoke_agent
from monitors.checking import own_network
from monitors.models import Monitor, PingGap, SchedulerGap
from projects.access import Caller
from projects.members import remove_member
from projects.models import Membership
from tests.alerts.drivers import EVERYTHING, Drive, at, claim, finish, make_channel
from tests.factories import MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import PASSWORD, run_concurrently
from tests.locations import add_agent

OFFLINE, ONLINE = "location_offline", "location_online"
LOOK_SEC = 5.0
FIRST = OFFLINE_SEC + WAIT.total_seconds()
SPACING = settings.FLAPPING_MINUTES * 60


@pytest.fixture(autouse=True)
def web(monkeypatch: pytest.MonkeyPatch) -> dict[str, ProcessReports]:
    """The processes that report, all of them well."""
    alive = {"web": ProcessReports(alive=1, last_at=1.0), "worker": ProcessReports(alive=1, last_at=1.0)}
    monkeypatch.setattr("alerts.locations.read_processes", lambda: alive)
    return alive


@pytest.fixture
def owner(db: None) -> User:
    user = UserFactory()
    AlertChannel.objects.all().delete()  # the one that comes with the account
    return user


@pytest.fixture
def location(owner: User) -> Location:
    return make_location(owner)


@pytest.fixture
def drive() -> Drive:
    return Drive()


def make_location(owner: User, *, monitors: int = 1, **given: Any) -> Location:
    """Create a private location with an agent that was online at NOON."""
    made = Location.objects.create(**{"owner": owner, "name": "Office", "created_at": at(0)} | given)
    add_agent(made, seen=at(0))
    for _ in range(monitors):
        MonitorFactory(owner=owner, project=made.project, locations=[made.public_id])
    return made


def sign(location: Location, seconds: float, **columns: Any) -> None:
    Agent.objects.filter(location=location).update(last_seen_at=at(seconds), **columns)


def watch(drive: Drive, start: float, end: float) -> list[tuple[float, int, list[str]]]:
    """Look at locations, and send what was written. Return seconds, channel and events of each message."""
    found, second = [], start
    while second <= end:
        notify_locations(at(second))
        found += [(second, sent.channel_id, sent.events) for sent in drive.deliver(at(second))]
        second += LOOK_SEC
    return found


def test_default_channels_have_the_topic() -> None:
    assert Topic.LOCATION_OFFLINE in DEFAULT_TOPICS


def test_the_channel_of_a_new_account_gets_one_message_of_a_location(drive: Drive, db: None) -> None:
    user = create_account(email="kim@example.com", password=PASSWORD)
    channel = AlertChannel.objects.get()
    AlertChannel.objects.update(confirmed_at=at(0))
    location = make_location(user, monitors=3)
    assert watch(drive, 5, FIRST - 5) == []
    assert watch(drive, FIRST, FIRST + 300) == [(FIRST, channel.pk, [OFFLINE])]
    sign(location, 600)
    assert watch(drive, 600, 700) == [(600, channel.pk, [ONLINE])]
    offline, online = drive.payload
    assert (offline.location_id, offline.location, offline.project) == (location.public_id, "Office", None)
    assert offline.path == f"/locations/{location.public_id}"
    assert offline.detail == "None of its agents is connected."
    assert offline.started_at == online.started_at == to_ms(at(30))
    assert (online.resolved_at, online.detail) == (to_ms(at(600)), None)


@pytest.mark.parametrize(
    ("columns", "detail"),
    [
        ({"network_down": True}, "Its agents are connected, and find that their own network is down."),
        ({"protocol": 0}, "Its agents are too old for this server: update them."),
    ],
)
def test_the_reason(drive: Drive, owner: User, location: Location, columns: dict[str, Any], detail: str) -> None:
    make_channel(owner)
    for second in range(0, 100, 5):
        if "network_down" in columns:
            sign(location, second)
        Agent.objects.update(**columns)
        watch(drive, second, second)
    assert [payload.detail for payload in drive.payload] == [detail]


def test_who_gets_one_of_a_project(drive: Drive, owner: User) -> None:
    member, former, stranger = UserFactory(), UserFactory(), UserFactory()
    project, other = ProjectFactory(owner=owner), ProjectFactory(owner=owner)
    for user in (member, former):
        Membership.objects.create(project=project, user=user, role="viewer")
    AlertChannel.objects.all().delete()
    location = make_location(owner, project=project, monitors=1)
    monitor, elsewhere = Monitor.objects.get(), MonitorFactory(owner=owner, project=project)
    of_project: dict[str, Any] = {"scope": "project", "scope_project": project}
    got = {
        "the owner's": make_channel(owner),
        "the project's": make_channel(owner, project=project),
        "a member's": make_channel(member, **of_project),
        "the owner's of the project": make_channel(owner, **of_project),
        "a member's with a monitor": make_channel(member, scope="chosen", monitors=[monitor, elsewhere]),
        "the project's with a monitor": make_channel(owner, project=project, scope="chosen", monitors=[monitor]),
    }
    make_channel(owner, topics=set(EVERYTHING) - {"location_offline"})
    make_channel(owner, enabled=False)
    make_channel(owner, confirmed_at=None)
    make_channel(owner, project=other)
    make_channel(owner, scope="chosen", monitors=[elsewhere])
    make_channel(owner, scope="project", scope_project=other)
    make_channel(member)
    make_channel(stranger)
    make_channel(stranger, **of_project)
    make_channel(stranger, scope="chosen", monitors=[monitor])
    gone = make_channel(former, **of_project)
    place = Membership.objects.get(project=project, user=former)
    remove_member(Caller(owner), project.public_id, place.public_id, now=at(30))
    watch(drive, 30, FIRST + 200)
    assert {sent.channel_id for sent in drive.sent} == {channel.pk for channel in got.values()}
    assert len(drive.sent) == len(got)
    assert not DeliveryItem.objects.filter(channel=gone).exists()
    assert {payload.project for payload in drive.payload} == {project.name}
    AlertChannel.objects.filter(pk=got["the owner's"].pk).update(enabled=False)
    new = make_channel(owner)
    sign(location, 400)
    watch(drive, 400, 500)
    online = {sent.channel_id for sent in drive.sent if sent.events == [ONLINE]}
    assert online == {channel.pk for channel in got.values()} - {got["the owner's"].pk}
    assert new.pk not in online


def test_who_gets_one_of_a_location_without_a_project(drive: Drive, owner: User) -> None:
    member = UserFactory()
    project, unrelated = ProjectFactory(owner=owner), ProjectFactory(owner=owner)
    Membership.objects.create(project=project, user=member, role="admin")
    AlertChannel.objects.all().delete()
    location = make_location(owner, monitors=0)
    monitor = MonitorFactory(owner=owner, project=project, locations=["default", location.public_id])
    got = [
        make_channel(owner),
        make_channel(owner, scope="chosen", monitors=[monitor]),
        make_channel(owner, scope="project", scope_project=project),
    ]
    make_channel(owner, project=project)  # other members read it
    make_channel(owner, scope="project", scope_project=unrelated)
    make_channel(member, scope="project", scope_project=project)
    make_channel(member, scope="chosen", monitors=[monitor])
    watch(drive, 30, FIRST + 60)
    assert {sent.channel_id for sent in drive.sent} == {channel.pk for channel in got}


@pytest.mark.parametrize("why", ["never online", "no monitor", "paused", "locked account", "shared", "one is online"])
def test_when_there_is_nothing_to_say(drive: Drive, owner: User, location: Location, why: str) -> None:
    make_channel(owner)
    if why == "never online":
        Agent.objects.update(last_seen_at=None)
    elif why == "no monitor":
        Monitor.objects.update(locations=["default"])
    elif why == "paused":
        Monitor.objects.update(enabled=False)
    elif why == "locked account":
        User.objects.update(is_active=False)
    elif why == "shared":
        Location.objects.update(owner=None)
    else:
        add_agent(location, seen=at(10_000), name="probe-2")
    assert watch(drive, 30, 600) == []
    assert not Location.objects.filter(offline_since__isnull=False).exists()


def test_a_short_absence_is_not_reported(drive: Drive, owner: User, location: Location) -> None:
    make_channel(owner)
    watch(drive, 30, FIRST - 5)
    sign(location, FIRST)
    assert watch(drive, FIRST, 2 * FIRST - 5) == [], "the time begins again"
    assert [events for *_, events in watch(drive, 2 * FIRST, 2 * FIRST + 60)] == [[OFFLINE]]


def test_an_agent_that_comes_and_goes_sends_little(drive: Drive, owner: User, location: Location) -> None:
    make_channel(owner)
    for start in range(0, 4 * SPACING, 300):
        sign(location, start)
        watch(drive, start, start + 295)
    offline = [sent.at for sent in drive.sent if sent.events == [OFFLINE]]
    assert len(offline) in (3, 4)
    assert min(after - before for before, after in pairwise(offline)) >= timedelta(seconds=SPACING)
    assert [sent.events for sent in drive.sent] == [[OFFLINE], [ONLINE]] * len(offline)


def test_an_absence_that_outlasts_flapping_is_reported(drive: Drive, owner: User, location: Location) -> None:
    make_channel(owner)
    watch(drive, 30, 200)
    sign(location, 200)
    watch(drive, 200, 200 + SPACING)
    assert [(sent.at, sent.events) for sent in drive.sent] == [
        (at(90), [OFFLINE]),
        (at(200), [ONLINE]),
        (at(90 + SPACING), [OFFLINE]),
    ]


def test_no_web_process_could_hear_of_it(
    drive: Drive, owner: User, location: Location, web: dict[str, ProcessReports]
) -> None:
    make_channel(owner)
    del web["web"]
    assert watch(drive, 30, 600) == []
    web["web"] = ProcessReports(alive=1)
    assert watch(drive, 605, 645) == [], "agents need time to come back"
    assert [events for *_, events in watch(drive, 650, 665)] == [[OFFLINE]]


def test_a_restart_of_web_sends_nothing(
    drive: Drive, owner: User, location: Location, web: dict[str, ProcessReports]
) -> None:
    make_channel(owner)
    watch(drive, 5, 80)
    del web["web"]
    assert watch(drive, 85, 100) == []
    web["web"] = ProcessReports(alive=1)
    assert watch(drive, 105, 140) == []
    sign(location, 140)
    assert watch(drive, 140, 165) == []


def test_after_a_time_in_which_nobody_looked(drive: Drive, owner: User, location: Location) -> None:
    make_channel(owner)
    assert watch(drive, 3600, 3655) == []
    sign(location, 3658)
    assert watch(drive, 3660, 3680) == []


@pytest.mark.parametrize("model", [PingGap, SchedulerGap])
def test_an_outage_of_our_own(drive: Drive, owner: User, location: Location, model: Any) -> None:
    make_channel(owner)
    watch(drive, 5, 40)
    held = {"held_until": at(3600), "reason": "A ping of our own fails."} if model is PingGap else {}
    gap = model(started_at=at(20), ended_at=at(500) if model is SchedulerGap else None, **held)
    gap.save()
    if model is PingGap:
        assert watch(drive, 45, 500) == []
        PingGap.objects.update(ended_at=at(500))
    assert watch(drive, 505, 555) == []
    assert [events for *_, events in watch(drive, 560, 570)] == [[OFFLINE]]


def test_a_gap_that_does_not_end_is_not_believed_forever(drive: Drive, owner: User, location: Location) -> None:
    make_channel(owner)
    PingGap.objects.create(started_at=at(20), held_until=at(3620), reason="A ping of our own fails.")
    assert watch(drive, 30, 3615) == []
    assert [events for *_, events in watch(drive, 3620, 3700)] == [[OFFLINE]]


@pytest.mark.parametrize(("down", "is_sent"), [(1, False), (0, True)])
def test_our_own_network(
    drive: Drive, owner: User, location: Location, down: int, is_sent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_channel(owner)
    monkeypatch.setattr("alerts.locations.read_levels", lambda: {own_network.DOWN.name: float(down)})
    assert bool(watch(drive, 30, 300)) is is_sent


def test_one_worker_without_network_is_not_our_network(
    drive: Drive, owner: User, location: Location, web: dict[str, ProcessReports], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_channel(owner)
    web["worker"] = ProcessReports(alive=2)
    monkeypatch.setattr("alerts.locations.read_levels", lambda: {own_network.DOWN.name: 1.0})
    assert watch(drive, 30, 300)


def test_without_the_broker(drive: Drive, owner: User, location: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    make_channel(owner)

    def refuse() -> None:
        raise redis.ConnectionError

    monkeypatch.setattr("alerts.locations.read_processes", refuse)
    assert watch(drive, 30, 60) == []
    assert Location.objects.get(pk=location.pk).alert_due_at is not None


@pytest.mark.django_db(transaction=True)
def test_processes_at_once_send_one(drive: Drive, owner: User) -> None:
    make_channel(owner)
    locations = [make_location(owner, name=f"Office {number}") for number in range(3)]
    watch(drive, 30, 60)
    run_concurrently(*[lambda: notify_locations(at(200))] * 4)
    assert DeliveryItem.objects.count() == 3
    for location in locations:
        sign(location, 300)
    run_concurrently(*[lambda: notify_locations(at(300))] * 4)
    assert sorted(DeliveryItem.objects.values_list("payload__event_type", flat=True)) == [OFFLINE] * 3 + [ONLINE] * 3


def delete_all(accounts: Iterable[User]) -> None:
    for account in accounts:
        delete_account(account)


@pytest.mark.django_db(transaction=True)
def test_an_account_that_is_deleted_meanwhile(drive: Drive, owner: User) -> None:
    """It locks channels and then locations, and this the other way round."""
    accounts = [UserFactory() for _ in range(8)]
    for account in accounts:
        for number in range(3):
            make_location(account, name=f"Office {number}")
    watch(drive, 30, 60)
    outcomes = run_concurrently(
        lambda: delete_all(accounts),
        *[lambda second=second: notify_locations(at(second)) for second in range(200, 208)],
    )
    assert outcomes[0] is None
    assert not Location.objects.filter(owner__isnull=False).exists()


def test_nothing_is_stored_without_its_message(
    drive: Drive, owner: User, location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_channel(owner)
    watch(drive, 30, FIRST - 5)
    with monkeypatch.context() as patched:
        patched.setattr("alerts.locations.put", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            notify_locations(at(FIRST + 60))
    assert [events for *_, events in watch(drive, FIRST + 65, FIRST + 65)] == [[OFFLINE]]


def test_without_a_channel_it_is_not_repeated(drive: Drive, owner: User, location: Location) -> None:
    watch(drive, 30, 200)
    make_channel(owner)
    assert watch(drive, 205, 400) == []
    sign(location, 400)
    assert watch(drive, 400, 420) == [], "no channel got the first message"


def test_a_replaced_agent_ends_it(drive: Drive, owner: User, location: Location) -> None:
    make_channel(owner)
    watch(drive, 30, 100)
    revoke_agent(Caller(owner), location.public_id, Agent.objects.get().public_id)
    assert watch(drive, 105, 200) == []
    add_agent(location, seen=at(200))
    assert [events for *_, events in watch(drive, 200, 210)] == [[ONLINE]]


def test_a_revoked_agent_is_not_missed(drive: Drive, owner: User, location: Location) -> None:
    make_channel(owner)
    watch(drive, 30, 60)
    revoke_agent(Caller(owner), location.public_id, Agent.objects.get().public_id)
    assert watch(drive, 65, 300) == []
    assert Location.objects.get(pk=location.pk).offline_since is None


def test_a_deleted_location(drive: Drive, owner: User, location: Location) -> None:
    make_channel(owner)
    watch(drive, 30, FIRST - 5)
    Monitor.objects.all().delete()
    delete_location(Caller(owner), location.public_id)
    assert watch(drive, FIRST + 5, 300) == []


def test_a_message_that_waits_when_its_location_is_deleted(drive: Drive, owner: User, location: Location) -> None:
    make_channel(owner)
    watch(drive, 30, FIRST - 5)
    notify_locations(at(FIRST))
    Monitor.objects.all().delete()
    delete_location(Caller(owner), location.public_id)
    claimed = claim(at(FIRST + 1))
    assert claimed is not None
    assert load(claimed) == (None, [])
    assert not Delivery.objects.exists()


def test_a_message_that_waits_when_its_reader_leaves(drive: Drive, owner: User) -> None:
    member, project = UserFactory(), ProjectFactory(owner=owner)
    place = Membership.objects.create(project=project, user=member, role="viewer")
    AlertChannel.objects.all().delete()
    make_channel(member, scope="project", scope_project=project)
    make_location(owner, project=project)
    watch(drive, 30, FIRST - 5)
    notify_locations(at(FIRST))
    remove_member(Caller(owner), project.public_id, place.public_id, now=at(FIRST))
    claimed = claim(at(FIRST + 1))
    assert claimed is not None
    assert load(claimed) == (None, [])


def test_the_end_waits_for_the_beginning(drive: Drive, owner: User, location: Location) -> None:
    make_channel(owner)
    watch(drive, 30, FIRST - 5)
    notify_locations(at(FIRST))
    first = claim(at(FIRST))
    assert first is not None
    finish(first, delivered=False, detail="503", now=at(FIRST + 1))
    sign(location, 100)
    notify_locations(at(100))
    assert Delivery.objects.count() == 2
    again = claim(at(3600))
    assert again is not None
    assert again.pk == first.pk
    assert claim(at(3601)) is None
    finish(again, delivered=True, detail="200", now=at(3602))
    assert [sent.events for sent in drive.deliver(at(3603))] == [[ONLINE]]


def test_many_locations_are_gathered(drive: Drive, owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alerts.locations.BATCH", 4)
    make_channel(owner)
    for number in range(10):
        make_location(owner, name=f"Office {number}")
    watch(drive, 30, 200)
    assert sorted(payload.location for payload in drive.payload) == sorted(f"Office {n}" for n in range(10))
    assert len(drive.sent) <= 4


@pytest.mark.usefixtures("db")
def test_a_look_is_one_query_while_all_is_well(drive: Drive, owner: User) -> None:
    with CaptureQueriesContext(
        connection,
    ) as queries:
        notify_locations(at(0))
    assert len(queries) == 1
    for number in range(3):
        make_location(owner, name=f"Office {number}")
    with CaptureQueriesContext(connection) as queries:
        notify_locations(at(5))
    assert len(queries) == 1

"""Alerts that are due later: delays and hours of channels, and items that an escalation plans."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.db import transaction

from accounts.models import User
from alerts import planned
from alerts.batch import LOOK_AGAIN, incident_payload
from alerts.events import EventType, Topic
from alerts.models import AlertChannel, Delivery, DeliveryItem
from alerts.outbox import OutboxItem, put
from alerts.services import delete_channel, update_channel
from checks.spec import Verdict
from incidents.models import Incident, IncidentEvent
from incidents.services import acknowledge
from monitors import scheduling
from monitors.models import Dependency, Monitor
from monitors.services import delete_monitor, update_monitor
from projects.access import Caller
from projects.members import remove_member
from projects.models import Membership
from tests.alerts.drivers import Drive, Message, at, claim, events, finish, make_channel, timeline
from tests.alerts.test_notify import window
from tests.factories import ProjectFactory, UserFactory
from tests.helpers import run_concurrently

DOWN, UP, SLOW = Verdict.DOWN, Verdict.UP, Verdict.SLOW
MINUTE = 60.0
HOUR = 3600.0
EVERY_DAY = [1, 2, 3, 4, 5, 6, 7]
BY_DAY = [{"days": EVERY_DAY, "from": "09:00", "to": "17:00"}]
"""Noon is five hours before their end: at(5 * HOUR)."""
NEXT_MORNING = 21 * HOUR


@pytest.fixture
def owner(db: None) -> User:
    user = UserFactory()
    AlertChannel.objects.all().delete()
    return user


@pytest.fixture
def drive() -> Drive:
    return Drive()


def late(owner: User, minutes: int = 10, **columns: Any) -> AlertChannel:
    return make_channel(owner, delay_min=minutes, **columns)


def by_day(owner: User, **columns: Any) -> AlertChannel:
    return make_channel(owner, hours=BY_DAY, **columns)


def fail(drive: Drive, owner: User, second: float, name: str = "Shop") -> Monitor:
    """Let a new monitor fail, and notify of it."""
    monitor = drive.monitor(owner, name)
    drive.check(monitor, DOWN, at(second))
    drive.tick(at(second + 1))
    return monitor


def not_sent(incident: Incident) -> list[str]:
    """Return why alerts of the incident were not sent."""
    suppressed = incident.events.filter(type=IncidentEvent.Type.SUPPRESSED, data__has_key="channel_id")
    return list(suppressed.order_by("pk").values_list("data__reason", flat=True))


def planned_for() -> list[datetime | None]:
    return list(DeliveryItem.objects.filter(delivery=None).order_by("due_at").values_list("due_at", flat=True))


def test_a_delayed_channel_is_notified_of_what_is_still_open(owner: User, drive: Drive) -> None:
    channel, prompt = late(owner), make_channel(owner)
    monitor = fail(drive, owner, 60)
    assert [message.channel_id for message in drive.sent] == [prompt.pk]
    assert drive.tick(at(61 + 10 * MINUTE - 1)) == []
    assert drive.tick(at(61 + 10 * MINUTE)) == [Message(channel.pk, at(661), (("down", "Shop"),))]
    drive.check(monitor, UP, at(700))
    assert sorted(message.channel_id for message in drive.tick(at(701))) == sorted([channel.pk, prompt.pk])
    assert not planned_for()
    incident = Incident.objects.get()
    texts = incident.events.filter(type="announced").order_by("pk").values_list("text", flat=True)
    assert list(texts) == [
        "Alert to 1 channel now: it is down.",
        "Alert to webhook https://x.example planned for 2026-03-01 12:11:01 UTC.",
        "Alert to 2 channels: it has recovered.",
    ]


def test_a_delayed_channel_does_not_hear_of_short_outages(owner: User, drive: Drive) -> None:
    late(owner)
    monitor = fail(drive, owner, 60)
    drive.check(monitor, UP, at(120))
    assert drive.ticks(at(121), at(1000), every=100) == []
    assert not_sent(Incident.objects.get()) == ["recovered"]
    assert not DeliveryItem.objects.exists()


def test_nor_of_those_that_somebody_works_on(owner: User, drive: Drive) -> None:
    late(owner)
    monitor = fail(drive, owner, 60)
    incident = Incident.objects.get()
    acknowledge(Caller(owner), incident.public_id, now=at(120))
    assert drive.ticks(at(121), at(1000), every=100) == []
    drive.check(monitor, UP, at(1060))
    assert drive.tick(at(1061)) == []
    assert not_sent(incident) == ["acknowledged"]


def test_an_outage_that_was_over_when_it_was_noticed_is_not_planned(owner: User, drive: Drive) -> None:
    late(owner)
    monitor = drive.monitor(owner)
    for second, verdict in ((60, DOWN), (120, UP), (180, DOWN), (240, UP)):
        drive.check(monitor, verdict, at(second))
    assert drive.ticks(at(241), at(2000), every=200) == []
    assert not DeliveryItem.objects.exists()


def test_what_is_silenced_when_it_is_due_waits(owner: User, drive: Drive) -> None:
    late(owner)
    monitor = fail(drive, owner, 0)
    Monitor.objects.filter(pk=monitor.pk).update(muted_until=at(1500))
    assert drive.ticks(at(600), at(1499), every=5) == []
    [message] = drive.ticks(at(1500), at(1500) + LOOK_AGAIN, every=1)
    assert message.events == ["down"]


def test_an_alert_is_planned_once_before_and_after_maintenance(owner: User, drive: Drive) -> None:
    late(owner)
    fail(drive, owner, 0)
    window(owner, 300, 1500)
    assert events(drive.ticks(at(600), at(4000), every=10)) == ["down"]


def test_what_a_parent_holds_when_it_is_due_waits(owner: User, drive: Drive) -> None:
    channel, child = late(owner), drive.monitor(owner, "Shop", interval_sec=30)
    parent = drive.monitor(owner, "Router", interval_sec=30)
    drive.check(child, DOWN, at(60))
    drive.tick(at(61))
    Dependency.objects.create(child=child, parent=parent, position=0)
    drive.check(parent, DOWN, at(90))
    for second in range(120, 1200, 30):
        drive.checks([child, parent], DOWN, at(second))
        drive.tick(at(second + 1))
    assert [message.items for message in drive.sent] == [(("down", "Router"),)]
    assert drive.sent[0].channel_id == channel.pk


def disappear(what: str, channel: AlertChannel, monitor: Monitor) -> None:
    """Change something, after which the channel must not get alerts of the monitor."""
    match what:
        case "channel":
            AlertChannel.objects.update(enabled=False)
        case "consent":
            AlertChannel.objects.update(confirmed_at=None)
        case "account":
            User.objects.update(is_active=False)
        case "choice":
            channel.monitors.clear()
        case "topic":
            AlertChannel.objects.update(topics=[Topic.SLOW])
        case "checks":
            update_monitor(Caller(monitor.owner), monitor.public_id, {"enabled": False}, now=at(70))
        case "monitor":
            delete_monitor(Caller(monitor.owner), monitor.public_id)


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("channel", "channel"),
        ("consent", "channel"),
        ("account", "channel"),
        ("choice", "not_selected"),
        ("topic", "not_selected"),
        ("checks", "paused"),
        ("monitor", "deleted"),
    ],
)
def test_what_is_no_longer_wanted_is_not_sent(owner: User, drive: Drive, what: str, reason: str) -> None:
    monitor = drive.monitor(owner)
    channel = late(owner, scope="chosen", monitors=[monitor])
    drive.check(monitor, DOWN, at(60))
    drive.tick(at(61))
    assert planned_for() == [at(661)]
    disappear(what, channel, monitor)
    assert drive.ticks(at(62), at(1000), every=100) == []
    assert not_sent(Incident.objects.get()) == [reason]
    assert not planned_for()


def test_a_former_member_gets_nothing_that_was_planned(owner: User, drive: Drive) -> None:
    member = UserFactory()
    AlertChannel.objects.all().delete()
    project = ProjectFactory(owner=owner, member=member)
    late(member, scope="project", scope_project=project)
    monitor = drive.monitor(owner, project=project)
    drive.check(monitor, DOWN, at(60))
    drive.tick(at(61))
    place = Membership.objects.get(project=project, user=member)
    remove_member(Caller(owner), project.public_id, place.public_id, now=at(70))
    assert drive.ticks(at(62), at(1000), every=100) == []
    assert not_sent(Incident.objects.get()) == ["not_selected"]


def test_a_deleted_channel_takes_its_plans_along(owner: User, drive: Drive) -> None:
    channel = late(owner)
    fail(drive, owner, 60)
    delete_channel(Caller(owner), channel.public_id)
    assert not DeliveryItem.objects.exists()
    assert drive.tick(at(700)) == []


def test_a_storm_is_one_message_also_later(owner: User, drive: Drive) -> None:
    late(owner)
    drive.checks(drive.monitors(owner, [f"m{number}" for number in range(300)]), DOWN, at(60))
    drive.ticks(at(61), at(660), every=100)
    assert drive.sent == []
    [message] = drive.ticks(at(661), at(700), every=1)
    assert len(message.items) == 300


def test_reminders_begin_with_the_delayed_alert(owner: User, drive: Drive) -> None:
    late(owner, 120, remind_every_hours=1)
    fail(drive, owner, 0)
    assert drive.remind(at(1.5 * HOUR)) == []
    assert events(drive.tick(at(1 + 2 * HOUR))) == ["down"]
    assert drive.remind(at(2.9 * HOUR)) == []
    assert events(drive.remind(at(3.1 * HOUR))) == ["reminder"]


def test_outside_of_the_hours_an_outage_waits_for_their_beginning(owner: User, drive: Drive) -> None:
    by_day(owner)
    fail(drive, owner, 6 * HOUR)
    short = fail(drive, owner, 7 * HOUR, "short")
    drive.check(short, UP, at(8 * HOUR))
    drive.ticks(at(8 * HOUR + 1), at(NEXT_MORNING - 1), every=HOUR)
    assert drive.sent == []
    assert [message.items for message in drive.tick(at(NEXT_MORNING))] == [(("down", "Shop"),)]


def test_the_recovery_of_an_outage_of_the_day_waits_too(owner: User, drive: Drive) -> None:
    by_day(owner)
    monitor = fail(drive, owner, 4 * HOUR)
    for hour, verdict in ((6, UP), (7, DOWN), (8, UP)):
        drive.check(monitor, verdict, at(hour * HOUR))
        drive.tick(at(hour * HOUR + 1))
    assert events(drive.sent) == ["down"]
    assert events(drive.ticks(at(NEXT_MORNING), at(NEXT_MORNING + 60), every=5)) == ["recovered"]


def test_after_a_held_recovery_comes_the_next_outage(owner: User, drive: Drive) -> None:
    by_day(owner)
    monitor = fail(drive, owner, 4 * HOUR)
    for hour, verdict in ((6, UP), (7, DOWN)):
        drive.check(monitor, verdict, at(hour * HOUR))
        drive.tick(at(hour * HOUR + 1))
    sent = drive.ticks(at(NEXT_MORNING), at(NEXT_MORNING + 60), every=5)
    assert [event for message in sent for event in message.events] == ["recovered", "down"]


@pytest.mark.parametrize(("kind", "expected"), [("webhook", []), ("pagerduty", ["recovered"])])
def test_dropped_outside_of_the_hours(owner: User, drive: Drive, kind: str, expected: list[str]) -> None:
    """A service with one alert per incident gets the recovery: its alert would stay open."""
    by_day(owner, outside="drop", kind=kind)
    monitor = fail(drive, owner, 4 * HOUR)
    assert events(drive.sent) == ["down"]
    drive.check(monitor, UP, at(6 * HOUR))
    assert events(drive.ticks(at(6 * HOUR + 1), at(NEXT_MORNING + 60), every=HOUR)) == expected
    assert not_sent(Incident.objects.get()) == ([] if expected else ["outside_hours"])


def test_what_was_dropped_is_not_followed_by_its_recovery(owner: User, drive: Drive) -> None:
    by_day(owner, outside="drop")
    monitor = fail(drive, owner, 6 * HOUR)
    assert not_sent(Incident.objects.get()) == ["outside_hours"]
    drive.check(monitor, UP, at(NEXT_MORNING + 60))
    assert drive.tick(at(NEXT_MORNING + 61)) == []
    assert not DeliveryItem.objects.exists()


def test_reminders_wait_for_the_hours_and_are_not_noted_each_minute(owner: User, drive: Drive) -> None:
    for outside in ("hold", "drop"):
        by_day(owner, outside=outside, remind_every_hours=1)
    fail(drive, owner, 4.5 * HOUR)
    before = timeline(Incident.objects.get())
    for minute in range(0, 60, 10):
        assert drive.remind(at(6 * HOUR + minute * MINUTE)) == []
    assert timeline(Incident.objects.get()) == before
    assert events(drive.remind(at(NEXT_MORNING))) == ["reminder", "reminder"]


def test_alerts_without_an_incident_wait_for_the_hours_but_not_for_the_delay(owner: User, drive: Drive) -> None:
    channel = by_day(owner, delay_min=10)
    monitor = drive.monitor(owner)
    drive.check(monitor, SLOW, at(60))
    assert events(drive.tick(at(61))) == ["slow"]
    other = drive.monitor(owner, "Other")
    drive.check(other, SLOW, at(6 * HOUR))
    assert drive.tick(at(6 * HOUR + 1)) == []
    assert drive.tick(at(NEXT_MORNING)) == [Message(channel.pk, at(NEXT_MORNING), (("slow", "Other"),))]


def test_hours_that_have_changed_count(owner: User, drive: Drive) -> None:
    channel = late(owner)
    fail(drive, owner, 60)
    AlertChannel.objects.update(hours=BY_DAY, time_zone="Asia/Kolkata")  # noon is 17:30 there
    assert drive.tick(at(661)) == []
    assert planned_for() == [at(15.5 * HOUR)]
    AlertChannel.objects.update(outside="drop", time_zone="Asia/Tokyo", hours=[BY_DAY[0] | {"to": "12:00"}])
    assert drive.tick(at(15.5 * HOUR)) == []
    assert not_sent(Incident.objects.get()) == ["outside_hours"]
    assert channel.deliveries.count() == 0


def test_a_clock_that_jumps_loses_and_repeats_nothing(owner: User, drive: Drive) -> None:
    late(owner)
    fail(drive, owner, 60)
    assert drive.tick(at(-HOUR)) == []
    assert events(drive.tick(at(100 * HOUR))) == ["down"]
    assert drive.ticks(at(-HOUR), at(200 * HOUR), every=20 * HOUR) == []


def escalated(incident: Incident, channel: AlertChannel, source: str, now: datetime, **given: Any) -> None:
    payload = incident_payload(incident, EventType.DOWN, now)
    with transaction.atomic():
        put([OutboxItem(source, payload, [channel.pk], incident, **given)], now=now)


def test_an_escalation_reaches_channels_whatever_they_subscribe_to(owner: User, drive: Drive) -> None:
    other = UserFactory()
    AlertChannel.objects.all().delete()
    channel = make_channel(owner, topics=[], scope="chosen")
    fail(drive, owner, 60)
    incident = Incident.objects.get()
    escalated(incident, channel, "esc:1:0.0.0:usr_a", at(62), user_id=other.pk)
    escalated(incident, channel, "esc:1:0.1.0:usr_a", at(62), due_at=at(120), user_id=other.pk)
    assert events(drive.tick(at(62))) == ["down"]
    assert drive.tick(at(119)) == []
    assert events(drive.tick(at(120))) == ["down"]
    assert set(DeliveryItem.objects.values_list("user", flat=True)) == {other.pk}


def test_who_was_only_going_to_be_reached_gets_no_recovery(owner: User, drive: Drive) -> None:
    channel = make_channel(owner, topics=[Topic.RECOVERED])
    monitor = fail(drive, owner, 60)
    escalated(Incident.objects.get(), channel, "esc:1:0.0.0:usr_a", at(62), due_at=at(200))
    drive.check(monitor, UP, at(120))
    assert drive.ticks(at(121), at(300), every=10) == []


@pytest.mark.django_db(transaction=True)
def test_processes_share_what_is_due(drive: Drive) -> None:
    owner = UserFactory()
    AlertChannel.objects.all().delete()
    channels = [late(owner), by_day(owner, kind="pagerduty")]
    monitors = drive.monitors(owner, [f"m{number}" for number in range(20)])
    drive.checks(monitors, DOWN, at(6 * HOUR))
    drive.tick(at(6 * HOUR + 1))
    drive.checks(monitors[:5], SLOW, at(7 * HOUR))
    assert len(planned_for()) == 40
    DeliveryItem.objects.update(due_at=at(NEXT_MORNING))
    run_concurrently(*[partial(planned.release_due, at(NEXT_MORNING))] * 4)
    assert not planned_for()
    items = list(DeliveryItem.objects.values_list("channel", "source"))
    assert len(items) == len(set(items))
    assert {channel for channel, _ in items} == {channel.pk for channel in channels}


@pytest.mark.django_db(transaction=True)
def test_what_another_process_has_locked_does_not_stop_the_rest(drive: Drive) -> None:
    owner = UserFactory()
    AlertChannel.objects.all().delete()
    late(owner)
    for name in ("held", "free"):
        fail(drive, owner, 60, name)
    with transaction.atomic():
        held = Incident.objects.select_for_update().get(name="held")
        run_concurrently(partial(planned.release_due, at(1000)))
        assert Delivery.objects.count() == 1
        held.resolved_at, held.resolution = at(900), "recovered"
        held.save(update_fields=["resolved_at", "resolution"])
    planned.release_due(at(1000))
    assert Delivery.objects.count() == 1
    assert not_sent(held) == ["recovered"]


def test_accounts_take_turns(owner: User, drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    other = UserFactory()
    AlertChannel.objects.all().delete()
    channels = [late(owner), late(other)]
    drive.checks(drive.monitors(owner, [f"m{number}" for number in range(10)]), DOWN, at(60))
    drive.tick(at(61))
    fail(drive, other, 70)
    monkeypatch.setattr(planned, "BATCH", 2)
    assert planned.release_due(at(1000))
    assert set(Delivery.objects.values_list("channel", flat=True)) == {channel.pk for channel in channels}


def test_a_channel_that_gets_a_delay_knows_of_earlier_outages(owner: User, drive: Drive) -> None:
    channel = make_channel(owner)
    monitor = fail(drive, owner, 60)
    update_channel(Caller(owner), channel.public_id, {"delay_min": 5}, now=at(90))
    drive.check(monitor, UP, at(120))
    assert events(drive.tick(at(121))) == ["recovered"]


def test_a_flapping_monitor_that_stays_down(owner: User, drive: Drive) -> None:
    late(owner, 5)
    monitor = drive.monitor(owner)
    for number in range(8):
        drive.check(monitor, UP if number % 2 else DOWN, at(60 + 30 * number))
        drive.tick(at(61 + 30 * number))
    drive.check(monitor, DOWN, at(300))
    drive.ticks(at(301), at(3 * HOUR), every=20)
    assert len(drive.sent) >= 1
    assert set(events(drive.sent)) <= {"flapping", "still_down", "down"}
    drive.check(monitor, UP, at(4 * HOUR))
    assert drive.ticks(at(4 * HOUR), at(6 * HOUR), every=60)[-1].events in (["recovered"], ["settled"])


def test_after_the_clock_was_set_back_nothing_waits_for_hours(owner: User, drive: Drive) -> None:
    hours = timedelta(hours=5)
    late(owner)
    failing = make_channel(owner)
    wrong = at(60) + hours
    drive.check(drive.monitor(owner, "Shop"), DOWN, wrong)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drive, "deliver", lambda _: [])
        drive.tick(wrong)
    claimed = claim(wrong)
    assert claimed is not None
    finish(claimed, delivered=False, detail="500", now=wrong)
    drive.check(drive.monitor(owner, "Held"), DOWN, wrong)
    Monitor.objects.filter(name="Held").update(muted_until=wrong + hours)
    drive.tick(wrong)
    Monitor.objects.filter(name="Held").update(muted_until=None)
    second = timedelta(seconds=1)
    scheduling.tick(wrong, idle_for=second)
    scheduling.tick(at(61), idle_for=second, step=at(61) - wrong - second)
    assert {one.items[0][1] for one in drive.ticks(at(62), at(80), every=2)} == {"Shop", "Held"}
    assert {one.channel_id for one in drive.sent} == {failing.pk}
    drive.ticks(at(600), at(700), every=10)
    assert len(drive.sent) == 4, "the delayed channel waits for ten minutes"

"""Who is notified of what, when, and when not."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from accounts.models import User
from alerts import notify
from alerts.models import AlertChannel, Delivery
from alerts.outbox import MAX_WAIT, QUIET
from checks.spec import Verdict
from incidents import consuming, windows
from incidents.models import Incident, IncidentEvent, MaintenanceWindow
from incidents.services import acknowledge
from monitors.expiry.warnings import warn_of_expiries
from monitors.models import Monitor, MonitorState
from monitors.operations import mute_for
from monitors.services import delete_monitor, update_monitor
from projects.access import Caller
from projects.models import Membership
from tests.alerts.drivers import EVERYTHING, Drive, Message, at, events, make_channel, notify_all, timeline
from tests.factories import ProjectFactory, UserFactory
from tests.helpers import EXAMPLES, NOON, run_concurrently

DOWN, UP, SLOW = Verdict.DOWN, Verdict.UP, Verdict.SLOW
HOUR = 3600.0


@pytest.fixture
def owner(db: None) -> User:
    user = UserFactory()
    AlertChannel.objects.all().delete()  # the one that comes with the account
    return user


@pytest.fixture
def channel(owner: User) -> AlertChannel:
    return make_channel(owner)


@pytest.fixture
def drive() -> Drive:
    return Drive()


def window(owner: User, start: float, end: float, *monitors: Monitor, **columns: Any) -> MaintenanceWindow:
    """Create a window from `start` to `end`, by default for all monitors of the owner."""
    made = MaintenanceWindow.objects.create(
        owner=owner,
        created_at=NOON,
        name="Upgrade",
        starts_at=at(start),
        ends_at=at(end),
        current_starts_at=at(start),
        current_ends_at=at(end),
        all_monitors=not monitors,
        **columns,
    )
    made.monitors.set(monitors)
    return made


def test_a_recovery_in_a_window_is_sent_before_the_next_outage(
    owner: User, channel: AlertChannel, drive: Drive
) -> None:
    """Incidents are reviewed every 15 s while the window suppresses them, the recovery not in the same second."""
    monitor = drive.monitor(owner)
    drive.check(monitor, DOWN, at(60))
    drive.tick(at(61))
    window(owner, 100, 4000)
    drive.check(monitor, UP, at(3912))
    drive.tick(at(3912))
    drive.check(monitor, DOWN, at(3926))
    drive.ticks(at(3926), at(4030), every=1)
    assert events(drive.sent) == ["down", "recovered", "still_down"]
    assert len({message.at for message in drive.sent[1:]}) == 1, "recovered and still_down are sent together"


def test_a_slow_tick_sees_the_window_that_another_process_has_moved(
    owner: User, channel: AlertChannel, drive: Drive
) -> None:
    monitor = drive.monitor(owner)
    window(owner, 50, 4000)
    window(owner, 4000, 8000)
    drive.check(monitor, DOWN, at(3990))
    windows.roll_forward(at(4001))
    assert drive.tick(at(3999)) == []
    assert drive.ticks(at(4001), at(4100), every=5) == []


def test_down_and_recovered(owner: User, channel: AlertChannel, drive: Drive) -> None:
    monitor = drive.monitor(owner, "Shop")
    drive.check(monitor, DOWN, at(60))
    assert drive.tick(at(61)) == [Message(channel.pk, at(61), (("down", "Shop"),))]
    assert drive.tick(at(62)) == []
    drive.check(monitor, UP, at(300))
    assert events(drive.tick(at(301))) == ["recovered"]
    assert drive.tick(at(302)) == []
    incident = Incident.objects.get()
    assert timeline(incident) == [
        "first_failure",
        "confirmed",
        "announced",
        "alert_sent",
        "resolved",
        "announced",
        "alert_sent",
    ]
    told = drive.payload[0]
    assert (told.monitor, told.incident_id, told.detail) == ("Shop", incident.public_id, "Answered 500.")
    assert told.started_at == int(at(60).timestamp() * 1000)


def test_a_late_notification_reports_both(owner: User, channel: AlertChannel, drive: Drive) -> None:
    """A short outage is still an outage; without a notification its alert would be lost."""
    monitor = drive.monitor(owner)
    drive.check(monitor, DOWN, at(60))
    consuming.consume(at(60), slow=lambda _: None)
    notify.notify_incidents(at(60))
    drive.check(monitor, UP, at(61))
    assert events(drive.tick(at(62))) == ["down", "recovered"]


def test_an_outage_that_ended_unseen_is_notified_as_both(owner: User, channel: AlertChannel, drive: Drive) -> None:
    """For example because the senders were stopped."""
    monitor = drive.monitor(owner)
    drive.check(monitor, DOWN, at(60))
    drive.check(monitor, UP, at(120))
    assert events(drive.tick(at(900))) == ["down", "recovered"]
    assert drive.tick(at(901)) == []
    assert timeline(Incident.objects.get()).count("announced") == 2


def test_an_outage_that_ended_unseen_under_a_silence_is_not_notified(
    owner: User, channel: AlertChannel, drive: Drive
) -> None:
    monitor = drive.monitor(owner)
    window(owner, 50, 900)
    drive.check(monitor, DOWN, at(60))
    drive.check(monitor, UP, at(120))
    assert drive.ticks(at(130), at(1000), every=10) == []
    assert "suppressed" in timeline(Incident.objects.get())


def test_a_channel_hears_of_its_topics(owner: User, drive: Drive) -> None:
    channels = {topic: make_channel(owner, topics=[topic]) for topic in EVERYTHING}
    monitor = drive.monitor(owner)
    drive.check(monitor, SLOW, at(60))
    drive.check(monitor, DOWN, at(120))
    drive.tick(at(121))
    drive.remind(at(121 + 25 * HOUR))
    drive.check(monitor, UP, at(26 * HOUR))
    drive.tick(at(26 * HOUR))
    names = {channel.pk: topic for topic, channel in channels.items()}
    heard = {(names[message.channel_id], tuple(message.events)) for message in drive.sent}
    assert heard == {
        ("slow", ("slow",)),
        ("down", ("down",)),
        ("reminder", ("reminder",)),
        ("recovered", ("recovered",)),
    }


def test_an_acknowledgement_is_notified_once(owner: User, channel: AlertChannel, drive: Drive) -> None:
    monitor = drive.monitor(owner)
    drive.check(monitor, DOWN, at(60))
    drive.tick(at(61))
    acknowledge(Caller(owner), Incident.objects.get().public_id, now=at(70))
    assert events(drive.ticks(at(71), at(80), every=1)) == ["acknowledged"]
    assert drive.payload[-1].by == owner.email


def test_an_acknowledgement_of_an_unannounced_incident_is_not_notified(
    owner: User, channel: AlertChannel, drive: Drive
) -> None:
    monitor = drive.monitor(owner)
    window(owner, 50, 900)
    drive.check(monitor, DOWN, at(60))
    drive.tick(at(61))
    acknowledge(Caller(owner), Incident.objects.get().public_id, now=at(70))
    assert drive.ticks(at(71), at(200), every=10) == []
    assert events(drive.ticks(at(900), at(950), every=10)) == ["still_down"]


def test_pause_and_deletion_are_notified_as_ends(owner: User, channel: AlertChannel, drive: Drive) -> None:
    paused, deleted = drive.monitor(owner, "Paused"), drive.monitor(owner, "Deleted")
    drive.checks([paused, deleted], DOWN, at(60))
    drive.tick(at(61))
    update_monitor(Caller(owner), paused.public_id, {"enabled": False}, now=at(70))
    delete_monitor(Caller(owner), deleted.public_id)
    assert {item for message in drive.tick(at(200)) for item in message.items} == {
        ("paused", "Paused"),
        ("deleted", "Deleted"),
    }


def test_channels_without_the_alert_hear_nothing_of_a_deleted_monitor(owner: User, drive: Drive) -> None:
    make_channel(owner, topics=["recovered"])
    monitor = drive.monitor(owner)
    drive.check(monitor, DOWN, at(60))
    drive.tick(at(61))
    delete_monitor(Caller(owner), monitor.public_id)
    assert drive.tick(at(200)) == []


# Routing ------------------------------------------------------------------------------------------------------


def test_each_channel_reaches_as_far_as_its_owner(owner: User, drive: Drive) -> None:
    member, stranger, former = UserFactory(), UserFactory(), UserFactory()
    AlertChannel.objects.all().delete()
    project = ProjectFactory(owner=owner, member=member, admin=former)
    other = ProjectFactory(owner=owner)
    ours = drive.monitor(owner, "ours", project_id=project.public_id)
    own = drive.monitor(owner, "own")
    others = drive.monitor(owner, "others", project_id=other.public_id)
    reach = {
        "owner, all": (make_channel(owner), {"ours", "own", "others"}),
        "owner, project": (make_channel(owner, scope="project", scope_project=project), {"ours"}),
        "owner, chosen": (make_channel(owner, scope="chosen", monitors=[own, others]), {"own", "others"}),
        "project, all": (make_channel(owner, project=project), {"ours"}),
        "project, chosen": (make_channel(owner, project=project, scope="chosen", monitors=[ours, own]), {"ours"}),
        "member, all": (make_channel(member), set()),
        "member, project": (make_channel(member, scope="project", scope_project=project), {"ours"}),
        "member, other project": (make_channel(member, scope="project", scope_project=other), set()),
        "member, chosen": (make_channel(member, scope="chosen", monitors=[ours, others, own]), {"ours"}),
        "stranger, project": (make_channel(stranger, scope="project", scope_project=project), set()),
        "stranger, chosen": (make_channel(stranger, scope="chosen", monitors=[ours, own]), set()),
        "former, project": (make_channel(former, scope="project", scope_project=project), set()),
        "switched off": (make_channel(owner, enabled=False), set()),
    }
    Membership.objects.filter(user=former).delete()
    for second, monitor in enumerate((ours, own, others)):
        drive.check(monitor, DOWN, at(100 + 200 * second))
        drive.tick(at(101 + 200 * second))
    heard = {
        name: {item[1] for message in drive.sent if message.channel_id == channel.pk for item in message.items}
        for name, (channel, _) in reach.items()
    }
    assert heard == {name: monitors for name, (_, monitors) in reach.items()}


def test_an_account_that_is_switched_off_hears_nothing(owner: User, channel: AlertChannel, drive: Drive) -> None:
    monitor = drive.monitor(owner)
    User.objects.filter(pk=owner.pk).update(is_active=False)
    drive.check(monitor, DOWN, at(60))
    assert drive.tick(at(61)) == []
    assert Incident.objects.get().events.get(type="announced").data == {"news": "down", "channels": 0}


# Silences -----------------------------------------------------------------------------------------------------

# An outage from 100 to 700 (or one that continues) against a silence: the kind and position of the silence, whether the
# outage ends, and the notifications, each with its minute. Silences last from 0 to 50 (before), 150 to 400 (inside),
# 50 to 400 (over the start), 400 to 900 (over the end), 50 to 900 (over the whole outage).
SILENCES = {"before": (0, 50), "inside": (150, 400), "beginning": (50, 400), "end": (400, 900), "all": (50, 900)}
TRUTH: dict[tuple[str, str, bool], list[tuple[str, int]]] = {
    # (mute, window, both or neither; silence; whether it recovers at 700)
    ("window", "before", True): [("down", 100), ("recovered", 700)],
    ("window", "before", False): [("down", 100)],
    ("window", "inside", True): [("down", 100), ("still_down", 400), ("recovered", 700)],
    ("window", "inside", False): [("down", 100), ("still_down", 400)],
    ("window", "beginning", True): [("still_down", 400), ("recovered", 700)],
    ("window", "beginning", False): [("still_down", 400)],
    ("window", "end", True): [("down", 100), ("recovered", 900)],
    ("window", "end", False): [("down", 100), ("still_down", 900)],
    ("window", "all", True): [],
    ("window", "all", False): [("still_down", 900)],
    # Under a mute failures do not count at all: an outage begins with the first check after it.
    ("mute", "before", True): [("down", 100), ("recovered", 700)],
    ("mute", "before", False): [("down", 100)],
    ("mute", "inside", True): [("down", 100), ("recovered", 700)],
    ("mute", "inside", False): [("down", 100)],
    ("mute", "beginning", True): [("down", 400), ("recovered", 700)],
    ("mute", "beginning", False): [("down", 400)],
    ("mute", "end", True): [("down", 100), ("recovered", 900)],
    ("mute", "end", False): [("down", 100)],
    ("mute", "all", True): [],
    ("mute", "all", False): [("down", 900)],
    # Both at once: failures do not count, and an outage notified before is notified again when the window ends.
    ("both", "before", True): [("down", 100), ("recovered", 700)],
    ("both", "before", False): [("down", 100)],
    ("both", "inside", True): [("down", 100), ("still_down", 400), ("recovered", 700)],
    ("both", "inside", False): [("down", 100), ("still_down", 400)],
    ("both", "beginning", True): [("down", 400), ("recovered", 700)],
    ("both", "beginning", False): [("down", 400)],
    ("both", "end", True): [("down", 100), ("recovered", 900)],
    ("both", "end", False): [("down", 100), ("still_down", 900)],
    ("both", "all", True): [],
    ("both", "all", False): [("down", 900)],
    # Neither.
    ("neither", "inside", True): [("down", 100), ("recovered", 700)],
    ("neither", "inside", False): [("down", 100)],
}
STEP = 50


@pytest.mark.django_db
def test_silences(drive: Drive) -> None:
    """All cases run together, each with its own owner and channel, so that alerts can be attributed to cases."""
    channels, monitors, mutes = {}, {}, defaultdict(list)
    for case in TRUTH:
        way, silence, _ = case
        owner = UserFactory()
        AlertChannel.objects.filter(owner=owner).delete()
        channels[make_channel(owner).pk] = case
        monitors[case] = drive.monitor(owner)
        start, end = SILENCES[silence]
        if way in ("window", "both"):
            window(owner, start, end)
        if way in ("mute", "both"):
            mutes[max(start, STEP)].append((monitors[case], end))
    for second in range(STEP, 1200, STEP):
        for monitor, end in mutes[second]:
            Monitor.objects.filter(pk=monitor.pk).update(muted_until=at(end))
        failing = {case for case in TRUTH if second >= 100 and not (case[2] and second >= 700)}
        drive.checks([monitors[case] for case in failing], DOWN, at(second))
        drive.checks([monitors[case] for case in TRUTH.keys() - failing], UP, at(second))
        drive.tick(at(second))
    told: dict[tuple[str, str, bool], list[tuple[str, int]]] = {case: [] for case in TRUTH}
    for message in drive.sent:
        (said,) = message.events
        told[channels[message.channel_id]].append((said, int((message.at - NOON).total_seconds())))
    assert told == TRUTH


def test_a_mute_within_a_window_and_a_window_within_a_mute(owner: User, channel: AlertChannel, drive: Drive) -> None:
    """Alerts are suppressed until the last of them ends."""
    monitor, muted = drive.monitor(owner, "one"), drive.monitor(owner, "two")
    window(owner, 50, 300)
    drive.checks([monitor, muted], DOWN, at(100))
    drive.tick(at(100))
    mute_for([muted.pk], minutes=10, now=at(200))
    assert [message.items for message in drive.ticks(at(110), at(1200), every=10)] == [
        (("still_down", "one"),),
        (("still_down", "two"),),
    ]
    assert [int((message.at - NOON).total_seconds()) for message in drive.sent] == [300, 800]


def test_why_nothing_is_said_stands_in_the_timeline_once(owner: User, channel: AlertChannel, drive: Drive) -> None:
    monitor = drive.monitor(owner)
    window(owner, 50, 900)
    drive.check(monitor, DOWN, at(100))
    drive.ticks(at(101), at(890), every=10)
    incident = Incident.objects.get()
    assert timeline(incident) == ["first_failure", "confirmed", "suppressed"]
    assert incident.events.get(type="suppressed").data == {"reason": "maintenance"}


def test_a_window_that_is_taken_back_ends_the_silence(owner: User, channel: AlertChannel, drive: Drive) -> None:
    monitor = drive.monitor(owner)
    made = window(owner, 50, 9000)
    drive.check(monitor, DOWN, at(100))
    assert drive.tick(at(101)) == []
    made.delete()
    assert events(drive.ticks(at(102), at(120), every=1)) == ["still_down"]


def test_a_window_of_chosen_monitors_leaves_the_others(owner: User, channel: AlertChannel, drive: Drive) -> None:
    chosen, other = drive.monitor(owner, "chosen"), drive.monitor(owner, "other")
    window(owner, 50, 900, chosen)
    drive.checks([chosen, other], DOWN, at(100))
    assert [message.items for message in drive.tick(at(101))] == [(("down", "other"),)]


def test_a_members_own_window_over_a_project_ends_like_any(owner: User, drive: Drive) -> None:
    member = UserFactory()
    AlertChannel.objects.all().delete()
    project = ProjectFactory(owner=owner, member=member)
    channel = make_channel(member, scope="project", scope_project=project)
    monitor = drive.monitor(owner, project_id=project.public_id)
    drive.check(monitor, DOWN, at(60))
    drive.tick(at(61))
    window(member, 100, 500, monitor)
    drive.ticks(at(110), at(600), every=10)
    assert [(message.channel_id, message.events) for message in drive.sent] == [
        (channel.pk, ["down"]),
        (channel.pk, ["still_down"]),
    ]


def test_expiry_warnings_wait_for_the_end_of_a_silence(owner: User, channel: AlertChannel, drive: Drive) -> None:
    monitor = drive.monitor(owner, check_ssl=True, url="https://127.0.0.1:9/")
    MonitorState.objects.filter(pk=monitor.pk).update(cert_expires_at=at(6 * 24 * HOUR))
    window(owner, 50, 900)
    warn_of_expiries(at(100))
    assert drive.tick(at(101)) == []
    assert events(drive.tick(at(900))) == ["certificate"]
    assert drive.tick(at(901)) == []
    assert drive.payload[0].expires_at == int(at(6 * 24 * HOUR).timestamp() * 1000)


# Storms, flapping, reminders ----------------------------------------------------------------------------------


@pytest.mark.parametrize("spread", [0, 10])
def test_a_storm_is_a_few_messages(owner: User, channel: AlertChannel, drive: Drive, spread: int) -> None:
    """500 monitors that fail within 10 s, and recover: at most 3 messages each way, and a timeline for each."""
    monitors = drive.monitors(owner, [f"m{number}" for number in range(500)])
    per_second = len(monitors) // (spread + 1)
    for second in range(spread + 1):
        end = None if second == spread else (second + 1) * per_second
        drive.checks(monitors[second * per_second : end], DOWN, at(60 + second))
        drive.tick(at(60 + second))
    drive.ticks(at(61 + spread), at(150), every=1)
    assert len(drive.sent) <= 3
    assert {name for message in drive.sent for _, name in message.items} == {m.name for m in monitors}
    assert Incident.objects.count() == 500
    timelines: dict[int, list[str]] = defaultdict(list)
    for incident_id, type_ in IncidentEvent.objects.order_by("pk").values_list("incident", "type"):
        timelines[incident_id].append(type_)
    assert len(timelines) == 500
    for timeline_events in timelines.values():
        assert timeline_events == ["first_failure", "confirmed", "announced", "alert_sent"]
    drive.checks(monitors, UP, at(600))
    assert len(drive.ticks(at(601), at(700), every=1)) <= 3
    assert not Incident.objects.filter(closing_announced_at=None).exists()


def test_a_trickle_holds_a_message_no_longer_than_it_may(owner: User, channel: AlertChannel, drive: Drive) -> None:
    monitors = drive.monitors(owner, [f"m{number}" for number in range(40)])
    drive.checks(monitors[:3], DOWN, at(60))
    drive.tick(at(60))
    for number, monitor in enumerate(monitors[3:]):
        drive.check(monitor, DOWN, at(62 + 2 * number))
        drive.tick(at(62 + 2 * number))
    assert drive.sent[0].at <= at(60) + MAX_WAIT + timedelta(seconds=2)
    assert QUIET < MAX_WAIT


def test_one_owners_storm_is_not_anothers(owner: User, channel: AlertChannel, drive: Drive) -> None:
    other = UserFactory()
    AlertChannel.objects.filter(owner=other).delete()
    others = make_channel(other)
    monitors = drive.monitors(owner, [f"m{number}" for number in range(20)])
    lone = drive.monitor(other, "lone")
    drive.checks([*monitors, lone], DOWN, at(60))
    assert drive.tick(at(61)) == [Message(others.pk, at(61), (("down", "lone"),))]


@pytest.mark.django_db
@pytest.mark.parametrize("interval", [60, 300, 600])
def test_flapping_at_every_check_for_an_hour(drive: Drive, interval: int) -> None:
    """Two monitors flap; one ends up and the other down. Later each switches to the opposite state."""
    monitors, channels = {}, {}
    for ends in (UP, DOWN):
        owner = UserFactory()
        AlertChannel.objects.filter(owner=owner).delete()
        monitors[ends] = drive.monitor(owner, interval_sec=interval)
        channels[ends] = make_channel(owner).pk
    verdict, checks = DOWN, int(HOUR // interval)
    for number in range(1, checks + 20):
        for ends, monitor in monitors.items():
            drive.check(monitor, verdict if number <= checks else ends, at(number * interval))
        drive.ticks(at(number * interval + 1), at((number + 1) * interval - 1), every=max(30, interval / 5))
        verdict = UP if verdict is DOWN else DOWN
    for ends, monitor in monitors.items():
        drive.check(monitor, UP if ends is DOWN else DOWN, at(10 * HOUR))
    drive.tick(at(10 * HOUR))
    heard = {
        ends: events(message for message in drive.sent if message.channel_id == channel)
        for ends, channel in channels.items()
    }
    assert heard == {
        UP: ["down", "recovered", "flapping", "settled", "down"],
        DOWN: ["down", "recovered", "flapping", "still_down", "recovered"],
    }


def test_a_pause_ends_flapping(owner: User, channel: AlertChannel, drive: Drive) -> None:
    monitor = drive.monitor(owner)
    for number, verdict in enumerate((DOWN, UP, DOWN, UP, DOWN)):
        drive.check(monitor, verdict, at(60 * (number + 1)))
        drive.tick(at(60 * (number + 1)))
    update_monitor(Caller(owner), monitor.public_id, {"enabled": False}, now=at(400))
    drive.ticks(at(401), at(5000), every=60)
    assert events(drive.sent) == ["down", "recovered", "flapping", "recovered"]


def test_wavering_between_up_and_slow_is_notified_once(owner: User, channel: AlertChannel, drive: Drive) -> None:
    monitor = drive.monitor(owner)
    for number in range(1, 60):
        drive.check(monitor, SLOW if number % 2 else UP, at(60 * number))
        drive.tick(at(60 * number))
    assert events(drive.sent) == ["slow"]


def test_reminders_until_an_acknowledgement(owner: User, drive: Drive) -> None:
    often, seldom = make_channel(owner, remind_every_hours=2), make_channel(owner, remind_every_hours=5)
    monitor = drive.monitor(owner)
    drive.check(monitor, DOWN, at(60))
    drive.tick(at(60))
    drive.sent.clear()
    # Beat reminds every minute. `make test` skips most minutes that are not near a full hour.
    for minute in range(60 * 12):
        if EXAMPLES == 1 and minute % 10 and (minute + 2) % 60 > 4:
            continue
        if minute == 60 * 11:
            Incident.objects.update(acknowledged_at=at(60 + 60 * minute))
        drive.remind(at(60 + 60 * minute))
    hours = {
        channel: [
            (message.at - at(60)).total_seconds() / HOUR for message in drive.sent if message.channel_id == channel.pk
        ]
        for channel in (often, seldom)
    }
    assert hours == {often: [2, 4, 6, 8, 10], seldom: [5, 10]}
    assert set(events(drive.sent)) == {"reminder"}


def test_no_reminder_under_a_silence(owner: User, channel: AlertChannel, drive: Drive) -> None:
    monitor = drive.monitor(owner)
    drive.check(monitor, DOWN, at(60))
    drive.tick(at(60))
    mute_for([monitor.pk], minutes=10_000, now=at(70))
    assert drive.remind(at(30 * HOUR)) == []


def test_one_tick_notifies_of_more_outages_than_fit_into_a_batch(
    owner: User, channel: AlertChannel, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "BATCH", 2)
    muted, *monitors = drive.monitors(owner, [f"m{number}" for number in range(6)])
    mute_for([muted.pk], minutes=10, now=at(50))
    drive.checks([muted, *monitors], DOWN, at(60))
    consuming.consume(at(61), slow=lambda _: None)
    notify_all(at(61))
    assert set(Incident.objects.exclude(announced_at=None).values_list("monitor", flat=True)) == {
        monitor.pk for monitor in monitors
    }


@pytest.mark.django_db(transaction=True)
def test_many_ticks_at_once_notify_each_event_once() -> None:
    drive, owner = Drive(), UserFactory()
    AlertChannel.objects.all().delete()
    make_channel(owner)
    monitors = [drive.monitor(owner, f"m{number}") for number in range(10)]
    drive.checks(monitors, DOWN, at(60))
    for _ in range(5):
        run_concurrently(
            *[partial(consuming.consume, at(61), slow=lambda _: None)] * 2,
            *[partial(notify.notify_incidents, at(61))] * 3,
        )
    consuming.consume(at(62), slow=lambda _: None)
    notify.notify_incidents(at(62))
    items = [item for delivery in Delivery.objects.all() for item in delivery.items.all()]
    assert sorted(item.payload["monitor"] for item in items) == sorted(monitor.name for monitor in monitors)

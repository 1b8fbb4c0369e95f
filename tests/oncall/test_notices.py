"""Notices of gaps, hand-overs and policies that reach no one."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from alerts.events import DEFAULT_TOPICS, EventType, Topic
from alerts.models import AlertChannel, DeliveryItem
from core.clock import to_ms
from monitors.models import Monitor
from oncall import notices
from oncall.models import OnCallSchedule
from oncall.notices import announce_shifts, announce_unreachable
from projects.models import Membership, Project
from tests.alerts.drivers import Drive, make_channel
from tests.factories import MembershipFactory, MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import NOON
from tests.oncall.making import make_policy, make_schedule, reach_by

pytestmark = pytest.mark.django_db
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
GAP, CALL, ENDED = EventType.ON_CALL_GAP, EventType.ON_CALL, EventType.ON_CALL_ENDED
BY_DAY = [{"days": [1, 2, 3, 4, 5, 6, 7], "from": "09:00", "to": "17:00"}]


@pytest.fixture
def drive() -> Drive:
    return Drive()


@pytest.fixture
def owner() -> User:
    return UserFactory()


def announce(drive: Drive, start: datetime, end: datetime, every: timedelta = timedelta(minutes=10)) -> list[str]:
    """Look for notices; return what was sent: hours since NOON, event and detail."""
    found = []
    while start <= end:
        announce_shifts(start)
        count = len(drive.payload)
        drive.deliver(start)
        hour = (start - NOON) / HOUR
        found += [f"{hour:g} {one.event_type} {one.by or ''}: {one.detail}" for one in drive.payload[count:]]
        start += every
    return found


def people_channels(*users: User) -> dict[int, User]:
    """Give each person one channel for hand-overs alone."""
    AlertChannel.objects.filter(owner__in=users).delete()
    return {make_channel(user, topics=["on_call"]).pk: user for user in users}


def test_gaps_are_on_and_hand_overs_off_by_default() -> None:
    assert Topic.ON_CALL_GAP in DEFAULT_TOPICS
    assert Topic.ON_CALL not in DEFAULT_TOPICS


def test_a_gap_is_announced_once_24_hours_ahead(drive: Drive, owner: User) -> None:
    AlertChannel.objects.all().delete()
    channel = make_channel(owner, topics=["on_call_gap"])
    schedule = make_schedule(owner, owner, time_zone="Europe/Berlin")
    schedule.layers[0]["hours"] = [{"days": [7, 1, 2, 4, 5, 6], "from": "00:00", "to": "00:00"}]
    schedule.save()
    found = announce(drive, NOON, NOON + 4 * DAY, every=HOUR)
    # Wednesday begins 59 hours after NOON in Berlin.
    detail = "No one is on call from Wed 2026-03-04 00:00 until Thu 2026-03-05 00:00 (Europe/Berlin)."
    assert found == [f"36 on_call_gap : {detail}"]
    (payload,) = drive.payload
    assert (payload.title, payload.schedule_id, payload.project) == ("Nights", schedule.public_id, None)
    assert payload.path == f"/on-call/schedules/{schedule.public_id}"
    times = [to_ms(NOON + hours * HOUR) for hours in (59, 83)]
    assert [payload.started_at, payload.resolved_at] == times
    assert drive.sent[0].channel_id == channel.pk


def test_a_gap_that_arises_later_is_announced_at_once(drive: Drive) -> None:
    project = ProjectFactory()
    anna = UserFactory()
    place = MembershipFactory(project=project, user=anna)
    AlertChannel.objects.all().delete()
    make_channel(anna, project=project, topics=["on_call_gap"])
    schedule = make_schedule(project, anna)
    assert announce(drive, NOON, NOON + HOUR) == []
    place.delete()
    lasting = "on_call_gap : No one has been on call for more than a week, without an end in sight (UTC)."
    # Again in the next week: it is a Sunday.
    assert announce(drive, NOON + 2 * HOUR, NOON + 7 * DAY, every=3 * HOUR) == [f"2 {lasting}", f"14 {lasting}"]
    # It ends and another begins.
    MembershipFactory(project=project, user=anna)
    assert announce(drive, NOON + 9 * DAY, NOON + 10 * DAY, every=3 * HOUR) == []
    OnCallSchedule.objects.update(layers=[schedule.layers[0] | {"hours": BY_DAY}])
    assert len(announce(drive, NOON + 11 * DAY, NOON + 11 * DAY + HOUR)) == 1


def test_who_gets_notice_of_a_gap(drive: Drive, owner: User) -> None:
    project, other = ProjectFactory(owner=owner), ProjectFactory(owner=owner)
    member = UserFactory()
    MembershipFactory(project=project, user=member)
    AlertChannel.objects.all().delete()
    got = {
        make_channel(owner).pk,
        make_channel(owner, scope="project", scope_project=project).pk,
        make_channel(owner, project=project).pk,
    }
    make_channel(owner, topics=["down", "on_call"])
    make_channel(owner, enabled=False)
    make_channel(owner, confirmed_at=None)
    make_channel(owner, project=other)
    make_channel(owner, scope="project", scope_project=other)
    make_channel(owner, scope="chosen", monitors=[MonitorFactory(owner=owner, project=project)])
    make_channel(member)
    make_channel(UserFactory())
    make_schedule(project)
    OnCallSchedule.objects.update(layers=[])
    announce(drive, NOON, NOON)
    assert {one.channel_id for one in drive.sent} == got
    assert {one.project for one in drive.payload} == {project.name}


def test_both_people_get_notice_of_a_hand_over(drive: Drive) -> None:
    project = ProjectFactory()
    anna, ben = UserFactory(email="anna@example.com"), UserFactory(email="ben@example.com")
    for user in (anna, ben):
        MembershipFactory(project=project, user=user)
    channels = people_channels(anna, ben)
    make_schedule(project, anna, ben)
    assert announce(drive, NOON - DAY - 2 * HOUR, NOON - DAY - HOUR) == []
    found = announce(drive, NOON - DAY, NOON + DAY - HOUR)
    days = ("Sun 2026-03-01", "Mon 2026-03-02")
    names = (anna, ben) if found[0].split()[2].startswith("anna") else (ben, anna)
    pairs = zip(days, reversed(names), strict=True)
    details = [f"Until {day} 12:00 (UTC). Before: {user.email}." for day, user in pairs]
    assert found == [
        *[f"-24 on_call {names[0].email}: {details[0]}"] * 2,
        *[f"0 on_call {names[1].email}: {details[1]}"] * 2,
    ]
    assert sorted(one.channel_id for one in drive.sent) == sorted([*channels, *channels])


def test_the_end_of_a_shift_that_nobody_follows(drive: Drive, owner: User) -> None:
    people_channels(owner)
    schedule = make_schedule(owner, owner)
    schedule.layers[0]["hours"] = BY_DAY
    schedule.save()
    assert announce(drive, NOON + 4 * HOUR, NOON + 22 * HOUR) == [
        f"5 on_call_ended {owner.email}: No one is on call now.",
        f"21 on_call {owner.email}: Until Mon 2026-03-02 17:00 (UTC).",
    ]


def test_after_an_outage_of_ours_only_fresh_hand_overs_are_sent(drive: Drive, owner: User) -> None:
    people_channels(owner)
    schedule = make_schedule(owner, owner)
    schedule.layers[0]["hours"] = BY_DAY
    schedule.save()
    assert announce(drive, NOON, NOON) == []
    assert announce(drive, NOON + 21.5 * HOUR, NOON + 22 * HOUR) == [
        f"21.5 on_call {owner.email}: Until Mon 2026-03-02 17:00 (UTC)."
    ]
    assert DeliveryItem.objects.count() == 1


def test_a_clock_that_is_set_back_delays_nothing(drive: Drive, owner: User) -> None:
    people_channels(owner)
    schedule = make_schedule(owner, owner)
    schedule.layers[0]["hours"] = BY_DAY
    schedule.save()
    assert announce(drive, NOON + DAY, NOON + DAY) == []
    assert len(announce(drive, NOON + 4 * HOUR, NOON + 6 * HOUR)) == 1


def test_statements_do_not_grow_with_schedules(owner: User) -> None:
    people_channels(owner)
    make_channel(owner)

    def count(moment: datetime) -> int:
        with CaptureQueriesContext(connection) as queries:
            announce_shifts(moment)
        return len(queries)

    for number in range(2):
        make_schedule(owner, UserFactory(), name=f"Gap {number}")
    few = count(NOON)
    for number in range(20):
        make_schedule(owner, UserFactory(), name=f"Gap {number + 2}")
    OnCallSchedule.objects.update(announced_until=None)
    assert count(NOON + HOUR) <= few
    assert count(NOON + HOUR) <= 4


def test_a_policy_that_reaches_no_one_is_announced_weekly(drive: Drive) -> None:
    project = ProjectFactory()
    owner = Membership.objects.get(project=project).user
    assert owner is not None
    anna = UserFactory()
    place = MembershipFactory(project=project, user=anna)
    channel = make_channel(owner, project=project, topics=["on_call_gap"])
    policy = make_policy(project, (0, [anna]), name="Backend")
    unused = make_policy(project, (0, [anna]), name="Unused")
    Monitor.objects.filter(pk=MonitorFactory(owner=owner, project=project).pk).update(escalation_policy=policy)

    def look(moment: datetime) -> list[tuple[int, str, str]]:
        announce_unreachable(moment)
        count = len(drive.payload)
        sent = drive.deliver(moment)
        return [
            (one.channel_id, str(payload.event_type), payload.title)
            for one, payload in zip(sent, drive.payload[count:], strict=True)
            if one.channel_id == channel.pk
        ]

    assert look(NOON) == []
    reach_by(anna)
    expected = [(channel.pk, "policy_unreachable", "Backend")]
    assert look(NOON + HOUR) == expected
    assert look(NOON + 2 * HOUR) == []
    assert look(NOON + 7 * DAY) == expected
    assert drive.payload[0].path == f"/on-call/policies/{policy.public_id}"
    place.delete()
    Project.objects.update(escalation_policy=unused)
    assert {title for _, _, title in look(NOON + 14 * DAY)} == {"Backend", "Unused"}


def test_an_account_with_many_schedules_delays_only_its_own(owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [make_schedule(owner, owner, name=f"Many {number}") for number in range(4)]
    other = make_schedule(UserFactory(), owner, name="Other")
    monkeypatch.setattr(notices, "BATCH", 2)
    monkeypatch.setattr(notices, "BUDGET_SEC", 0.0)
    announce_shifts(NOON)
    looked_at = OnCallSchedule.objects.filter(announced_until=NOON)
    assert set(looked_at) == {many[0], other}
    announce_shifts(NOON)
    assert looked_at.all().count() == 4

"""Escalations of outages, from the check to the message."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from accounts.models import User
from alerts.models import AlertChannel, Delivery, DeliveryItem
from alerts.outbox import oldest_alert
from checks.spec import Verdict
from core.errors import NotEscalating
from incidents.models import Escalation, Incident, IncidentEvent
from incidents.services import acknowledge
from monitors import scheduling
from monitors.models import Dependency, Monitor
from monitors.operations import mute_for
from oncall.escalating import escalate, run_due, unacknowledge
from oncall.models import EscalationPolicy
from projects.access import Caller
from projects.models import Project
from tests.alerts.drivers import Drive, at, events, make_channel
from tests.factories import MembershipFactory, ProjectFactory, UserFactory
from tests.oncall.making import make_policy, make_schedule, reach_by, texts

DOWN, UP = Verdict.DOWN, Verdict.UP
pytestmark = pytest.mark.django_db


@pytest.fixture
def drive() -> Drive:
    return Drive()


@pytest.fixture
def project() -> Project:
    return ProjectFactory()


def member(project: Project) -> tuple[User, AlertChannel]:
    """Return a member of the project with their own e-mail channel alone."""
    user = UserFactory()
    MembershipFactory(project=project, user=user)
    return user, AlertChannel.objects.get(owner=user)


def watch(drive: Drive, project: Project, policy: EscalationPolicy | None, name: str = "Shop", **given: Any) -> Monitor:
    owner = project.memberships.get(role="owner").user
    assert owner is not None
    monitor = drive.monitor(owner, name, project_id=project.public_id, **given)
    Monitor.objects.filter(pk=monitor.pk).update(escalation_policy=policy)
    return monitor


def test_an_outage_goes_the_way_of_the_policy_alone(drive: Drive, project: Project) -> None:
    anna, hers = member(project)
    ben, his = member(project)
    other = make_channel(anna, project=project)
    policy = make_policy(project, (0, [anna]), (10, [make_schedule(project, ben)]))
    monitor = watch(drive, project, policy)
    drive.check(monitor, DOWN, at(60))
    assert [(one.channel_id, one.items) for one in drive.tick(at(61))] == [(hers.pk, (("down", "Shop"),))]
    assert drive.ticks(at(62), at(660), every=60) == []
    assert [one.channel_id for one in drive.tick(at(662))] == [his.pk]
    assert drive.tick(at(3000)) == []
    drive.check(monitor, UP, at(4000))
    assert {(one.channel_id, *one.events) for one in drive.tick(at(4001))} == {
        (hers.pk, "recovered"),
        (his.pk, "recovered"),
    }
    assert other.pk not in {one.channel_id for one in drive.sent}
    assert texts(Incident.objects.get()) == [
        "Escalation by “Backend” begins: the first step runs at once.",
        f"Step 1 of “Backend”: {anna.email} by e-mail at once.",
        f"Step 2 of “Backend”: {ben.email} by e-mail at once.",
    ]


def test_the_policy_of_the_project_applies_without_an_own_one(drive: Drive, project: Project) -> None:
    anna, hers = member(project)
    ben, his = member(project)
    Project.objects.update(escalation_policy=make_policy(project, (0, [anna])))
    drive.check(watch(drive, project, None, "One"), DOWN, at(60))
    drive.check(watch(drive, project, make_policy(project, (0, [ben])), "Two"), DOWN, at(60))
    assert {(one.channel_id, one.items[0][1]) for one in drive.tick(at(61))} == {(hers.pk, "One"), (his.pk, "Two")}


def test_a_policy_of_another_project_does_not_apply(drive: Drive, project: Project) -> None:
    stranger = ProjectFactory()
    anna, hers = member(stranger)
    monitor = watch(drive, project, make_policy(stranger, (0, [anna])))
    drive.check(monitor, DOWN, at(60))
    assert hers.pk not in {one.channel_id for one in drive.tick(at(61))}
    assert not Escalation.objects.exists()


def test_acknowledging_stops_it_and_drops_what_is_queued(drive: Drive, project: Project) -> None:
    anna, hers = member(project)
    ben, _ = member(project)
    reach_by(anna, (0, hers), (5, hers))
    policy = make_policy(project, (0, [anna]), (10, [ben]))
    monitor = watch(drive, project, policy)
    drive.check(monitor, DOWN, at(60))
    run_ticks_without_sending(drive, at(61))
    incident = Incident.objects.get()
    acknowledge(Caller(anna), incident.public_id, now=at(62))
    assert drive.ticks(at(62), at(2000), every=100) == []
    assert not Delivery.objects.filter(state="waiting").exists()
    drive.check(monitor, UP, at(3000))
    assert drive.tick(at(3001)) == [], "no one was notified"
    assert texts(incident).count(f"Alert to {hers} not sent: it was acknowledged.") == 2
    incident.refresh_from_db()
    assert incident.acknowledged_by == anna


def run_ticks_without_sending(drive: Drive, moment: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drive, "deliver", lambda _: [])
        drive.tick(moment)


def test_a_timeout_takes_the_acknowledgement_back(drive: Drive, project: Project) -> None:
    anna, _ = member(project)
    policy = make_policy(project, (1, [anna]), acknowledge_timeout_min=30)
    drive.check(watch(drive, project, policy), DOWN, at(60))
    drive.ticks(at(61), at(130), every=1)
    incident = Incident.objects.get()
    assert events(drive.sent) == ["down"]
    acknowledge(Caller(anna), incident.public_id, now=at(200))
    assert events(drive.tick(at(201))) == ["acknowledged"]
    assert drive.ticks(at(202), at(1999), every=60) == []
    drive.tick(at(2001))
    incident.refresh_from_db()
    assert incident.acknowledged_at is None
    assert incident.acknowledged_by is None
    assert drive.ticks(at(2002), at(2059), every=19) == []
    assert events(drive.tick(at(2061))) == ["down"]
    acknowledge(Caller(anna), incident.public_id, now=at(2100))
    assert events(drive.tick(at(2101))) == ["acknowledged"]


def test_rounds_repeat_and_end(drive: Drive, project: Project) -> None:
    anna, _ = member(project)
    policy = make_policy(project, (0, [anna]), (5, [anna]), repeat=1)
    drive.check(watch(drive, project, policy), DOWN, at(60))
    sent = drive.ticks(at(61), at(7200), every=10)
    assert [(one.at - at(61)) // timedelta(seconds=10) * 10 for one in sent] == [0, 300, 300, 600]
    assert Escalation.objects.get().state == "finished"


def test_steps_that_reach_no_one_are_passed_over_and_the_owner_is_notified_at_last(
    drive: Drive, project: Project
) -> None:
    owner = project.memberships.get(role="owner").user
    assert owner is not None
    AlertChannel.objects.filter(owner=owner).delete()
    anna, hers = member(project)
    hers.delete()
    empty = make_schedule(project, name="Empty", layers=[])
    policy = make_policy(project, (0, [anna]), (10, [empty]), repeat=3)
    drive.check(watch(drive, project, policy), DOWN, at(60))
    (message,) = drive.tick(at(61))
    made = AlertChannel.objects.get(owner=owner)
    assert (message.channel_id, message.events, made.topics) == (made.pk, ["down"], [])
    assert texts(Incident.objects.get())[1:] == [
        f"Step 1 of “Backend” reaches no one: {anna.email} has no confirmed channel.",
        "Step 2 of “Backend” reaches no one: no one is on call in Empty.",
        f"“Backend” reached no one: the owner {owner.email} is notified by e-mail.",
    ]
    assert drive.ticks(at(62), at(4000), every=300) == []


def test_a_muted_outage_waits(drive: Drive, project: Project) -> None:
    anna, _ = member(project)
    ben, his = member(project)
    monitor = watch(drive, project, make_policy(project, (0, [anna]), (10, [ben])))
    drive.check(monitor, DOWN, at(60))
    drive.tick(at(61))
    mute_for([monitor.pk], minutes=60, now=at(70))
    assert drive.ticks(at(70), at(3600), every=20) == []
    assert [one.channel_id for one in drive.ticks(at(3671), at(3700), every=5)] == [his.pk]
    assert "No alert is sent: the monitor is muted." in texts(Incident.objects.get())


def test_resolved_between_two_steps(drive: Drive, project: Project) -> None:
    anna, _ = member(project)
    ben, his = member(project)
    monitor = watch(drive, project, make_policy(project, (0, [anna]), (10, [ben])))
    drive.check(monitor, DOWN, at(60))
    drive.tick(at(61))
    drive.check(monitor, UP, at(600))
    assert events(drive.ticks(at(600), at(2000), every=10)) == ["recovered"]
    assert his.pk not in {one.channel_id for one in drive.sent}
    row = Escalation.objects.get()
    assert (row.state, row.next_at) == ("finished", None)


def test_all_processes_dead_for_three_steps(drive: Drive, project: Project) -> None:
    people = [member(project) for _ in range(4)]
    policy = make_policy(project, *((5, [user]) for user, _ in people))
    drive.check(watch(drive, project, policy), DOWN, at(60))
    drive.tick(at(61))
    sent = drive.tick(at(61 + 17 * 60))
    assert sorted(one.channel_id for one in sent) == sorted(channel.pk for _, channel in people[:3])
    steps = IncidentEvent.objects.filter(data__has_key="step").order_by("pk").values_list("data__step", flat=True)
    assert list(steps) == [0, 1, 2], "the earliest first; messages of several channels have no order"
    assert [one.channel_id for one in drive.ticks(at(1100), at(1300), every=5)] == [people[3][1].pk]


def test_a_clock_that_jumps_back_runs_no_step_twice(drive: Drive, project: Project) -> None:
    anna, _ = member(project)
    drive.check(watch(drive, project, make_policy(project, (0, [anna]), (10, [anna]))), DOWN, at(60))
    drive.tick(at(61))
    drive.tick(at(700))
    assert drive.ticks(at(0), at(900), every=30) == []


def test_a_policy_edited_during_an_incident(drive: Drive, project: Project) -> None:
    anna, _ = member(project)
    ben, his = member(project)
    policy = make_policy(project, (0, [anna]), (10, [anna]), (10, [anna]))
    drive.check(watch(drive, project, policy), DOWN, at(60))
    drive.tick(at(61))
    policy.steps = make_policy(project, (0, [ben]), (0, [ben])).steps
    policy.save()
    assert [one.channel_id for one in drive.ticks(at(661), at(700), every=1)] == [his.pk]
    assert Escalation.objects.get().state == "finished"


def test_a_policy_deleted_before_anybody_was_notified(drive: Drive, project: Project) -> None:
    owner = project.memberships.get(role="owner").user
    anna, _ = member(project)
    policy = make_policy(project, (10, [anna]))
    drive.check(watch(drive, project, policy), DOWN, at(60))
    drive.tick(at(61))
    policy.delete()
    (message,) = drive.ticks(at(62), at(1000), every=60)
    assert message.channel_id == AlertChannel.objects.get(owner=owner).pk
    assert texts(Incident.objects.get())[-1].startswith("The escalation policy was deleted: the owner")


def test_someone_who_leaves_during_their_shift(drive: Drive, project: Project) -> None:
    anna, hers = member(project)
    ben, _ = member(project)
    policy = make_policy(project, (0, [make_schedule(project, anna, ben)]), (5, [anna]), (5, [ben]))
    drive.check(watch(drive, project, policy), DOWN, at(60))
    (first,) = drive.tick(at(61))
    on_call, other = (anna, ben) if first.channel_id == hers.pk else (ben, anna)
    project.memberships.filter(user=on_call).delete()
    sent = drive.ticks(at(62), at(2000), every=30)
    assert {one.channel_id for one in sent} == {AlertChannel.objects.get(owner=other).pk}
    assert any("a person who has left" in text for text in texts(Incident.objects.get()))


def test_each_person_is_notified_once_in_a_step(drive: Drive, project: Project) -> None:
    anna, hers = member(project)
    schedule = make_schedule(project, anna)
    policy = make_policy(project, (0, [anna, schedule, make_schedule(project, anna, name="Days")]))
    drive.check(watch(drive, project, policy), DOWN, at(60))
    assert [one.channel_id for one in drive.tick(at(61))] == [hers.pk]


def test_300_outages_reach_one_person_as_one_message(drive: Drive, project: Project) -> None:
    anna, hers = member(project)
    owner = project.memberships.get(role="owner").user
    assert owner is not None
    policy = make_policy(project, (0, [anna]), (10, [anna]))
    Project.objects.update(escalation_policy=policy)
    monitors = drive.monitors(owner, [f"Shop {n}" for n in range(300)], project_id=project.public_id)
    drive.checks(monitors, DOWN, at(60))
    with CaptureQueriesContext(connection) as queries:
        run_ticks_without_sending(drive, at(61))
    assert len(queries) < 90, [query["sql"][:100] for query in queries]
    (message,) = drive.ticks(at(62), at(80), every=1)
    assert (message.channel_id, len(message.items)) == (hers.pk, 300)
    with CaptureQueriesContext(connection) as queries:
        assert run_due(at(661)) is False
    assert DeliveryItem.objects.count() == 600
    assert len(queries) < 30, [query["sql"][:100] for query in queries]


def test_escalate_runs_the_next_step_at_once(drive: Drive, project: Project) -> None:
    anna, _ = member(project)
    ben, his = member(project)
    drive.check(watch(drive, project, make_policy(project, (0, [anna]), (60, [ben]))), DOWN, at(60))
    drive.tick(at(61))
    incident = Incident.objects.get()
    escalate(Caller(anna), incident.public_id, now=at(100))
    assert [one.channel_id for one in drive.tick(at(100))] == [his.pk]
    with pytest.raises(NotEscalating):
        escalate(Caller(anna), incident.public_id, now=at(101))
    acknowledge(Caller(anna), incident.public_id, now=at(102))
    with pytest.raises(NotEscalating):
        escalate(Caller(anna), incident.public_id, now=at(103))
    unacknowledge(Caller(ben), incident.public_id, now=at(104))
    found = unacknowledge(Caller(ben), incident.public_id, now=at(105))
    assert (found.acknowledged_at, found.running_escalation is not None) == (None, True)
    drive.tick(at(106))
    assert Escalation.objects.get().run == 1


def test_an_outage_without_a_policy_escalates_nowhere(drive: Drive, project: Project) -> None:
    anna, _ = member(project)
    drive.check(watch(drive, project, None), DOWN, at(60))
    drive.tick(at(61))
    with pytest.raises(NotEscalating):
        escalate(Caller(anna), Incident.objects.get().public_id, now=at(62))


def test_acknowledged_before_the_escalation_begins(drive: Drive, project: Project) -> None:
    anna, _ = member(project)
    monitor = watch(drive, project, make_policy(project, (0, [anna]), acknowledge_timeout_min=5))
    drive.check(monitor, DOWN, at(60))
    Monitor.objects.filter(pk=monitor.pk).update(muted_until=at(3600))
    drive.tick(at(61))
    acknowledge(Caller(anna), Incident.objects.get().public_id, now=at(70))
    assert drive.ticks(at(3600), at(3650), every=5) == []
    assert events(drive.ticks(at(3900), at(3960), every=5)) == ["down"]


def test_a_step_that_no_worker_runs_is_seen_as_late(drive: Drive, project: Project) -> None:
    anna, _ = member(project)
    monitor = watch(drive, project, make_policy(project, (10, [anna])))
    drive.check(monitor, DOWN, at(60))
    drive.tick(at(61))
    assert oldest_alert(connection.connection, now=at(660)) is None
    assert oldest_alert(connection.connection, now=at(700)) == at(661)
    drive.tick(at(701))
    assert oldest_alert(connection.connection, now=at(702)) is None


def test_a_flapping_monitor_settles_for_those_who_were_notified(
    drive: Drive, project: Project, settings: Settings
) -> None:
    anna, hers = member(project)
    ben, _ = member(project)
    settings.FLAPPING_CHANGES, settings.FLAPPING_MINUTES = 3, 10
    monitor = watch(drive, project, make_policy(project, (0, [anna]), (30, [ben])))
    for second in range(60, 780, 60):
        drive.check(monitor, DOWN if second % 120 else UP, at(second))
        drive.tick(at(second + 1))
    drive.ticks(at(740), at(2400), every=20)
    sent = {(one.channel_id, *one.events) for one in drive.sent}
    assert (hers.pk, "down") in sent
    assert {one.channel_id for one in drive.sent} == {hers.pk}, sent
    assert events(drive.sent)[-1] == "settled"


def test_an_outage_waits_for_its_parent(drive: Drive, project: Project) -> None:
    anna, _ = member(project)
    ben, his = member(project)
    child = watch(drive, project, make_policy(project, (0, [anna]), (10, [ben])))
    parent = watch(drive, project, make_policy(project, (0, [anna])), "Router")
    Dependency.objects.create(child=child, parent=parent, position=0)
    drive.check(parent, UP, at(59))
    drive.check(child, DOWN, at(60))
    drive.check(parent, UP, at(61))
    drive.ticks(at(61), at(70), every=1)
    assert [message.items for message in drive.sent] == [(("down", "Shop"),)]
    drive.check(parent, DOWN, at(600))
    drive.ticks(at(601), at(900), every=10)
    assert [message.items for message in drive.sent[1:]] == [(("down", "Router"),)]
    assert texts(Incident.objects.get(monitor=child))[-1] == "Alerts are held: Router is down."
    drive.check(parent, UP, at(900))
    drive.check(child, DOWN, at(910))
    sent = drive.ticks(at(911), at(940), every=1)
    assert [message.channel_id for message in sent if message.items == (("down", "Shop"),)] == [his.pk]


def test_a_channel_outside_of_its_hours_is_not_reached(drive: Drive, project: Project) -> None:
    """It gets the outage when its hours begin, if that is still open."""
    anna, hers = member(project)
    ben, his = member(project)
    hers.hours = [{"days": [1, 2, 3, 4, 5, 6, 7], "from": "13:00", "to": "14:00"}]
    hers.save()
    drive.check(watch(drive, project, make_policy(project, (0, [anna]), (10, [ben]))), DOWN, at(60))
    assert [one.channel_id for one in drive.tick(at(61))] == [his.pk]
    assert f"Step 1 of “Backend”: {anna.email} by e-mail, outside of the channel's hours." in texts(
        Incident.objects.get()
    )
    assert [one.channel_id for one in drive.ticks(at(62), at(3700), every=60)] == [hers.pk]


def test_a_person_is_reached_through_one_channel_after_the_other(drive: Drive, project: Project) -> None:
    anna, hers = member(project)
    pager = make_channel(anna, topics=())
    reach_by(anna, (0, hers), (5, pager), (10, pager))
    drive.check(watch(drive, project, make_policy(project, (0, [anna]))), DOWN, at(60))
    sent = drive.ticks(at(61), at(700), every=5)
    assert [(one.channel_id, (one.at - at(61)).total_seconds() // 60) for one in sent] == [
        (hers.pk, 0),
        (pager.pk, 5),
        (pager.pk, 10),
    ]
    assert all(told.acknowledge_url for told in drive.payload)
    text = (
        f"Step 1 of “Backend”: {anna.email} by e-mail at once, by Webhook after 5 minutes, by Webhook after 10 minutes."
    )
    assert text in texts(Incident.objects.get())


def test_taken_back_what_was_planned_before_is_not_sent(drive: Drive, project: Project) -> None:
    anna, hers = member(project)
    reach_by(anna, (0, hers), (10, hers))
    drive.check(watch(drive, project, make_policy(project, (0, [anna]))), DOWN, at(60))
    drive.tick(at(61))
    incident = Incident.objects.get()
    acknowledge(Caller(anna), incident.public_id, now=at(100))
    unacknowledge(Caller(anna), incident.public_id, now=at(200))
    sent = [one for one in drive.ticks(at(201), at(1000), every=1) if one.events == ["down"]]
    assert [(one.at - at(201)).total_seconds() for one in sent] == [0, 600]


def test_a_target_named_twice_is_notified_once(drive: Drive, project: Project) -> None:
    anna, hers = member(project)
    channel = make_channel(anna, project=project, topics=())
    drive.check(watch(drive, project, make_policy(project, (0, [channel, anna, channel, anna]))), DOWN, at(60))
    assert sorted(one.channel_id for one in drive.tick(at(61))) == sorted([hers.pk, channel.pk])


HOURS = timedelta(hours=5)


def set_clock_back(wrong: datetime, now: datetime) -> None:
    """Tick, and a second later tick again with another clock."""
    second = timedelta(seconds=1)
    scheduling.tick(wrong, idle_for=second)
    scheduling.tick(now, idle_for=second, step=now - wrong - second)


def test_steps_are_in_time_after_the_clock_was_set_back(drive: Drive, project: Project) -> None:
    (anna, _), (ben, his), (carl, carls) = (member(project) for _ in range(3))
    policy = make_policy(project, (0, [anna]), (10, [ben]), acknowledge_timeout_min=30)
    drive.check(watch(drive, project, policy), DOWN, at(60))
    drive.check(watch(drive, project, make_policy(project, (5, [carl])), "Other"), DOWN, at(60))
    drive.tick(at(61))
    drive.sent.clear()
    row = Escalation.objects.get(policy=policy)
    row.next_at = at(700) + HOURS
    row.save()
    set_clock_back(at(100) + HOURS, at(101))
    assert {(one.channel_id, one.items[0][1]) for one in drive.tick(at(701))} == {(his.pk, "Shop"), (carls.pk, "Other")}
    acknowledge(Caller(anna), Incident.objects.get(name="Shop").public_id, now=at(702))
    Escalation.objects.filter(policy=policy).update(state="acknowledged", next_at=at(9000) + HOURS)
    set_clock_back(at(720) + HOURS, at(721))
    row.refresh_from_db()
    assert row.next_at == at(721) + timedelta(minutes=30)


def test_a_restored_backup_pages_nobody_for_what_is_over(drive: Drive, project: Project) -> None:
    people = [member(project)[0] for _ in range(3)]
    Project.objects.update(escalation_policy=make_policy(project, *((10, [user]) for user in people), repeat=2))
    owner = project.memberships.get(role="owner").user
    assert owner is not None
    monitors = drive.monitors(owner, [f"Shop {number}" for number in range(20)], project_id=project.public_id)
    drive.checks(monitors, DOWN, at(60))
    drive.tick(at(61))
    guide = (settings.BASE_DIR / "docs/operate/backup.md").read_text()
    corrections = re.findall(r"^UPDATE .*;$", guide, re.MULTILINE)
    assert len(corrections) == 4
    day = 86_400
    with transaction.atomic():
        run_ticks_without_sending(drive, at(day))
        pages = DeliveryItem.objects.filter(source__startswith="esc:").count()
        assert (pages, Delivery.objects.count()) == (180, 3), "without the corrections"
        transaction.set_rollback(True)
    with connection.cursor() as cursor:
        for statement in corrections:
            cursor.execute(statement.replace("now()", "%(now)s"), {"now": at(day)})
    drive.checks(monitors[1:], UP, at(day + 60))
    drive.ticks(at(day), at(day + 1000), every=100)
    assert {name for message in drive.sent for _, name in message.items} == {"Shop 0"}
    assert len(drive.sent) == 1

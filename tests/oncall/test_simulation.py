"""Whom a policy would notify if an outage began at some time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from alerts.models import AlertChannel
from checks.spec import Verdict
from core.clock import to_ms
from monitors.models import Monitor
from oncall.models import EscalationPolicy
from oncall.simulation import Line, foresee
from tests.alerts.drivers import Drive, at, make_channel
from tests.factories import MembershipFactory, ProjectFactory, UserFactory
from tests.oncall.making import make_policy, make_schedule, reach_by

pytestmark = pytest.mark.django_db
SUNDAY = datetime(2026, 11, 29, 3, tzinfo=UTC)
BY_DAY = [{"days": [1, 2, 3, 4, 5, 6, 7], "from": "09:00", "to": "17:00"}]


def shown(lines: list[Line]) -> list[tuple[float, int, int | None, str]]:
    """Return (minutes, round, step, who or why not)."""
    return [
        (
            (line.at - SUNDAY) / timedelta(minutes=1),
            line.round,
            line.step,
            " ".join(
                [*([line.user.email] if line.user else []), *([line.channel.name] if line.channel else []), line.reason]
            ).strip(),
        )
        for line in lines
    ]


def make_person(name: str) -> tuple[User, AlertChannel]:
    user = UserFactory(email=f"{name}@example.com")
    channel = AlertChannel.objects.get(owner=user)
    channel.name = "mail"
    channel.save()
    return user, channel


def test_each_message_of_all_rounds() -> None:
    project = ProjectFactory()
    anna, _ = make_person("anna")
    ben, his = make_person("ben")
    for user in (anna, ben):
        MembershipFactory(project=project, user=user)
    sms = make_channel(ben, name="sms")
    reach_by(ben, (0, his), (5, sms))
    team = make_channel(anna, project=project, name="team", delay_min=2)
    nights = make_schedule(project, ben, name="Nights")
    policy = make_policy(project, (0, [anna, team]), (10, [nights, ben]), repeat=1, acknowledge_timeout_min=30)
    assert shown(foresee(policy, SUNDAY)) == [
        (0, 0, 0, "anna@example.com mail"),
        (2, 0, 0, "team"),
        (10, 0, 1, "ben@example.com mail"),
        (10, 1, 0, "anna@example.com mail"),
        (12, 1, 0, "team"),
        (15, 0, 1, "ben@example.com sms"),
        (20, 1, 1, "ben@example.com mail"),
        (25, 1, 1, "ben@example.com sms"),
    ]
    for most in range(1, 9):
        assert foresee(policy, SUNDAY, most=most) == foresee(policy, SUNDAY)[:most]


def test_why_no_one_is_notified() -> None:
    project = ProjectFactory()
    owner = project.memberships.get(role="owner").user
    assert owner is not None
    anna, _ = make_person("anna")
    MembershipFactory(project=project, user=anna)
    reach_by(anna)
    asleep = make_channel(anna, project=project, name="by day", hours=BY_DAY)
    dropped = make_channel(anna, project=project, name="dropped", hours=BY_DAY, outside="drop")
    disabled = make_channel(anna, project=project, name="off", enabled=False)
    empty = make_schedule(project, UserFactory(), name="Empty")
    policy = make_policy(project, (5, [anna, disabled]), (10, [empty]), (10, [asleep, dropped]), repeat=3)
    gone = make_channel(anna, project=project)
    policy.steps[1]["targets"].append({"type": "channel", "id": gone.public_id})
    gone.delete()
    assert shown(foresee(policy, SUNDAY)) == [
        (5, 0, 0, "anna@example.com has no confirmed channel"),
        (5, 0, 0, "the channel off is disabled"),
        (5, 0, 1, "no one is on call in Empty"),
        (5, 0, 1, "a deleted channel"),
        (5, 0, 2, "dropped outside of the channel's hours"),
        (5, 0, None, owner.email),
        (360, 0, 2, "by day"),
    ]


def test_the_person_is_who_is_on_call_at_the_time_of_the_step() -> None:
    owner = UserFactory()
    schedule = make_schedule(owner, owner)
    schedule.layers[0]["starts_at"] = to_ms(SUNDAY + timedelta(minutes=30))
    schedule.save()
    policy = make_policy(owner, (0, [make_channel(owner, name="team")]), (30, [schedule]))
    with CaptureQueriesContext(connection) as queries:
        assert [(line.step, line.user) for line in foresee(policy, SUNDAY)] == [(0, None), (1, owner)]
    assert len(queries) <= 8
    early = foresee(policy, SUNDAY - timedelta(minutes=1))
    assert [(line.step, line.reason) for line in early] == [(0, ""), (1, "no one is on call in Nights")]


def test_it_agrees_with_the_engine() -> None:
    """A real outage, minute by minute, sends what was foreseen for the moment when it was confirmed."""
    drive, project = Drive(), ProjectFactory()
    owner = project.memberships.get(role="owner").user
    assert owner is not None
    anna, _ = make_person("anna")
    ben, his = make_person("ben")
    for user in (anna, ben):
        MembershipFactory(project=project, user=user)
    team = make_channel(anna, project=project, name="team", hours=BY_DAY, delay_min=3)
    reach_by(ben, (0, his), (4, make_channel(ben, name="sms")))
    policy = make_policy(project, (1, [make_schedule(project, anna, ben)]), (7, [team]), (7, [ben]), repeat=1)
    monitor = drive.monitor(owner, "Shop", project_id=project.public_id)
    Monitor.objects.filter(pk=monitor.pk).update(escalation_policy=policy)
    drive.check(monitor, Verdict.DOWN, at(60))
    drive.tick(at(60))
    foreseen = [line for line in foresee(EscalationPolicy.objects.get(), at(60)) if not line.reason]
    sent = []
    for minute in range(1, 60):
        sent += [(minute, one.channel_id) for one in drive.tick(at(60 + 60 * minute))]
    assert sent == [((line.at - at(60)) / timedelta(minutes=1), line.channel.pk) for line in foreseen if line.channel]
    assert len(sent) > 5

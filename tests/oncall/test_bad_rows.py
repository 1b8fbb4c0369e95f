"""One bad row, and one step of the worker that fails, stop no page of others."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from accounts.models import User
from alerts import notify, tasks
from alerts.models import AlertChannel, DeliveryItem
from alerts.outbox import OUTBOX
from checks.spec import Verdict
from core import metrics
from core.isolation import TRY_AGAIN
from core.metrics import LATE
from incidents.models import Escalation, FlappingSpell, Incident
from monitors.models import Monitor
from oncall import notices
from oncall.models import EscalationPolicy, OnCallSchedule
from projects.models import Project
from tests.alerts.drivers import Drive, at, events, make_channel
from tests.factories import MembershipFactory, ProjectFactory, UserFactory
from tests.helpers import NOON, flush_broker
from tests.oncall.making import make_policy, make_schedule, texts

pytestmark = pytest.mark.django_db

BY_DAY = [{"days": [1, 2, 3, 4, 5, 6, 7], "from": "09:00", "to": "17:00"}]


@pytest.fixture
def drive() -> Drive:
    return Drive()


def tenant(drive: Drive, name: str) -> tuple[Monitor, EscalationPolicy, AlertChannel]:
    """Return a monitor whose policy notifies a member of its project, and the member's channel."""
    project = ProjectFactory()
    owner = project.memberships.get(role="owner").user
    assert owner is not None
    member = UserFactory()
    MembershipFactory(project=project, user=member)
    policy = make_policy(project, (0, [member]), (5, [member]))
    Project.objects.filter(pk=project.pk).update(escalation_policy=policy)
    monitor = drive.monitor(owner, name, project_id=project.public_id)
    return monitor, policy, AlertChannel.objects.get(owner=member)


def reached(drive: Drive) -> set[str]:
    return {name for message in drive.sent for event, name in message.items if event == "down"}


def damage(policy: EscalationPolicy, **step: Any) -> None:
    """Store a step that this version cannot read."""
    EscalationPolicy.objects.filter(pk=policy.pk).update(steps=[step, step])


def late_alerts() -> float:
    metrics.report()
    return LATE.read(metrics.read_levels())[("alerts",)]


def test_a_policy_that_cannot_be_read_stops_no_other(drive: Drive) -> None:
    flush_broker()
    bad, policy, _ = tenant(drive, "Bad")
    good = [tenant(drive, f"Good {number}")[0] for number in range(5)]
    drive.checks([bad, *good], Verdict.DOWN, at(60))
    drive.tick(at(61))
    damage(policy, after_min=0, targets=[{"type": "team", "id": "tea_1"}])
    drive.checks([bad, *good], Verdict.DOWN, at(120))
    Escalation.objects.update(next_at=at(300))
    drive.sent.clear()
    drive.tick(at(301))
    assert reached(drive) == {f"Good {number}" for number in range(5)}
    row = Escalation.objects.get(policy=policy)
    assert (row.state, row.next_at) == ("running", at(301) + TRY_AGAIN)
    assert late_alerts() >= 1, "/readyz is degraded"
    member = User.objects.get(memberships__project=policy.project_id, memberships__role="member")
    damage(policy, after_min=0, targets=[{"type": "user", "id": member.public_id}])
    drive.tick(at(331))
    assert "Bad" in reached(drive)


def test_nor_does_one_that_cannot_begin(drive: Drive) -> None:
    bad, policy, _ = tenant(drive, "Bad")
    good, _, _ = tenant(drive, "Good")
    damage(policy, targets=[])
    drive.checks([bad, good], Verdict.DOWN, at(60))
    drive.tick(at(61))
    assert reached(drive) == {"Good"}
    incident = Incident.objects.get(monitor=bad)
    assert (incident.announced_at, incident.look_again_at) == (None, at(61) + TRY_AGAIN)
    owner_channel = make_channel(bad.owner)
    Monitor.objects.filter(pk=bad.pk).update(project=None)
    drive.tick(at(91))
    assert owner_channel.pk in {message.channel_id for message in drive.sent}


def test_nor_does_a_planned_message(drive: Drive) -> None:
    owner = UserFactory()
    AlertChannel.objects.all().delete()
    channels = [make_channel(owner, delay_min=10) for _ in range(4)]
    drive.check(drive.monitor(owner, "Shop"), Verdict.DOWN, at(60))
    drive.tick(at(61))
    broken = DeliveryItem.objects.get(channel=channels[2])
    DeliveryItem.objects.filter(pk=broken.pk).update(payload=broken.payload | {"event_type": "unheard_of"})
    drive.tick(at(700))
    assert {message.channel_id for message in drive.sent} == {one.pk for one in channels if one != channels[2]}
    broken.refresh_from_db()
    assert broken.due_at == at(700) + TRY_AGAIN


def test_nor_does_a_schedule(drive: Drive) -> None:
    owner = UserFactory()
    good, bad, other = (make_schedule(owner, owner, name=name) for name in ("Good", "Bad", "Other"))
    leaves = [{"user_ids": [], "every": {"unit": "day", "count": 1}, "starts_at": 0, "hours": []}]
    OnCallSchedule.objects.filter(pk__in=[good.pk, other.pk]).update(layers=[])
    OnCallSchedule.objects.filter(pk=bad.pk).update(layers=leaves)
    notices.announce_shifts(NOON)
    found = DeliveryItem.objects.filter(source__startswith="gap:").values_list("source", flat=True)
    assert {source.split(":")[1] for source in found} == {str(good.pk), str(other.pk)}
    assert set(OnCallSchedule.objects.values_list("announced_until", flat=True)) == {NOON}
    notices.announce_shifts(NOON + timedelta(minutes=1))


def test_a_zone_that_this_version_does_not_know_is_read_as_utc(drive: Drive) -> None:
    bad, policy, channel = tenant(drive, "Bad")
    good, _, _ = tenant(drive, "Good")
    AlertChannel.objects.filter(pk=channel.pk).update(hours=BY_DAY, time_zone="Mars/Olympus_Mons")
    OnCallSchedule.objects.update(time_zone="Mars/Olympus_Mons")
    drive.checks([bad, good], Verdict.DOWN, at(60))
    drive.tick(at(61))
    assert reached(drive) == {"Good", "Bad"}, "noon is within the hours"
    assert policy.name in texts(Incident.objects.get(monitor=bad))[-1]


def test_a_channel_that_no_key_decrypts_is_not_used(drive: Drive) -> None:
    bad, policy, channel = tenant(drive, "Bad")
    good, _, _ = tenant(drive, "Good")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE alerts_alertchannel SET config = 'gAAAAAB' WHERE owner_id = %s", [channel.owner_id])
    drive.checks([bad, good], Verdict.DOWN, at(60))
    drive.tick(at(61))
    assert reached(drive) == {"Good", "Bad"}
    owner = AlertChannel.objects.get(owner=policy.owner)
    assert owner.pk in {message.channel_id for message in drive.sent}, "the owner is notified of Bad"
    assert [
        f"{channel.owner.email} has no confirmed channel" in text for text in texts(Incident.objects.get(monitor=bad))
    ]


def test_one_step_of_the_worker_that_fails_does_not_stop_the_others(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monitor, _, channel = tenant(drive, "Shop")
    drive.check(monitor, Verdict.DOWN, at(60))
    drive.tick(at(61))
    Escalation.objects.update(next_at=at(300))
    monkeypatch.setattr(OUTBOX, "wake", lambda _: drive.deliver(at(310)))
    monkeypatch.setattr(tasks, "utc_now", lambda: at(305))
    # Without anything to do, the steps that fail would not run.
    flapping, _, _ = tenant(drive, "Flapping")
    FlappingSpell.objects.create(monitor=flapping, started_at=at(300), last_change_at=at(300))

    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    for name in ("_end_windows", "_notify_settled"):
        monkeypatch.setattr(notify, name, fail)
    with pytest.raises(RuntimeError, match="a bug"):
        tasks.tick()
    assert events(drive.sent) == ["down", "down"]
    assert {message.channel_id for message in drive.sent} == {channel.pk}

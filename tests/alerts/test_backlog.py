"""What counts as alert lag: alerts that no process sends, but not delays caused by receivers."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.db import connection

from accounts.models import User
from alerts import notify
from alerts.models import AlertChannel, Delivery
from alerts.outbox import MAX_PER_OWNER, OUTBOX, oldest_alert
from checks.spec import Verdict
from incidents import consuming
from incidents.models import Incident
from monitors.models import Monitor
from tests.alerts.drivers import Drive, at, claim, finish, make_channel
from tests.factories import DeliveryFactory, UserFactory


@pytest.fixture
def owner(db: None) -> User:
    user = UserFactory()
    AlertChannel.objects.all().delete()
    return user


def lag(moment: datetime) -> timedelta:
    found = oldest_alert(connection.connection, now=moment)
    return timedelta() if found is None else moment - found


def claimed(moment: datetime) -> Delivery:
    found = claim(moment)
    assert found is not None
    return found


def test_a_message_that_is_not_sent_is_late(owner: User) -> None:
    delivery = DeliveryFactory(channel=make_channel(owner), created_at=at(0))
    assert lag(at(100)) == timedelta(seconds=100)
    attempt = claimed(at(100))
    assert lag(at(101)) == timedelta(), "it is being sent"
    # Its sender died, and no other claims it.
    assert lag(at(200)) == at(200) - (at(100) + OUTBOX.lease)
    finish(attempt, delivered=True, detail="200", retry=True, now=at(200))
    delivery.refresh_from_db()
    assert (delivery.state, lag(at(300))) == ("sent", timedelta())


def test_a_status_change_that_is_not_consumed_is_late(owner: User) -> None:
    drive = Drive()
    monitor = drive.monitor(owner)
    consuming.consume(at(0), slow=lambda _: None)  # it is up
    drive.check(monitor, Verdict.DOWN, at(60))
    assert lag(at(100)) == timedelta(seconds=40)
    drive.tick(at(100))
    assert lag(at(100)) == timedelta()


def outages(monitor: Monitor, drive: Drive, count: int) -> None:
    for number in range(count):
        for second, verdict in ((60, Verdict.DOWN), (120, Verdict.UP)):
            moment = at(2000 * number + second)
            drive.check(monitor, verdict, moment)
            consuming.consume(moment, slow=lambda _: None)
            notify.notify_incidents(moment)


def test_a_dead_webhook_is_no_lag_of_ours(owner: User) -> None:
    """Neither retries, nor messages that wait for a retry, nor the next messages to that channel."""
    make_channel(owner)
    drive = Drive()
    outages(drive.monitor(owner), drive, 2)
    outages(drive.monitor(owner, "Blog"), drive, 2)
    moment = at(5000)
    for _ in range(8):
        assert Delivery.objects.filter(state="waiting", next_try_at__lte=moment).exists()
        attempt = claimed(moment)
        # Its other messages wait for this attempt, and then for a sender.
        assert lag(moment) == timedelta()
        moment += timedelta(seconds=10)
        finish(attempt, delivered=False, detail="It hung.", retry=True, now=moment)
        assert lag(moment) == timedelta()
        moment += timedelta(seconds=60)


def test_a_message_behind_one_that_is_tried_again_is_not_late(owner: User) -> None:
    """Also if other messages to its channel are delivered, so that the channel does not count as failing."""
    channel = make_channel(owner)
    drive = Drive()
    outages(drive.monitor(owner), drive, 1)
    other = DeliveryFactory(channel=channel, created_at=at(150))
    finish(claimed(at(200)), delivered=False, detail="500", retry=True, now=at(201))
    finish(claimed(at(201)), delivered=True, detail="200", retry=True, now=at(202))
    other.refresh_from_db()
    channel.refresh_from_db()
    assert (other.state, channel.failures) == ("sent", 0)
    behind = Delivery.objects.order_by("pk")[1]
    assert behind.next_try_at < at(202)
    assert lag(at(205)) == timedelta()


def test_a_slow_receiver_and_a_busy_account_are_not_late(owner: User) -> None:
    channel = make_channel(owner)
    for _ in range(3):
        DeliveryFactory(channel=channel, created_at=at(0))
    finish(claimed(at(1)), delivered=True, detail="200", retry=True, now=at(500))
    assert lag(at(503)) == timedelta(seconds=3), "one at a time: the next could go out since the last did"
    for _ in range(MAX_PER_OWNER + 2):
        DeliveryFactory(channel=make_channel(owner), created_at=at(0))
    for _ in range(MAX_PER_OWNER):
        claimed(at(503))
    assert claim(at(503)) is None
    assert lag(at(504)) == timedelta(), "the rest waits for others of its own account"
    stranger = UserFactory()
    AlertChannel.objects.filter(owner=stranger).delete()
    DeliveryFactory(channel=make_channel(stranger), created_at=at(400))
    assert lag(at(504)) == timedelta(seconds=104), "the messages of other accounts count"


def test_an_incident_that_is_not_notified_is_late(owner: User) -> None:
    drive = Drive()
    make_channel(owner)
    monitor = drive.monitor(owner)
    drive.check(monitor, Verdict.DOWN, at(60))
    consuming.consume(at(61), slow=lambda _: None)
    assert lag(at(100)) == timedelta(seconds=40)
    Incident.objects.update(look_again_at=at(110))
    assert lag(at(100)) == timedelta(), "it is muted"
    assert lag(at(130)) == timedelta(seconds=20)
    drive.tick(at(130))
    assert lag(at(200)) == timedelta()
    drive.check(monitor, Verdict.UP, at(260))
    consuming.consume(at(261), slow=lambda _: None)
    assert lag(at(300)) == timedelta(seconds=40)
    drive.tick(at(300))
    assert lag(at(300)) == timedelta()

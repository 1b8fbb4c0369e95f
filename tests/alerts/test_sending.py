"""Delivery of messages: in order, at least once, and without one channel delaying another."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

import pytest
from django.db import transaction

from accounts.models import User
from alerts import notify
from alerts.events import EventType, Payload
from alerts.models import AlertChannel, Delivery, DeliveryItem
from alerts.outbox import MAX_PER_OWNER, OUTBOX, PROVEN, QUIET, OutboxItem, load, put
from checks.spec import Verdict
from core import metrics
from core.metrics import LATE
from incidents import consuming
from incidents.models import Incident
from notifications.outbox import FIRST_RETRY, JITTER, LONGEST_RETRY, RETRY_FOR, backoff
from tests.alerts.drivers import Drive, at, claim, finish, make_channel, timeline
from tests.factories import UserFactory
from tests.helpers import run_concurrently

DOWN, UP = Verdict.DOWN, Verdict.UP


@pytest.fixture
def owner(db: None) -> User:
    user = UserFactory()
    AlertChannel.objects.all().delete()
    return user


def tell(channel: AlertChannel, source: str, moment: datetime) -> None:
    with transaction.atomic():
        put([OutboxItem(source, Payload(EventType.DOWN, at=0, monitor=source), [channel.pk])], now=moment)


def waiting(channel: AlertChannel, count: int = 1) -> list[Delivery]:
    """Create `count` pending deliveries, each with a separate message."""
    first = channel.deliveries.count()
    for number in range(count):
        # Far enough apart not to be gathered.
        earlier = at(0) - timedelta(minutes=5 * (count - number))
        tell(channel, f"test:{channel.pk}:{first + number}", earlier)
    return list(channel.deliveries.order_by("pk"))[first:]


def claimed(moment: datetime) -> Delivery:
    found = claim(moment)
    assert found is not None
    return found


def tried(found: Delivery, moment: datetime, *, delivered: bool = False, retry: bool = True) -> str | None:
    return finish(found, delivered=delivered, detail="Answered 500.", retry=retry, now=moment)


def test_late_first_attempts_are_counted_unless_their_account_was_served(owner: User) -> None:
    def late() -> float:
        metrics.report()
        return LATE.read(metrics.read_levels())["alerts",]

    before, channel = late(), make_channel(owner)
    for delay, counted in ((9, 0), (11, 1), (11, 1)):
        [delivery] = waiting(channel)
        OUTBOX._count_if_late(claimed(delivery.next_try_at + timedelta(seconds=delay)))
        assert late() == before + counted
        # The next message may be late because of this one.
        AlertChannel.objects.update(last_tried_at=delivery.next_try_at + timedelta(minutes=10) if counted else None)
        Delivery.objects.update(state="sent")


def test_a_failed_message_is_tried_again_and_later_each_time(owner: User) -> None:
    [delivery] = waiting(make_channel(owner))
    moment, waits, keys = at(0), [], set()
    while True:
        attempt = claimed(moment)
        keys.add(attempt.public_id)
        state = tried(attempt, moment)
        delivery.refresh_from_db()
        if state == "dead":
            break
        assert (state, delivery.last_error) == ("waiting", "Answered 500.")
        assert claim(delivery.next_try_at - timedelta(milliseconds=1)) is None
        waits.append(delivery.next_try_at - moment)
        moment = delivery.next_try_at
    assert keys == {delivery.public_id}
    assert moment >= delivery.created_at + RETRY_FOR
    assert waits[0] <= FIRST_RETRY * (1 + JITTER)
    assert max(waits) <= LONGEST_RETRY * (1 + JITTER)
    assert 24 <= delivery.attempts <= 45
    assert (delivery.done_at, claim(moment + timedelta(days=9))) == (moment, None)


def test_waits_double_and_are_spread() -> None:
    for attempts in (1, 2, 3, 8, 9, 50, 2000):
        plain = min(FIRST_RETRY * 2 ** (attempts - 1), LONGEST_RETRY) if attempts < 50 else LONGEST_RETRY
        found = {backoff(attempts) for _ in range(50)}
        assert plain * (1 - JITTER) <= min(found) < max(found) <= plain * (1 + JITTER)


def test_what_cannot_help_is_not_tried_again(owner: User) -> None:
    [delivery] = waiting(make_channel(owner))
    assert tried(claimed(at(0)), at(1), retry=False) == "dead"
    delivery.refresh_from_db()
    assert (delivery.state, delivery.attempts) == ("dead", 1)


def test_a_message_that_cannot_be_read_counts_as_a_failed_try(owner: User) -> None:
    channel = make_channel(owner)
    waiting(channel)
    DeliveryItem.objects.filter(channel=channel).update(
        payload={"event_type": "of a newer version", "monitor_id": None}
    )
    [(_, result)] = OUTBOX.attempt([claimed(at(0))])
    assert (result.delivered, result.retry, result.detail) == (False, True, "The stored alert cannot be read.")


def test_a_sender_that_dies_leaves_a_lease(owner: User) -> None:
    waiting(make_channel(owner))
    first = claimed(at(0))
    assert claim(at(0) + OUTBOX.lease - timedelta(seconds=1)) is None
    second = claimed(at(0) + OUTBOX.lease)
    assert (second.public_id, second.attempts) == (first.public_id, 2)
    # The first sender was slow, not dead: its result no longer counts.
    assert tried(first, at(100), delivered=True) is None
    assert tried(second, at(101), delivered=True) == "sent"


def test_one_at_a_time_of_a_channel_and_every_channel_at_once(owner: User) -> None:
    one, other = make_channel(owner), make_channel(owner)
    waiting(one, 3)
    waiting(other, 3)
    found = [claimed(at(0)), claimed(at(0))]
    assert {attempt.channel_id for attempt in found} == {one.pk, other.pk}
    assert claim(at(0)) is None
    assert tried(found[0], at(1), delivered=True) == "sent"
    assert claimed(at(1)).channel_id == found[0].channel_id


def test_an_account_whose_receivers_all_hang_leaves_room_for_others(owner: User) -> None:
    for _ in range(MAX_PER_OWNER + 3):
        waiting(make_channel(owner))
    other = UserFactory()
    AlertChannel.objects.filter(owner=other).delete()
    theirs = make_channel(other)
    waiting(theirs)
    found = [claimed(at(0)) for _ in range(MAX_PER_OWNER + 1)]
    assert theirs.pk in [attempt.channel_id for attempt in found[:2]]
    assert claim(at(0)) is None
    tried(found[-1], at(1), delivered=True)
    assert claim(at(1)) is not None


def test_healthy_channels_come_first(owner: User) -> None:
    failing, healthy = make_channel(owner, failures=3), make_channel(owner, prompt=True)
    waiting(failing, 1)
    waiting(healthy, 1)
    assert claimed(at(0)).channel_id == healthy.pk
    assert claim(at(0), PROVEN) is None
    assert claimed(at(0)).channel_id == failing.pk


def test_failures_are_counted_until_it_works_again(owner: User) -> None:
    channel = make_channel(owner)
    waiting(channel, 2)
    tried(claimed(at(0)), at(1))
    channel.refresh_from_db()
    assert (channel.failures, channel.last_sent_at) == (1, None)
    tried(claimed(at(2)), at(3), delivered=True)
    channel.refresh_from_db()
    assert (channel.failures, channel.last_sent_at) == (0, at(3))


def outage(drive: Drive, owner: User) -> Incident:
    """Return a resolved incident with two pending messages."""
    monitor = drive.monitor(owner)
    for second, verdict in ((60, DOWN), (120, UP)):
        drive.check(monitor, verdict, at(second))
        consuming.consume(at(second), slow=lambda _: None)
        notify.notify_incidents(at(second))
    return Incident.objects.get(monitor=monitor)


def test_a_recovery_never_overtakes_its_outage(owner: User) -> None:
    make_channel(owner)
    outage(Drive(), owner)
    down, recovered = Delivery.objects.order_by("pk")
    first = claimed(at(130))
    assert first.pk == down.pk
    assert tried(first, at(131)) == "waiting"
    assert claim(at(132)) is None, "the recovery waits for its outage"
    down.refresh_from_db()
    assert tried(claimed(down.next_try_at), at(150), delivered=True) == "sent"
    assert claimed(at(151)).pk == recovered.pk


def test_the_next_outage_does_not_overtake_either(owner: User) -> None:
    make_channel(owner)
    drive = Drive()
    monitor = drive.monitor(owner)
    for second, verdict in ((60, DOWN), (700, UP), (1400, DOWN)):
        drive.check(monitor, verdict, at(second))
        consuming.consume(at(second), slow=lambda _: None)
        notify.notify_incidents(at(second))
    down, recovered, again = Delivery.objects.order_by("pk")
    tried(claimed(at(1400)), at(1400), delivered=True)
    attempt = claimed(at(1401))
    assert attempt.pk == recovered.pk
    assert tried(attempt, at(1401)) == "waiting"
    assert claim(at(1402)) is None
    recovered.refresh_from_db()
    assert tried(claimed(recovered.next_try_at), at(1500), delivered=True) == "sent"
    assert claimed(at(1501)).pk == again.pk != down.pk


def test_an_outage_that_was_given_up_holds_nothing_up(owner: User) -> None:
    make_channel(owner)
    incident = outage(Drive(), owner)
    assert tried(claimed(at(130)), at(131), retry=False) == "dead"
    assert tried(claimed(at(132)), at(133), delivered=True) == "sent"
    assert timeline(incident)[-2:] == ["alert_failed", "alert_sent"]


def test_the_timeline_shows_a_failure_once_and_how_it_ended(owner: User) -> None:
    channel = make_channel(owner)
    incident = outage(Drive(), owner)
    delivery = Delivery.objects.order_by("pk")[0]
    for _ in range(4):
        tried(claimed(delivery.next_try_at), delivery.next_try_at)
        delivery.refresh_from_db()
    tried(claimed(delivery.next_try_at), delivery.next_try_at, delivered=True)
    events = incident.events.filter(type__startswith="alert_").order_by("pk")
    assert list(events.values_list("type", flat=True)) == ["alert_failed", "alert_sent"]
    assert events[0].data == {"delivery_id": delivery.public_id, "channel_id": channel.public_id}
    assert "Answered 500." in events[0].text


def test_an_outage_elsewhere_goes_out_while_one_is_tried_again(owner: User) -> None:
    channel = make_channel(owner)
    one, other = waiting(channel, 2)
    tried(claimed(at(0)), at(0))
    assert claimed(at(1)).pk == other.pk != one.pk


def test_news_joins_what_is_gathered_and_nothing_that_is_on_its_way(owner: User) -> None:
    channel = make_channel(owner)
    for number in range(3):
        tell(channel, f"test:{number}", at(0))
    assert [delivery.state for delivery in Delivery.objects.order_by("pk")] == ["waiting", "waiting", "gathering"]
    gathering = Delivery.objects.get(state="gathering")
    for second in (1, 2):
        tried(claimed(at(second)), at(second), delivered=True)
    tell(channel, "test:3", at(5))
    assert gathering.items.count() == 2
    assert claim(at(5) + QUIET - timedelta(seconds=1)) is None
    attempt = claimed(at(5) + QUIET)
    tell(channel, "test:4", at(16))
    assert gathering.items.count() == 2
    assert tried(attempt, at(17), delivered=True) == "sent"
    assert [one.monitor for one in load(attempt)[1]] == ["test:2", "test:3"]


def test_a_channel_that_is_switched_off_or_gone_is_not_sent_to(owner: User) -> None:
    channel = make_channel(owner)
    waiting(channel)
    attempt = claimed(at(0))
    assert load(attempt)[0] == channel
    AlertChannel.objects.update(enabled=False)
    assert load(attempt)[0] is None
    channel.delete()
    assert load(attempt)[0] is None
    assert tried(attempt, at(1)) is None


def test_what_is_long_done_is_forgotten(owner: User) -> None:
    channel = make_channel(owner)
    waiting(channel, 2)
    tried(claimed(at(0)), at(0), delivered=True)
    OUTBOX.delete_old(at(0))
    assert Delivery.objects.count() == 2
    OUTBOX.delete_old(at(1))
    assert [delivery.state for delivery in Delivery.objects.all()] == ["waiting"]


@pytest.mark.django_db(transaction=True)
def test_many_senders_send_each_once() -> None:
    owner = UserFactory()
    AlertChannel.objects.all().delete()
    channels = [make_channel(owner) for _ in range(5)]
    for channel in channels:
        waiting(channel, 4)

    def work() -> list[int]:
        sent = []
        for _ in range(100):
            attempt = claim(at(0))
            if attempt is not None:
                assert tried(attempt, at(0), delivered=True) == "sent"
                sent.append(attempt.pk)
        return sent

    found = [one for sent in run_concurrently(*[partial(work)] * 4) for one in sent]  # type: ignore[attr-defined]
    assert sorted(found) == sorted(Delivery.objects.values_list("pk", flat=True))

"""A channel can be deleted at any moment: while a delivery is enqueued, and while a message is sent."""

from __future__ import annotations

import threading
from functools import partial

import pytest
from django.db import transaction

from alerts import outbox
from alerts.events import EventType, Payload
from alerts.models import AlertChannel, Delivery
from alerts.outbox import load
from alerts.services import delete_channel
from core.clock import to_ms
from projects.access import Caller
from tests.alerts.drivers import claim, finish
from tests.factories import ChannelFactory, DeliveryFactory, UserFactory
from tests.helpers import NOON, is_awaited, run_concurrently
from tests.processes.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)


def test_deleted_while_news_comes_and_messages_are_sent() -> None:
    user = UserFactory()
    for turn in range(8):
        going, staying = ChannelFactory(owner=user), ChannelFactory(owner=user)
        for channel in (going, staying):
            DeliveryFactory(channel=channel)
        tries = [claim(NOON), claim(NOON)]
        channel_ids = [going.pk, staying.pk]

        def put(number: int, turn: int = turn, channel_ids: list[int] = channel_ids) -> None:
            payload = Payload(event_type=EventType.DOWN, at=to_ms(NOON))
            with transaction.atomic():
                outbox.put([outbox.OutboxItem(f"news {turn} {number}", payload, channel_ids)], now=NOON)

        finishes = [
            partial(finish, one, delivered=n > 0, detail="x", retry=True, now=NOON)
            for n, one in enumerate(tries)
            if one is not None
        ]
        run_concurrently(partial(delete_channel, Caller(user), going.public_id), *finishes, partial(put, 1))
        assert not AlertChannel.objects.filter(pk=going.pk).exists()
        assert not Delivery.objects.exclude(channel=staying).exists()
        assert Delivery.objects.filter(channel=staying).count() >= 2
        delete_channel(Caller(user), staying.public_id)


def test_the_log_is_deleted_before_alerts_wait_for_the_channel() -> None:
    user = UserFactory()
    channel = ChannelFactory(owner=user)
    DeliveryFactory(channel=channel)
    claimed = claim(NOON)
    assert claimed is not None
    finish(claimed, delivered=True, detail="200", now=NOON)
    queued = DeliveryFactory(channel=channel)
    deletion = threading.Thread(
        target=run_concurrently, args=[partial(delete_channel, Caller(user), channel.public_id)]
    )
    with transaction.atomic():
        AlertChannel.objects.select_for_update().get(pk=channel.pk)
        deletion.start()
        until(lambda: not deletion.is_alive() or is_awaited(), 30, "the deletion waits for the channel")
        assert list(Delivery.objects.filter(channel=channel)) == [queued]
    deletion.join()
    assert not Delivery.objects.filter(channel=channel).exists()


def test_what_is_not_confirmed_is_not_sent_to() -> None:
    channel = ChannelFactory(kind="email", address="other@example.com")
    DeliveryFactory(channel=channel)
    claimed = claim(NOON)
    assert claimed is not None
    assert load(claimed)[0] is None
    AlertChannel.objects.filter(pk=channel.pk).update(confirmed_at=NOON)
    assert load(claimed)[0] == channel

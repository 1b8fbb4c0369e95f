"""What is done to deliveries by people."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from django.db import transaction

from alerts import selectors
from alerts.models import Delivery
from alerts.outbox import TRIED_FOR
from core.bulk_actions import BulkResult
from core.errors import NotDead
from projects.access import Caller


def replay(caller: Caller, channel_id: str, delivery_id: str, *, now: datetime) -> Delivery:
    """Have a dead delivery tried again, for another day; raises NotDead for any other."""
    channel = selectors.get_channel(caller, channel_id)
    delivery = selectors.get_delivery(channel, delivery_id)
    if not replay_dead([delivery.pk], now=now).done:
        raise NotDead
    return selectors.get_delivery(channel, delivery_id)


def replay_dead(ids: Collection[int], *, now: datetime) -> BulkResult[Delivery]:
    """Those of them that are dead, each once, whoever asks at the same moment."""
    with transaction.atomic():
        held = Delivery.objects.select_for_update().filter(pk__in=ids).order_by("pk")
        dead = [delivery for delivery in held if delivery.state == Delivery.State.DEAD]
        Delivery.objects.filter(pk__in=[delivery.pk for delivery in dead]).update(
            state=Delivery.State.WAITING,
            next_try_at=now,
            give_up_at=now + TRIED_FOR,
            leased_until=None,
            done_at=None,
        )
    alive = len(held) - len(dead)
    return BulkResult(dead, {"sent, or still tried": alive} if alive else {})

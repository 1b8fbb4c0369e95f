"""What is done to deliveries by people."""

from __future__ import annotations

from datetime import datetime

from django.db.models import QuerySet

from alerts import selectors
from alerts.models import Delivery
from alerts.outbox import TRIED_FOR
from core.errors import NotDead
from projects.access import Caller


def replay(caller: Caller, channel_id: str, delivery_id: str, *, now: datetime) -> Delivery:
    """Have a dead delivery tried again, for another day; raises NotDead for any other."""
    channel = selectors.get_channel(caller, channel_id)
    delivery = selectors.get_delivery(channel, delivery_id)
    if not replay_dead(Delivery.objects.filter(pk=delivery.pk), now=now):
        raise NotDead
    return selectors.get_delivery(channel, delivery_id)


def replay_dead(deliveries: QuerySet[Delivery], *, now: datetime) -> int:
    """Those of them that are dead, each once, whoever asks at the same moment; how many."""
    return deliveries.filter(state=Delivery.State.DEAD).update(
        state=Delivery.State.WAITING,
        next_try_at=now,
        give_up_at=now + TRIED_FOR,
        leased_until=None,
        done_at=None,
    )

from __future__ import annotations

from datetime import datetime

import alerts.selectors
from accounts.export import Sections, serialized
from accounts.models import User
from alerts.models import Delivery, DeliveryItem
from alerts.serializers import ChannelSerializer, DeliverySerializer
from monitors.selectors import hidden_ids
from projects.access import Caller, owned


def sections(user: User, *, now: datetime) -> Sections:
    deliveries = Delivery.objects.select_related("channel").prefetch_related("items")
    caller = Caller(user)
    named = owned(DeliveryItem.objects.all(), user).exclude(payload__monitor_id=None).order_by()
    monitor_ids = set(named.values_list("payload__monitor_id", flat=True).distinct())
    return {
        "alert_channels": serialized(
            owned(alerts.selectors.list_channels(caller), user), ChannelSerializer, context={"caller": caller}
        ),
        "deliveries": serialized(
            owned(deliveries, user),
            DeliverySerializer,
            context={"hidden_ids": hidden_ids(caller, monitor_ids)},
            channel_id="channel.public_id",
        ),
    }

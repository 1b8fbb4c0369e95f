from __future__ import annotations

from datetime import datetime

import alerts.selectors
from accounts.export import Sections, rows_of, serialized
from accounts.models import User
from alerts.models import Delivery
from alerts.serializers import ChannelSerializer, DeliverySerializer
from projects.access import Caller


def sections(user: User, *, now: datetime) -> Sections:
    channels = alerts.selectors.list_channels(Caller(user)).filter(owner=user)
    deliveries = Delivery.objects.filter(channel__owner=user).select_related("channel")
    return {
        "alert_channels": lambda: serialized(channels, ChannelSerializer),
        "deliveries": lambda: rows_of(
            deliveries.prefetch_related("items"),
            lambda sent: {"channel_id": sent.channel.public_id, **DeliverySerializer(sent).data},
        ),
    }

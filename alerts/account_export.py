from __future__ import annotations

from datetime import datetime

import alerts.selectors
from accounts.export import Sections, serialized
from accounts.models import User
from alerts.models import Delivery
from alerts.serializers import ChannelSerializer, DeliverySerializer
from projects.access import Caller, owned


def sections(user: User, *, now: datetime) -> Sections:
    deliveries = Delivery.objects.select_related("channel").prefetch_related("items")
    return {
        "alert_channels": serialized(owned(alerts.selectors.list_channels(Caller(user)), user), ChannelSerializer),
        "deliveries": serialized(owned(deliveries, user), DeliverySerializer, channel_id="channel.public_id"),
    }

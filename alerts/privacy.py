"""What is left of a person in messages of others' channels when his account goes: sent ones, and ones on their way."""

from __future__ import annotations

from accounts.models import User
from accounts.services import GONE, addresses_of
from alerts.models import DeliveryItem


def forget_person(user: User) -> None:
    items = list(DeliveryItem.objects.filter(payload__by__in=addresses_of(user)))
    for item in items:
        item.payload["by"] = GONE
    DeliveryItem.objects.bulk_update(items, ["payload"], batch_size=500)

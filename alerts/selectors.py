"""Queries for channels and their deliveries."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from django.db.models import Count, Prefetch, Q, QuerySet

from alerts.models import AlertChannel, Delivery, DeliveryItem
from core.db import get_or_not_found
from monitors.models import Monitor
from projects import access
from projects.access import Caller


def list_channels(caller: Caller) -> QuerySet[AlertChannel]:
    """Return the caller's channels, with those chosen monitors that the caller can still access."""
    monitors = access.accessible(caller, Monitor.objects.only("public_id", "project_id", "name", "url")).order_by("pk")
    channels = AlertChannel.objects.select_related("project", "scope_project", "owner")
    return access.accessible(caller, channels).prefetch_related(Prefetch("monitors", monitors))


def get_channel(caller: Caller, public_id: str) -> AlertChannel:
    return get_or_not_found(list_channels(caller), public_id=public_id)


def count_dead(channels: Iterable[AlertChannel]) -> dict[int, int]:
    """Return the number of dead deliveries by channel id, without channels that have none."""
    dead = Delivery.objects.filter(channel__in=[channel.pk for channel in channels], state=Delivery.State.DEAD)
    return dict(dead.values_list("channel").annotate(Count("pk")).order_by())


def deliveries_of(
    channel: AlertChannel, *, limit: int, state: str | None, before: tuple[datetime, int] | None
) -> list[Delivery]:
    """The newest first; `before` is (created_at, id) of the last one of the page before."""
    deliveries = _with_items(channel).order_by("-created_at", "-pk")
    if state is not None:
        deliveries = deliveries.filter(state=state)
    if before is not None:
        at, pk = before
        deliveries = deliveries.filter(Q(created_at__lt=at) | Q(created_at=at, pk__lt=pk))
    return list(deliveries[:limit])


def get_delivery(channel: AlertChannel, public_id: str) -> Delivery:
    return get_or_not_found(_with_items(channel), public_id=public_id)


def _with_items(channel: AlertChannel) -> QuerySet[Delivery]:
    items = DeliveryItem.objects.only("delivery_id", "payload").order_by("pk")
    return Delivery.objects.filter(channel=channel).prefetch_related(Prefetch("items", items))

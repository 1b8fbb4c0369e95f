from __future__ import annotations

from collections.abc import Sequence

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from alerts.models import AlertChannel, Delivery, DeliveryItem
from alerts.outbox import OUTBOX
from core.clock import utc_now
from core.staff import AutocompleteFilter, ReadOnlyAdmin, Section, act, list_of

MOST_ITEMS = 100
MOST_MONITORS = 50
EVENT = ("EventType", "About", "Incident", "Reason")


@admin.register(AlertChannel)
class AlertChannelAdmin(ReadOnlyAdmin[AlertChannel]):
    """Without the settings, which are secret: `hint` distinguishes channels."""

    list_display = (
        "public_id",
        "name",
        "kind",
        "hint",
        "owner",
        "project",
        "enabled",
        "confirmed_at",
        "failures",
        "last_sent_at",
    )
    list_filter = (
        "kind",
        "enabled",
        ("confirmed_at", admin.EmptyFieldListFilter),
        ("owner", AutocompleteFilter),
        ("project", AutocompleteFilter),
    )
    list_select_related = ("owner", "project")
    search_fields = ("public_id", "name__icontains", "owner__email")
    fields = (*list_display, "topics", "scope", "scope_project", "remind_every_hours", "created_at")

    def sections(self, request: HttpRequest, row: AlertChannel) -> Sequence[Section]:
        latest = row.deliveries.order_by("-created_at")[: MOST_ITEMS // 5]
        head = ("Id", "State", "Created", "Attempts", "Last error")
        rows = [(each.public_id, each.state, each.created_at, each.attempts, each.last_error) for each in latest]
        shown = [Section("Latest deliveries", head, rows, more=list_of(Delivery, channel__id__exact=row.pk))]
        planned = DeliveryItem.objects.filter(channel=row, delivery=None).select_related("incident").order_by("due_at")
        if later := [(item.due_at, *_event_of(item)) for item in planned[:MOST_ITEMS]]:
            shown.append(Section("Planned", ("Due", *EVENT), later))
        if row.scope == AlertChannel.Scope.CHOSEN:
            chosen = row.monitors.order_by("pk").values_list("name", "type")[:MOST_MONITORS]
            shown.append(Section("Chosen monitors", ("Name", "Type"), list(chosen)))
        return shown


@admin.register(Delivery)
class DeliveryAdmin(ReadOnlyAdmin[Delivery]):
    list_display = (
        "public_id",
        "channel",
        "owner",
        "state",
        "created_at",
        "next_try_at",
        "attempts",
        "last_error",
        "done_at",
    )
    list_filter = ("state", "channel__kind", ("channel", AutocompleteFilter))
    list_select_related = ("channel__owner",)
    search_fields = ("public_id", "channel__public_id", "channel__owner__email")
    fields = (*list_display, "leased_until", "give_up_at")
    actions = ("replay",)

    @admin.display
    def owner(self, delivery: Delivery) -> str:
        return delivery.channel.owner.email

    @admin.action(description="Replay dead deliveries", permissions=["act"])
    def replay(self, request: HttpRequest, queryset: QuerySet[Delivery]) -> None:
        act(self, request, queryset, lambda ids: OUTBOX.replay(ids, now=utc_now()), done="queued again")

    def sections(self, request: HttpRequest, row: Delivery) -> Sequence[Section]:
        """Omit most of the payload: it contains secret heartbeat ids, and responses of customers' sites."""
        items = row.items.select_related("incident").order_by("pk")[:MOST_ITEMS]
        return [Section("Events", ("At", *EVENT), [(item.at, *_event_of(item)) for item in items])]


def _event_of(item: DeliveryItem) -> tuple[object, ...]:
    """Return the columns EVENT of an item."""
    payload = item.payload
    return (
        payload.get("event_type"),
        payload.get("location") or payload.get("monitor"),
        item.incident.public_id if item.incident else None,
        payload.get("reason_code"),
    )

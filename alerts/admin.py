from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from alerts.deliveries import replay_dead
from alerts.models import AlertChannel, Delivery, DeliveryItem
from core.clock import utc_now
from incidents.admin import ReadOnlyInline
from monitors.admin import ReadOnlyAdmin


@admin.register(AlertChannel)
class AlertChannelAdmin(ReadOnlyAdmin[AlertChannel]):
    """What a channel sends with is in no form: `hint` tells it apart."""

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
    list_filter = ("kind", "enabled", ("confirmed_at", admin.EmptyFieldListFilter))
    list_select_related = ("owner", "project")
    search_fields = ("public_id", "name", "owner__email")
    ordering = ("-pk",)


class ItemInline(ReadOnlyInline):
    model = DeliveryItem
    fk_name = "delivery"
    fields = ("at", "source", "incident", "facts")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("incident")


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
    list_filter = ("state", "channel__kind")
    list_select_related = ("channel__owner",)
    search_fields = ("public_id", "channel__public_id", "channel__owner__email")
    ordering = ("-pk",)
    inlines = (ItemInline,)
    actions = ("replay",)

    @admin.display(ordering="channel__owner__email")
    def owner(self, delivery: Delivery) -> str:
        return delivery.channel.owner.email

    def has_replay_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("alerts.change_delivery")

    @admin.action(description="Replay dead deliveries", permissions=["replay"])
    def replay(self, request: HttpRequest, queryset: QuerySet[Delivery]) -> None:
        count = replay_dead(queryset, now=utc_now())
        self.message_user(request, f"{count} dead deliveries are tried again.")

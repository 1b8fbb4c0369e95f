from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from core.staff import AutocompleteFilter, ReadOnlyAdmin, Section
from incidents.models import Escalation, FlappingSpell, Incident, MaintenanceWindow

MOST_EVENTS = 100
MOST_MONITORS = 50


class OpenFilter(admin.SimpleListFilter):
    title = "status"
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("open", "open"), ("resolved", "resolved")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Incident]) -> QuerySet[Incident]:
        wanted = self.value()
        return queryset if wanted is None else queryset.filter(resolved_at__isnull=wanted == "open")


@admin.register(Incident)
class IncidentAdmin(ReadOnlyAdmin[Incident]):
    """Without the evidence: staff must not read what a customer's site answered. The reason is enough."""

    list_display = (
        "public_id",
        "name",
        "owner",
        "project",
        "reason_code",
        "started_at",
        "acknowledged_at",
        "resolved_at",
        "resolution",
        "quiet",
    )
    list_filter = (
        OpenFilter,
        "resolution",
        "quiet",
        "reason_code",
        ("owner", AutocompleteFilter),
        ("monitor", AutocompleteFilter),
    )
    list_select_related = ("owner", "project")
    search_fields = ("public_id", "owner__email", "monitor__name__icontains")
    fields = (
        *list_display,
        "monitor",
        "detail",
        "confirmed_at",
        "announced_at",
        "acknowledgement_announced_at",
        "closing_announced_at",
        "look_again_at",
    )

    def sections(self, request: HttpRequest, row: Incident) -> Sequence[Section]:
        events = row.events.order_by("-pk")[:MOST_EVENTS]
        return (Section("Timeline", ("At", "Type", "Text"), [(each.at, each.type, each.text) for each in events]),)


@admin.register(Escalation)
class EscalationAdmin(ReadOnlyAdmin[Escalation]):
    list_display = ("incident", "policy", "state", "round", "step", "next_at")
    list_filter = ("state", ("policy", AutocompleteFilter), ("next_at", admin.EmptyFieldListFilter))
    list_select_related = ("incident", "policy")
    search_fields = ("incident__public_id", "incident__owner__email")
    fields = (*list_display, "run", "reached")


@admin.register(FlappingSpell)
class FlappingSpellAdmin(ReadOnlyAdmin[FlappingSpell]):
    list_display = ("monitor", "started_at", "last_change_at", "ended_at")
    list_filter = (("ended_at", admin.EmptyFieldListFilter), ("monitor", AutocompleteFilter))
    list_select_related = ("monitor",)
    search_fields = ("monitor__name__icontains", "monitor__owner__email")
    fields = list_display


@admin.register(MaintenanceWindow)
class MaintenanceWindowAdmin(ReadOnlyAdmin[MaintenanceWindow]):
    list_display = (
        "public_id",
        "name",
        "owner",
        "project",
        "time_zone",
        "rrule",
        "current_starts_at",
        "current_ends_at",
    )
    list_filter = ("all_monitors", ("owner", AutocompleteFilter), ("project", AutocompleteFilter))
    list_select_related = ("owner", "project")
    search_fields = ("public_id", "name__icontains", "owner__email")
    fields = (*list_display, "starts_at", "ends_at", "all_monitors", "created_at")

    def sections(self, request: HttpRequest, row: MaintenanceWindow) -> Sequence[Section]:
        if row.all_monitors:
            return ()
        chosen = row.monitors.order_by("pk").values_list("name", "type")[:MOST_MONITORS]
        return (Section("Chosen monitors", ("Name", "Type"), list(chosen)),)

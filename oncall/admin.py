from __future__ import annotations

from django.contrib import admin

from core.staff import AutocompleteFilter, ReadOnlyAdmin
from oncall.models import Contact, EscalationPolicy, OnCallSchedule


@admin.register(OnCallSchedule)
class OnCallScheduleAdmin(ReadOnlyAdmin[OnCallSchedule]):
    list_display = ("public_id", "name", "owner", "project", "time_zone")
    list_filter = (("owner", AutocompleteFilter), ("project", AutocompleteFilter))
    list_select_related = ("owner", "project")
    search_fields = ("public_id", "name__icontains", "owner__email")
    fields = (*list_display, "layers", "overrides", "announced_until", "created_at")


@admin.register(EscalationPolicy)
class EscalationPolicyAdmin(ReadOnlyAdmin[EscalationPolicy]):
    list_display = ("public_id", "name", "owner", "project", "repeat", "acknowledge_timeout_min")
    list_filter = (("owner", AutocompleteFilter), ("project", AutocompleteFilter))
    list_select_related = ("owner", "project")
    search_fields = ("public_id", "name__icontains", "owner__email")
    fields = (*list_display, "steps", "created_at")


@admin.register(Contact)
class ContactAdmin(ReadOnlyAdmin[Contact]):
    list_display = ("user", "rules")
    list_filter = (("user", AutocompleteFilter),)
    list_select_related = ("user",)
    search_fields = ("user__email",)
    fields = list_display

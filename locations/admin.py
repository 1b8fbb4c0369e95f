"""Locations in the admin: staff run the shared ones. Private ones are read, and deleted if no monitor names them."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from audit.actions import Action
from core.bulk import BulkResult
from core.clock import utc_now
from core.errors import ApiError
from core.staff import AutocompleteFilter, ReadOnlyAdmin, StaffAdmin, act
from locations import services
from locations.models import DEFAULT, Agent, JoinToken, Location


class LocationForm(forms.ModelForm[Location]):
    def clean_public_id(self) -> str:
        try:
            services.check_shared_id(self.cleaned_data["public_id"])
        except ApiError as error:
            raise forms.ValidationError(error.reason) from None
        return str(self.cleaned_data["public_id"])


@admin.register(Location)
class LocationAdmin(StaffAdmin[Location]):
    form = LocationForm
    list_display = ("public_id", "title", "owner", "project", "preselected", "created_at")
    list_filter = (("owner", AutocompleteFilter), ("project", AutocompleteFilter))
    list_select_related = ("owner", "project")
    search_fields = ("public_id", "name__icontains", "owner__email")
    fields = ("public_id", "name", "owner", "project", "preselected", "created_at")
    actions = ("issue_join_token", "remove")

    def get_readonly_fields(self, request: HttpRequest, obj: Location | None = None) -> tuple[str, ...]:
        fixed = ("owner", "project", "created_at")
        if obj is None:
            return fixed
        return (*fixed, "public_id", "name") if obj.is_default else (*fixed, "public_id")

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        return {"public_id": ""}  # not that of a private one

    def has_change_permission(self, request: HttpRequest, obj: Location | None = None) -> bool:
        return (obj is None or not obj.is_private) and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Location | None = None) -> bool:
        return False  # by the action, which asks whether monitors name it

    def save_model(self, request: HttpRequest, obj: Location, form: Any, change: bool) -> None:  # noqa: FBT001
        if not change:
            obj.created_at = utc_now()
            obj.save(force_insert=True)
            services.record(Action.LOCATION_CREATED, obj)
        elif form.changed_data:
            obj.save(update_fields=form.changed_data)
            services.record(Action.LOCATION_UPDATED, obj, fields=form.changed_data)

    @admin.action(description="Issue a join token", permissions=["change"])
    def issue_join_token(self, request: HttpRequest, queryset: QuerySet[Location]) -> None:
        issued: list[str] = []

        def issue(ids: list[int]) -> BulkResult[Location]:
            found = list(Location.objects.filter(pk__in=ids, owner=None).exclude(public_id=DEFAULT).order_by("pk"))
            issued.extend(f"{each}: {services.issue_shared(each.public_id, now=utc_now())}" for each in found)
            left = len(ids) - len(found)
            return BulkResult(found, {"private, or without agents": left} if left else {})

        act(self, request, queryset, issue, done="given a join token")
        for line in issued:
            self.message_user(request, f"{line} is valid for one hour and one agent.", messages.SUCCESS)

    @admin.action(description="Delete", permissions=["revoke"])
    def remove(self, request: HttpRequest, queryset: QuerySet[Location]) -> None:
        act(self, request, queryset, services.delete_locations_by_key, done="deleted", gone=True)


@admin.register(Agent)
class AgentAdmin(ReadOnlyAdmin[Agent]):
    list_display = ("public_id", "name", "location", "version", "protocol", "last_seen_at", "network_down")
    list_filter = (("location", AutocompleteFilter), "network_down")
    list_select_related = ("location",)
    search_fields = ("public_id", "name__icontains", "location__public_id")
    fields = (*list_display, "created_at", "checks", "checks_per_min", "lag_ms")
    actions = ("revoke",)

    @admin.action(description="Revoke", permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[Agent]) -> None:
        act(
            self,
            request,
            queryset,
            lambda ids: services.revoke_agents(Agent.objects.filter(pk__in=ids)),
            done="revoked",
            gone=True,
        )


@admin.register(JoinToken)
class JoinTokenAdmin(ReadOnlyAdmin[JoinToken]):
    list_display = ("location", "expires_at", "used_at")
    list_filter = (("location", AutocompleteFilter),)
    list_select_related = ("location",)
    search_fields = ("location__public_id",)
    fields = list_display

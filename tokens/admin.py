"""API credentials in the admin: owners and times of use, never the secrets."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from core.staff import AutocompleteFilter, ReadOnlyAdmin, act
from tokens.models import ProjectToken, Session
from tokens.services import end_sessions_by_key, revoke_tokens_by_key


@admin.register(Session)
class SessionAdmin(ReadOnlyAdmin[Session]):
    list_display = ("public_id", "user", "created_at", "last_used_at", "expires_at")
    list_filter = (("user", AutocompleteFilter),)
    list_select_related = ("user",)
    search_fields = ("public_id", "user__email")
    fields = list_display
    actions = ("end",)

    @admin.action(description="End", permissions=["revoke"])
    def end(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        act(self, request, queryset, end_sessions_by_key, done="ended", gone=True)


@admin.register(ProjectToken)
class ProjectTokenAdmin(ReadOnlyAdmin[ProjectToken]):
    list_display = ("public_id", "name", "access", "project", "created_by", "created_at", "last_used_at", "expires_at")
    list_filter = (("project", AutocompleteFilter), ("created_by", AutocompleteFilter))
    list_select_related = ("project", "created_by")
    search_fields = ("public_id", "name__icontains", "created_by__email", "project__public_id")
    fields = list_display
    actions = ("revoke",)

    @admin.action(description="Revoke", permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ProjectToken]) -> None:
        act(self, request, queryset, revoke_tokens_by_key, done="revoked", gone=True)

"""The log for staff: lists, filters and searches use indexes, so they stay fast with a million entries."""

from __future__ import annotations

from datetime import timedelta
from ipaddress import ip_address
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from audit.actions import MEANINGS
from audit.models import Entry
from core.clock import utc_now
from core.staff import ReadOnlyAdmin

_SPANS = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7), "month": timedelta(days=30)}


class ActionFilter(admin.SimpleListFilter):
    """Filter by the known actions: Django would query the table for all existing values."""

    title = "action"
    parameter_name = "action"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(action, action) for action in MEANINGS]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Entry]) -> QuerySet[Entry]:
        wanted = self.value()
        return queryset if wanted is None else queryset.filter(action=wanted)


class SpanFilter(admin.SimpleListFilter):
    title = "time"
    parameter_name = "within"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, f"The last {name}") for name in _SPANS]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Entry]) -> QuerySet[Entry]:
        span = _SPANS.get(self.value() or "")
        return queryset if span is None else queryset.filter(at__gte=utc_now() - span)


@admin.register(Entry)
class EntryAdmin(ReadOnlyAdmin[Entry]):
    list_display = ("at", "action", "who", "target_name", "address")
    list_filter = (ActionFilter, "actor_type", SpanFilter)
    search_fields = ("actor_email", "target_name", "action", "address")
    search_help_text = "Exact match: an e-mail address, an IP address, an action, or the id of an account or a project"
    fields = (
        "public_id",
        "at",
        "action",
        "actor_type",
        "actor_email",
        "actor_public_id",
        "target_id",
        "target_name",
        "project_public_id",
        "address",
        "user_agent",
        "details",
    )

    @admin.display(description="by")
    def who(self, entry: Entry) -> str:
        """Return actor type and address in one column; an address implies a person."""
        is_plain = entry.actor_email and entry.actor_type == Entry.ActorType.USER
        return entry.actor_email if is_plain else f"{entry.actor_email} ({entry.actor_type})".strip()

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Entry], search_term: str
    ) -> tuple[QuerySet[Entry], bool]:
        term = search_term.strip().lower()
        return (queryset.filter(_matching(term)) if term else queryset), False


def _matching(term: str) -> Q:
    """Filter by indexed columns and whole values only: a substring search would scan every row."""
    try:
        return Q(address=str(ip_address(term)))
    except ValueError:
        pass
    if term.startswith("usr_"):
        key = _key_of("accounts.User", term)
        return Q(actor_id=key) | Q(subject_id=key)
    if term.startswith("prj_"):
        return Q(project_id=_key_of("projects.Project", term))
    if term in MEANINGS:
        return Q(action=term)
    return Q(actor_email=term) | Q(target_name=term)


def _key_of(model: str, public_id: str) -> int:
    """Return the primary key of an object of a higher app, by its public id; 0 if there is none."""
    keys = apps.get_model(model)._default_manager.filter(public_id=public_id).values_list("pk", flat=True)
    return keys.first() or 0

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.utils import display_for_value
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html_join
from django.utils.safestring import mark_safe

from checks.results.selectors import results_of
from core.clock import utc_now
from core.staff import AutocompleteFilter, ReadOnlyAdmin, Section, act, ask, list_of, search
from monitors import operations, types
from monitors.checking import on_demand
from monitors.dependencies import load
from monitors.models import DnsChange, DomainRegistration, ExpiryWarning, Monitor, PingGap, SchedulerGap, StatusChange
from monitors.types.settings import MonitorConfig, settings_of

LATEST = 20
_MUTES = ((60, "for an hour"), (1_440, "for a day"), (10_080, "for a week"), (0, "not at all: unmute"))


class MuteForm(forms.Form):
    minutes = forms.TypedChoiceField(label="Mute", choices=_MUTES, coerce=int)


def _of_state(column: str) -> Any:
    """Return an admin field that shows a column of the monitor's state."""
    return admin.display(description=column.replace("_", " "))(
        lambda _, monitor: display_for_value(getattr(monitor.state, column), "-")
    )


@admin.register(Monitor)
class MonitorAdmin(ReadOnlyAdmin[Monitor]):
    """The id of a heartbeat is the secret of its ping URL, so it is neither shown nor found by a prefix search."""

    list_display = ("shown_id", "name", "type", "url", "owner", "project", "status", "enabled", "muted_until")
    list_filter = ("type", "enabled", "state__status", ("owner", AutocompleteFilter), ("project", AutocompleteFilter))
    list_select_related = ("owner", "project", "state")
    search_fields = ("public_id", "name__icontains", "url__icontains", "owner__email", "project__public_id")
    fieldsets = (
        (None, {"fields": ("shown_id", "owner", "project", "created_at", "enabled", "muted_until", "parents")}),
        (
            "Status",
            {"fields": ("status", "status_since", "last_checked_at", "last_latency_ms", "next_due_at", "claimed_at",
                        "last_ping_at", "cert_expires_at", "domain_expires_at")},
        ),
        ("Target", {"fields": ("type", *settings_of(MonitorConfig), "own_settings", "config_version")}),
    )  # fmt: skip
    actions = ("pause", "resume", "mute", "check_now")

    status = _of_state("status")
    status_since = _of_state("status_since")
    last_checked_at = _of_state("last_checked_at")
    last_latency_ms = _of_state("last_latency_ms")
    next_due_at = _of_state("next_due_at")
    claimed_at = _of_state("claimed_at")
    last_ping_at = _of_state("last_ping_at")
    cert_expires_at = _of_state("cert_expires_at")
    domain_expires_at = _of_state("domain_expires_at")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Monitor]:
        return super().get_queryset(request).defer("header_values")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Monitor], search_term: str
    ) -> tuple[QuerySet[Monitor], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        others = tuple(field for field in self.search_fields if field != "public_id")
        by_id = queryset.filter(public_id__startswith=term.lower()).exclude(type__in=types.with_secret_ids())
        return search(queryset, others, term) | by_id, False

    @admin.display(description="id")
    def shown_id(self, monitor: Monitor) -> str:
        return "not shown" if monitor.kind.has_secret_id else monitor.public_id

    @admin.display(description="depends on")
    def parents(self, monitor: Monitor) -> str:
        load([monitor], caller=None)
        page = "admin:monitors_monitor_change"
        found = ((reverse(page, args=[parent.pk]), parent.name) for parent in monitor.shown_parents)
        return format_html_join(", ", '<a href="{}">{}</a>', found) or "-"

    @admin.display(description="settings of the type")
    def own_settings(self, monitor: Monitor) -> str:
        """Return the settings of the type without long texts, which may contain personal data."""
        asked = monitor.kind.asked
        shown = {name: value for name, value in monitor.options.items() if name in asked and not asked[name].multiline}
        return format_html_join(mark_safe("<br>"), "{}: {}", shown.items())

    @admin.action(description="Pause", permissions=["act"])
    def pause(self, request: HttpRequest, queryset: QuerySet[Monitor]) -> None:
        act(self, request, queryset, partial(operations.pause, now=utc_now()), done="paused")

    @admin.action(description="Resume", permissions=["act"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Monitor]) -> None:
        act(self, request, queryset, partial(operations.resume, now=utc_now()), done="resumed")

    @admin.action(description="Mute or unmute", permissions=["act"])
    def mute(self, request: HttpRequest, queryset: QuerySet[Monitor]) -> HttpResponse | None:
        form = ask(self, request, queryset, MuteForm, title="Mute monitors", button="Apply")
        if not isinstance(form, MuteForm):
            return form
        minutes: int = form.cleaned_data["minutes"]
        done = f"muted {dict(_MUTES)[minutes]}" if minutes else "unmuted"
        act(self, request, queryset, partial(operations.mute_for, minutes=minutes, now=utc_now()), done=done)
        return None

    @admin.action(description="Check now", permissions=["act"])
    def check_now(self, request: HttpRequest, queryset: QuerySet[Monitor]) -> None:
        act(self, request, queryset, partial(on_demand.begin, now=utc_now()), done="scheduled for a check")

    def sections(self, request: HttpRequest, row: Monitor) -> Sequence[Section]:
        checks = [
            (each.checked_at, each.verdict, each.http_status, each.latency_ms, each.reason_code, each.detail)
            for each in results_of(row.pk, limit=LATEST, now=utc_now())
        ]
        changes = row.changes.order_by("-pk").values_list("at", "kind", "before", "after", "reason_code", "detail")
        all_changes = list_of(StatusChange, monitor__id__exact=row.pk)
        return (
            Section("Latest checks", ("At", "Verdict", "HTTP status", "Latency, ms", "Reason", "Detail"), checks),
            Section(
                "Latest changes",
                ("At", "Kind", "Before", "After", "Reason", "Detail"),
                list(changes[:LATEST]),
                all_changes,
            ),
        )


@admin.register(StatusChange)
class StatusChangeAdmin(ReadOnlyAdmin[StatusChange]):
    list_display = ("at", "monitor", "kind", "before", "after", "reason_code", "detail", "processed_at")
    list_filter = ("kind", "after", ("monitor", AutocompleteFilter))
    list_select_related = ("monitor",)
    search_fields = ("monitor__name__icontains", "monitor__owner__email")
    fields = (*list_display, "failing_since")


@admin.register(ExpiryWarning)
class ExpiryWarningAdmin(ReadOnlyAdmin[ExpiryWarning]):
    list_display = ("at", "monitor", "subject", "expires_at", "threshold_days", "processed_at")
    list_filter = ("subject", ("monitor", AutocompleteFilter))
    list_select_related = ("monitor",)
    search_fields = ("monitor__name__icontains", "monitor__owner__email")
    fields = list_display


@admin.register(DnsChange)
class DnsChangeAdmin(ReadOnlyAdmin[DnsChange]):
    list_display = ("at", "monitor", "added_count", "removed_count")
    list_filter = (("monitor", AutocompleteFilter),)
    list_select_related = ("monitor",)
    search_fields = ("monitor__name__icontains", "monitor__owner__email")
    fields = (*list_display, "added", "removed")


@admin.register(DomainRegistration)
class DomainRegistrationAdmin(ReadOnlyAdmin[DomainRegistration]):
    list_display = ("name", "expires_at", "looked_up_at", "next_lookup_at", "failures", "error")
    list_filter = (("error", admin.EmptyFieldListFilter),)
    search_fields = ("name",)
    fields = list_display


@admin.register(SchedulerGap)
class SchedulerGapAdmin(ReadOnlyAdmin[SchedulerGap]):
    """Periods in which Pulsekeeper itself was stopped."""

    list_display = ("started_at", "ended_at")
    fields = list_display


@admin.register(PingGap)
class PingGapAdmin(ReadOnlyAdmin[PingGap]):
    """Periods in which pings could not reach Pulsekeeper."""

    list_display = ("started_at", "held_until", "ended_at", "reason")
    fields = list_display

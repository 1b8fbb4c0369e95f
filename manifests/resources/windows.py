"""Maintenance windows in manifests."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.db.models import QuerySet

from incidents import selectors, windows
from incidents.models import MaintenanceWindow
from manifests.account import Account
from manifests.entries import Entry, Existing, MonitorRef, Values
from manifests.parsing import Item
from manifests.resources.base import (
    ChosenScope,
    ExportContext,
    Resolver,
    Scope,
    ServiceResource,
    WriteContext,
    export_scope,
    non_defaults,
    resolve_scope,
)
from projects.access import Caller

_DEFAULTS = {"time_zone": "UTC", "rrule": ""}


class Windows(ServiceResource):
    section, noun = "maintenance_windows", "maintenance window"

    def rows(self, caller: Caller) -> QuerySet[MaintenanceWindow]:
        return selectors.list_windows(caller)

    def is_over(self, row: MaintenanceWindow, *, now: datetime) -> bool:
        return windows.occurrence_of(row, now=now) is None

    def stored_values(self, row: MaintenanceWindow, account: Account, monitor_refs: Mapping[int, MonitorRef]) -> Values:
        scope: Scope = "all"
        if not row.all_monitors:
            chosen = [one.pk for one in windows.chosen_of(row) if one.pk in monitor_refs]
            scope = ChosenScope(frozenset(monitor_refs[pk] for pk in chosen))
        return {
            "name": row.name,
            "project": account.project_ref(row.project_id),
            "starts_at": row.starts_at,
            "ends_at": row.ends_at,
            "time_zone": row.time_zone,
            "rrule": row.rrule,
            "monitors": scope,
        }

    def desired(self, item: Item, entry: Entry, names: Resolver) -> Values:
        given = item.given
        path = (*item.path, "monitors")
        return {
            "name": entry.name,
            "project": entry.project_ref,
            "starts_at": given["starts_at"],
            "ends_at": given["ends_at"],
            "time_zone": given.get("time_zone", _DEFAULTS["time_zone"]),
            "rrule": given.get("rrule") or "",
            "monitors": resolve_scope(given["monitors"], entry.project_ref, path, names),
        }

    def write(self, existing: Existing, context: ExportContext) -> dict[str, Any]:
        values = existing.values
        found: dict[str, Any] = {"name": existing.name}
        if existing.project_ref is not None:
            found["project"] = context.project_ref(existing.project_ref)
        try:
            zone = ZoneInfo(values["time_zone"])
        except ZoneInfoNotFoundError:  # removed from the time zone database since
            zone = ZoneInfo("UTC")
        for name in ("starts_at", "ends_at"):
            found[name] = values[name].astimezone(zone).isoformat()
        monitors = export_scope(values["monitors"], existing.project_ref, context)
        return {**found, **non_defaults(values, _DEFAULTS), "monitors": monitors}

    def create(self, context: WriteContext, values: Values) -> None:
        body = self.body(context, values, values)
        windows.create_window(context.account.caller, body, now=context.now)

    def update(self, context: WriteContext, existing: Existing, values: Values, changed: set[str]) -> None:
        body = self.body(context, values, changed)
        windows.update_window(context.account.caller, existing.id, body, now=context.now)

    def delete(self, context: WriteContext, existing: Existing) -> None:
        windows.delete_window(context.account.caller, existing.id)

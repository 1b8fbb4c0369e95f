"""Maintenance windows in manifests."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, ClassVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from incidents import selectors, windows
from incidents.models import MaintenanceWindow
from manifests.account import Account, Entry, Existing, Values
from manifests.naming import ExportNames, Names
from manifests.resources.base import Resource, chosen_monitors, chosen_scope, export_scope, resolve_scope, resolve_tags


class Windows(Resource):
    section, noun = "maintenance_windows", "maintenance window"
    defaults: ClassVar[dict[str, Any]] = {"time_zone": "UTC", "rrule": "", "monitor_tags": []}
    outline = ("starts_at", "ends_at", "time_zone", "rrule", "current_starts_at", "current_ends_at")
    rows = staticmethod(selectors.list_windows)
    create = staticmethod(windows.create_window)
    update = staticmethod(windows.update_window)
    delete = staticmethod(windows.delete_window)

    def is_over(self, row: MaintenanceWindow, *, now: datetime) -> bool:
        return windows.occurrence_of(row, now=now) is None

    def links(self, keys: Collection[int]) -> dict[int, list[int]]:
        return chosen_monitors(MaintenanceWindow.monitors.through, "maintenancewindow", keys)

    def stored(self, row: MaintenanceWindow, account: Account, links: Sequence[int]) -> Values:
        scope = "all" if row.all_monitors else chosen_scope(row, links, account)
        fields = ("starts_at", "ends_at", *self.defaults)
        return {**{name: getattr(row, name) for name in fields}, "monitors": scope}

    def desired(self, entry: Entry, names: Names) -> Values:
        given = entry.given
        tags = resolve_tags(entry)
        return {
            "name": entry.name,
            "project": entry.project_ref,
            "starts_at": given["starts_at"],
            "ends_at": given["ends_at"],
            **{name: given.get(name) or default for name, default in self.defaults.items()},
            "monitor_tags": tags,
            "monitors": resolve_scope(entry, names),
        }

    def exported(self, existing: Existing, names: ExportNames) -> dict[str, Any]:
        values = existing.values
        try:
            zone = ZoneInfo(values["time_zone"])
        except ZoneInfoNotFoundError:  # removed from the time zone database since
            zone = ZoneInfo("UTC")
        times = {name: values[name].astimezone(zone).isoformat() for name in ("starts_at", "ends_at")}
        return {**times, **self.non_defaults(values), "monitors": export_scope(existing, names)}

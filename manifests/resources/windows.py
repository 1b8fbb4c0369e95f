"""Maintenance windows in files."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from incidents import selectors, windows
from manifests.account import Account
from manifests.entries import Entry, Present, Shape
from manifests.parsing import Item
from manifests.resources import scopes
from manifests.resources.base import Making, Names, Single, Writing, without
from manifests.resources.scopes import Chosen, Scope

_DEFAULTS = {"time_zone": "UTC", "rrule": ""}


class Windows(Single):
    section, noun = "maintenance_windows", "maintenance window"
    fields: ClassVar = {"project_id": "project", "monitor_ids": "monitors"}

    def read(self, account: Account, *, now: datetime) -> list[Present]:
        handles = account.handles()
        found = []
        for row in selectors.list_windows(account.caller).order_by("pk"):
            if not account.knows(row.project_id):
                continue
            place = account.place(row.project_id)
            scope: Scope = "all"
            if not row.all_monitors:
                chosen = windows.chosen_of(row)
                scope = Chosen(frozenset(handles[one.pk] for one in chosen if one.pk in handles))
            shape = {
                "name": row.name,
                "project": place,
                "starts_at": row.starts_at,
                "ends_at": row.ends_at,
                "time_zone": row.time_zone,
                "rrule": row.rrule,
                "monitors": scope,
            }
            is_over = windows.occurrence_of(row, now=now) is None
            found.append(
                Present(self.section, row.public_id, row.pk, row.name, place, shape, is_over=is_over)
            )
        return found

    def want(self, item: Item, entry: Entry, names: Names) -> Shape:
        given = item.given
        return {
            "name": entry.name,
            "project": entry.place,
            "starts_at": given["starts_at"],
            "ends_at": given["ends_at"],
            "time_zone": given.get("time_zone", _DEFAULTS["time_zone"]),
            "rrule": given.get("rrule") or "",
            "monitors": scopes.wanted(given["monitors"], entry.place, (*item.path, "monitors"), names),
        }

    def write(self, present: Present, writing: Writing) -> dict[str, Any]:
        shape = present.shape
        found: dict[str, Any] = {"name": present.name}
        if present.place is not None:
            found["project"] = writing.place(present.place)
        try:
            zone = ZoneInfo(shape["time_zone"])
        except ZoneInfoNotFoundError:  # stored under other time zones than today's
            zone = ZoneInfo("UTC")
        for name in ("starts_at", "ends_at"):
            found[name] = shape[name].astimezone(zone).isoformat()
        return {
            **found,
            **without(shape, _DEFAULTS),
            "monitors": scopes.written(shape["monitors"], present.place, writing),
        }

    def create(self, making: Making, shape: Shape) -> None:
        windows.create_window(making.account.caller, self._given(making, shape, set(shape)), now=making.now)

    def update(self, making: Making, present: Present, shape: Shape, changed: set[str]) -> None:
        given = self._given(making, shape, changed)
        windows.update_window(making.account.caller, present.id, given, now=making.now)

    def delete(self, making: Making, present: Present) -> None:
        windows.delete_window(making.account.caller, present.id)

    def _given(self, making: Making, shape: Shape, names: set[str]) -> dict[str, Any]:
        """The body of the API that sets these fields."""
        given: dict[str, Any] = {name: shape[name] for name in names}
        if "project" in given:
            given["project_id"] = making.project_id(given.pop("project"))
        scope = given.get("monitors")
        if isinstance(scope, Chosen):
            given["monitors"] = "chosen"
            given["monitor_ids"] = sorted(making.monitor_id(handle) for handle in scope.handles)
        return given

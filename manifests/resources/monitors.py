"""Monitors in manifests. `monitors.bulk` creates and updates them in bulk."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from accounts.models import User
from core.errors import ValidationFailed
from manifests.account import Account, intervals_of
from manifests.entries import Entry, Existing, ProjectRef, Values
from manifests.parsing import Item
from manifests.resources.base import EntryError, ExportContext, Resolver, Resource, keep_secret, non_defaults
from manifests.secrets import Secret
from monitors import configuration, types
from monitors.models import Monitor
from monitors.services import permits_host
from monitors.types.http import Header
from monitors.types.settings import MonitorConfig
from projects import access


class Monitors(Resource):
    section, noun = "monitors", "monitor"

    def __init__(self, user: User) -> None:
        """Set the user who owns all monitors without a project."""
        self.user = user

    def read(self, account: Account, *, now: datetime) -> list[Existing]:
        rows = access.accessible(account.caller, Monitor.objects.all()).order_by("pk")
        return [self._existing(row, account) for row in rows if account.knows(row.project_id)]

    def _existing(self, row: Monitor, account: Account) -> Existing:
        project_ref = account.project_ref(row.project_id)
        config = row.full_config
        values = values_of(config, project_ref=project_ref, enabled=row.enabled)
        return Existing("monitors", row.public_id, row.pk, row.name, project_ref, values, config)

    def desired(self, item: Item, entry: Entry, names: Resolver) -> Values:
        intervals = entry.project_ref.intervals if entry.project_ref else intervals_of(self.user)
        given = {**item.given, "request_headers": self._headers(item, entry)}
        if not given["request_headers"]:
            del given["request_headers"]
        config = configuration.complete(
            given, floor_sec=intervals.floor_sec, default_sec=intervals.default_sec, permits_host=permits_host
        )
        if entry.existing is not None:
            configuration.check_type(entry.existing.values["type"], config.type)
        entry.config = config
        return values_of(config, project_ref=entry.project_ref, enabled=item.given.get("enabled", True))

    def _headers(self, item: Item, entry: Entry) -> list[dict[str, Any]]:
        stored = self._stored_headers(item, entry)
        headers = []
        for index, header in enumerate(item.given.get("request_headers", [])):
            path = (*item.path, "request_headers", index, "value")
            if path in item.keeps:
                there = stored.get(header["name"].lower())
                if there is not None and there.dropped:
                    variable = item.keeps[path].variable
                    said = f"the stored value is for another server or owner; set {variable} in the environment."
                    raise EntryError(path, said)
                header = {**header, "value": keep_secret(item.keeps[path], there and there.value, path)}
            headers.append(header)
        return headers

    def _owner(self, project_ref: ProjectRef | None) -> int:
        return self.user.pk if project_ref is None else project_ref.owner

    def _stored_headers(self, item: Item, entry: Entry) -> dict[str, Header]:
        """Return the stored headers by their names in lower case, merged by the same rules as a PATCH."""
        if entry.existing is None:
            return {}
        stored = configuration.keepable(entry.existing.config, item.given)
        if self._owner(entry.project_ref) != self._owner(entry.existing.project_ref):
            stored = configuration.without_secrets(stored, moved=True)
        return {header.name.lower(): header for header in stored["request_headers"]}

    def write(self, existing: Existing, context: ExportContext) -> dict[str, Any]:
        values = existing.values
        found = {
            "name": existing.name,
            "project": context.project_ref(existing.project_ref),
            **non_defaults(values, {"enabled": True, "type": types.DEFAULT}),
            **{name: values[name] for name in _needed(existing.config)},
        }
        if "request_headers" in found:
            found["request_headers"] = [
                {
                    **{name: value for name, value in header.items() if name != "value"},
                    "value": context.variables.keep("monitor", existing.name, header["name"]),
                }
                for header in values["request_headers"]
            ]
        return {name: value for name, value in found.items() if name != "project" or value is not None}


def _needed(config: MonitorConfig) -> list[str]:
    """Return the settings that an export must contain: those that differ from what would be applied without them."""
    usual = configuration.build({"type": config.type})
    return [
        name
        for name in types.settings()
        if name != "name" and config[name] != usual[name] and not _is_implied(config, name, usual[name])
    ]


def _is_implied(config: MonitorConfig, name: str, usual: Any) -> bool:
    """Return whether the other settings imply the value, as content rules imply a method."""
    try:
        own = configuration.merge(config, {name: usual}).own.settle(types.get(config.type))
    except ValidationFailed:
        return False
    return name in own.__struct_fields__ and own == config.own


def values_of(config: MonitorConfig, *, project_ref: ProjectRef | None, enabled: bool) -> Values:
    """Return the values of a complete configuration."""
    settings = {name: _plain(config[name]) for name in types.settings()}
    return {**settings, "project": project_ref, "enabled": enabled, "type": config.type}


def _plain(value: Any) -> Any:
    """Return a setting in the format of a file. Secrets are wrapped."""
    if isinstance(value, Header):
        hint = {"type": value.type} if value.type else {}
        return {"name": value.name, **hint, "value": Secret(value.value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return msgspec.to_builtins(value)

"""Alert channels in manifests. Their addresses are secrets, as in the API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet

from alerts import selectors, services
from alerts.models import DEFAULT_TOPICS, AlertChannel, Topic
from alerts.transports import KINDS, secret_settings, settings_by_name
from alerts.transports.base import Setting
from manifests.account import Account
from manifests.entries import Entry, Existing, MonitorRef, Values
from manifests.parsing import Item
from manifests.problems import Path
from manifests.resources.base import (
    ChosenScope,
    EntryError,
    ExportContext,
    ProjectScope,
    Resolver,
    Scope,
    ServiceResource,
    WriteContext,
    export_scope,
    non_defaults,
    resolve_scope,
    resolve_secret,
)
from manifests.secrets import Secret
from projects.access import Caller

_DEFAULTS = {
    "enabled": True,
    "topics": [topic.value for topic in DEFAULT_TOPICS],
    "monitors": "all",
    "remind_every_hours": 24,
}


class Channels(ServiceResource):
    section, noun = "channels", "alert channel"

    def rows(self, caller: Caller) -> QuerySet[AlertChannel]:
        return selectors.list_channels(caller)

    def stored_values(self, row: AlertChannel, account: Account, monitor_refs: Mapping[int, MonitorRef]) -> Values:
        scope: Scope = "all"
        if row.scope == AlertChannel.Scope.PROJECT:
            scope = ProjectScope(account.project_ref(row.scope_project_id))
        elif row.scope == AlertChannel.Scope.CHOSEN:
            chosen = [one.pk for one in row.monitors.all() if row.project_id in (None, one.project_id)]
            scope = ChosenScope(frozenset(monitor_refs[pk] for pk in chosen if pk in monitor_refs))
        config = row.config
        return {
            "name": row.name,
            "project": account.project_ref(row.project_id),
            "kind": row.kind,
            "enabled": row.enabled,
            "topics": list(row.topics),
            "monitors": scope,
            "remind_every_hours": row.remind_every_hours,
            **dict.fromkeys(settings_by_name()),
            **{
                setting.name: Secret(config[setting.name]) if setting.secret else config[setting.name]
                for setting in KINDS[row.kind].settings
                if setting.name in config
            },
        }

    def desired(self, item: Item, entry: Entry, names: Resolver) -> Values:
        given, stored = item.given, entry.existing.values if entry.existing else {}
        settings = KINDS[given["kind"]].settings
        for setting in settings:
            needed = setting.name
            if setting.required and needed not in given and (*item.path, needed) not in item.keeps:
                said = f"{needed} is required for a channel of kind {given['kind']}"
                raise EntryError(
                    item.path,
                    f"{said}; ${{keep:PK_NAME}} keeps the stored value." if setting.secret else f"{said}.",
                )
        secrets = secret_settings()
        values = {
            "name": entry.name,
            "project": entry.project_ref,
            "kind": given["kind"],
            "enabled": given.get("enabled", True),
            "topics": [topic.value for topic in Topic if topic in given.get("topics", _DEFAULTS["topics"])],
            "monitors": resolve_scope(given.get("monitors", "all"), entry.project_ref, (*item.path, "monitors"), names),
            "remind_every_hours": given.get("remind_every_hours", _DEFAULTS["remind_every_hours"]),
            **{name: resolve_secret(item, name, stored.get(name)) for name in secrets},
            **{name: given.get(name) for name in settings_by_name() if name not in secrets},
        }
        for setting in settings:
            name = setting.name
            if name in given:
                value = _normalize(setting, given[name], (*item.path, name))
                values[name] = Secret(value) if setting.secret else value
            elif not setting.secret:
                values[name] = setting.default() if setting.default else None
            elif values[name] is None and given["kind"] == stored.get("kind"):
                values[name] = stored[name]  # omitted: keep the stored value, which may be a generated secret
        return values

    def write(self, existing: Existing, context: ExportContext) -> dict[str, Any]:
        values = existing.values
        found: dict[str, Any] = {"name": existing.name}
        if existing.project_ref is not None:
            found["project"] = context.project_ref(existing.project_ref)
        found["kind"] = values["kind"]
        for setting in KINDS[values["kind"]].settings:
            name = setting.name
            if setting.secret and values[name] is not None:
                found[name] = context.variables.keep("channel", existing.name, name)
            elif not setting.secret and (setting.default is None or values[name] != setting.default()):
                found[name] = values[name]
        for name, value in non_defaults(values, _DEFAULTS).items():
            found[name] = export_scope(value, existing.project_ref, context) if name == "monitors" else value
        return found

    def create(self, context: WriteContext, values: Values) -> None:
        caller = context.account.caller
        body = self.body(context, values, set(values) - {"enabled"})
        body = {name: value for name, value in body.items() if value is not None}
        channel, _ = services.create_channel(caller, body, now=context.now)
        if not values["enabled"]:
            services.update_channel(caller, channel.public_id, {"enabled": False}, now=context.now)

    def update(self, context: WriteContext, existing: Existing, values: Values, changed: set[str]) -> None:
        body = self.body(context, values, changed)
        services.update_channel(context.account.caller, existing.id, body, now=context.now)

    def delete(self, context: WriteContext, existing: Existing) -> None:
        services.delete_channel(context.account.caller, existing.id)


def _normalize(setting: Setting, value: str, path: Path) -> str:
    """Return the value as stored, so that a different spelling in the file counts as unchanged."""
    try:
        return setting.check(value)
    except ValueError as error:
        raise EntryError(path, str(error)) from None

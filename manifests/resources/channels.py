"""Alert channels in manifests. Their addresses are secrets, as in the API."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, ClassVar

from alerts import selectors, services
from alerts.events import DEFAULT_TOPICS, Topic
from alerts.models import AlertChannel
from alerts.transports import KINDS, secret_settings, settings_by_name
from alerts.transports.base import Setting
from core.errors import ValidationFailed
from manifests.account import Account, Entry, Existing, Values
from manifests.naming import ExportNames, Names
from manifests.resources.base import (
    ProjectScope,
    Resource,
    Scope,
    chosen_monitors,
    chosen_scope,
    export_scope,
    resolve_scope,
    resolve_secret,
    resolve_tags,
)
from projects.access import Caller
from pulsekeeper.manifest.problems import EntryError, Path
from pulsekeeper.manifest.secrets import Secret


class Channels(Resource):
    section, noun = "channels", "alert channel"
    defaults: ClassVar[dict[str, Any]] = {
        "enabled": True,
        "topics": [topic.value for topic in DEFAULT_TOPICS],
        "monitors": "all",
        "monitor_tags": [],
        "remind_every_hours": 24,
        "delay_min": 0,
        "hours": [],
        "timezone": "UTC",
        "outside": "hold",
        "templates": {},
    }
    rows = staticmethod(selectors.list_channels)
    update = staticmethod(services.update_channel)
    delete = staticmethod(services.delete_channel)

    @staticmethod
    def create(caller: Caller, body: dict[str, Any], *, now: datetime) -> AlertChannel:
        enabled = body.pop("enabled")
        given = {name: value for name, value in body.items() if value is not None}
        channel, _ = services.create_channel(caller, given, now=now)
        if not enabled:
            services.update_channel(caller, channel.public_id, {"enabled": False}, now=now)
        return channel

    def links(self, keys: Collection[int]) -> dict[int, list[int]]:
        return chosen_monitors(AlertChannel.monitors.through, "alertchannel", keys)

    def stored(self, row: AlertChannel, account: Account, links: Sequence[int]) -> Values:
        scope: Scope = "all"
        if row.scope == AlertChannel.Scope.PROJECT:
            scope = ProjectScope(account.project_ref(row.scope_project_id))
        elif row.scope == AlertChannel.Scope.CHOSEN:
            scope = chosen_scope(row, links, account)
        config = row.config
        return {
            "kind": row.kind,
            "enabled": row.enabled,
            "topics": list(row.topics),
            "monitors": scope,
            "monitor_tags": row.monitor_tags,
            "remind_every_hours": row.remind_every_hours,
            "delay_min": row.delay_min,
            "hours": row.hours,
            "timezone": row.time_zone,
            "outside": row.outside,
            "templates": row.templates,
            **dict.fromkeys(settings_by_name()),
            **{
                setting.name: Secret(config[setting.name]) if setting.secret else config[setting.name]
                for setting in KINDS[row.kind].settings
                if setting.name in config
            },
        }

    def desired(self, entry: Entry, names: Names) -> Values:
        given, stored = entry.given, entry.existing.values if entry.existing else {}
        kind = KINDS[given["kind"]]
        settings = kind.settings
        try:
            own = {setting.name: given[setting.name] for setting in settings if setting.name in given}
            given = {**given, **kind.separated(own)}
        except ValueError as error:
            raise EntryError((*entry.path, settings[0].name), str(error)) from None
        for setting in settings:
            if setting.required and setting.name not in given and (*entry.path, setting.name) not in entry.keeps:
                hint = "; ${keep:PK_NAME} keeps the stored value." if setting.secret else "."
                said = f"{setting.name} is required for a channel of kind {given['kind']}{hint}"
                raise EntryError(entry.path, said)
        secrets = secret_settings()
        chosen = self.defaults | given
        values = {
            "name": entry.name,
            "project": entry.project_ref,
            "kind": given["kind"],
            "enabled": chosen["enabled"],
            "topics": [topic.value for topic in Topic if topic in chosen["topics"]],
            "monitors": resolve_scope(entry, names),
            "monitor_tags": resolve_tags(entry),
            **{name: chosen[name] for name in ("remind_every_hours", "delay_min", "outside")},
            **_settled(entry, chosen),
            **{name: resolve_secret(entry, name, stored.get(name)) for name in secrets},
            **{name: given.get(name) for name in settings_by_name() if name not in secrets},
        }
        for setting in settings:
            name = setting.name
            if name in given:
                value = _normalize(setting, given[name], (*entry.path, name))
                values[name] = Secret(value) if setting.secret else value
            elif not setting.secret:
                values[name] = setting.default() if setting.default else None
            elif values[name] is None and given["kind"] == stored.get("kind"):
                values[name] = stored[name]  # omitted: keep the stored value, which may be a generated secret
        return values

    def exported(self, existing: Existing, names: ExportNames) -> dict[str, Any]:
        values = existing.values
        found: dict[str, Any] = {"kind": values["kind"]}
        is_viewer = names.account.caller.views(existing.row)
        if is_viewer:
            found["name"] = selectors.shown_name(existing.row, names.account.caller)
        for setting in KINDS[values["kind"]].settings:
            name = setting.name
            if (setting.secret or is_viewer) and values[name] is not None:
                found[name] = names.variables.keep("channel", found.get("name", existing.name), name)
            elif not setting.secret and (setting.default is None or values[name] != setting.default()):
                found[name] = values[name]
        found |= self.non_defaults(values if not is_viewer else values | {"templates": {}})
        return found | ({"monitors": export_scope(existing, names)} if "monitors" in found else {})


def _settled(entry: Entry, chosen: Values) -> dict[str, Any]:
    """Return the hours, their zone and the templates as stored."""
    given = {name: chosen[name] for name in ("hours", "timezone", "templates")}
    try:
        return dict(services.settle_timing(given))
    except ValidationFailed as error:
        field = error.field or "templates"
        raise EntryError((*entry.path, field), error.reason.removeprefix(f"{field}: ")) from None


def _normalize(setting: Setting, value: str, path: Path) -> str:
    """Return the value as stored, so that a different spelling in the file counts as unchanged."""
    try:
        return setting.check(value)
    except ValueError as error:
        raise EntryError(path, str(error)) from None

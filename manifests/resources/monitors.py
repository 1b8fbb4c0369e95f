"""Monitors in manifests. `monitors.services` creates and updates them in bulk."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

import msgspec
from django.db.models import QuerySet

from core.errors import ValidationFailed
from manifests.account import Account, Entry, Existing, MonitorRef, Values
from manifests.naming import ExportNames, Names
from manifests.resources.base import Resource, keep_secret, resolve_monitors
from monitors import configuration, types
from monitors.dependencies import FIELD
from monitors.models import Dependency, Monitor
from monitors.services import complete
from monitors.types.http import Header
from monitors.types.settings import MonitorConfig
from projects import access
from projects.access import Caller
from pulsekeeper.manifest.problems import EntryError
from pulsekeeper.manifest.secrets import Secret


@dataclass(frozen=True, slots=True)
class Parents:
    """The monitors that one depends on, in their order."""

    monitor_refs: tuple[MonitorRef, ...] = ()

    def parts(self) -> dict[str, str]:
        return dict.fromkeys((monitor_ref.name for monitor_ref in self.monitor_refs), "parent")

    def __str__(self) -> str:
        return ", ".join(monitor_ref.name for monitor_ref in self.monitor_refs) or "none"


class Monitors(Resource):
    section, noun = "monitors", "monitor"
    defaults: ClassVar[dict[str, Any]] = {"enabled": True, "type": types.DEFAULT}
    outline = ("type",)

    @staticmethod
    def rows(caller: Caller) -> QuerySet[Monitor]:
        policies = Monitor.objects.select_related("escalation_policy").defer("escalation_policy__steps")
        return access.accessible(caller, policies)

    def read(self, account: Account, *, now: datetime) -> list[Existing]:
        found = super().read(account, now=now)
        account.monitor_refs = {one.row.pk: one for one in found}
        return found

    def links(self, keys: Collection[int]) -> Mapping[int, Sequence[int]]:
        found = defaultdict(list)
        rows = Dependency.objects.filter(child__in=keys).order_by("position", "pk")
        for child_id, parent_id in rows.values_list("child", "parent"):
            found[child_id].append(parent_id)
        return found

    def stored(self, row: Monitor, account: Account, links: Sequence[Any]) -> Values:
        parents = Parents(tuple(account.monitor_refs[key] for key in links if key in account.monitor_refs))
        policy = row.escalation_policy and account.policy_ref(row.escalation_policy.public_id)
        settings = {**_plain_settings(row.full_config), "enabled": row.enabled, "type": row.type}
        return {**settings, "escalation_policy": policy, FIELD: parents}

    def desired(self, entry: Entry, names: Names) -> Values:
        given = {name: value for name, value in entry.given.items() if name != "request_headers"}
        if entry.given.get("request_headers"):
            given["request_headers"] = self._headers(entry, names.account)
        config = complete(given, names.account.limits_at(entry.project_ref))
        if entry.existing is not None:
            configuration.check_type(entry.existing.values["type"], config.type)
        entry.config = config
        enabled = entry.given.get("enabled", True)
        settings = {**_plain_settings(config), "enabled": enabled, "type": config.type}
        return {**settings, "project": entry.project_ref, "escalation_policy": None, FIELD: Parents()}

    def resolve(self, entry: Entry, names: Names) -> None:
        path = (*entry.path, FIELD)
        references = [((*path, index), one) for index, one in enumerate(entry.given.get(FIELD, ()))]
        found = tuple(resolve_monitors(references, entry, names))
        for index, monitor_ref in enumerate(found):
            if monitor_ref in found[:index]:
                raise EntryError((*path, index), f"{monitor_ref.name} is listed twice.")
        if entry.values is not None:
            entry.values[FIELD] = Parents(found)

    def new_refs(self, values: Values) -> Iterable[Entry]:
        policy = values["escalation_policy"]
        return (policy,) if isinstance(policy, Entry) else ()

    def monitor_refs(self, values: Values) -> set[MonitorRef]:
        return set(values[FIELD].monitor_refs) if values else set()

    def _headers(self, entry: Entry, account: Account) -> list[dict[str, Any]]:
        stored = self._stored_headers(entry, account)
        headers = []
        for index, header in enumerate(entry.given["request_headers"]):
            path = (*entry.path, "request_headers", index, "value")
            if path in entry.keeps:
                there = stored.get(header["name"].lower())
                if there is not None and there.dropped:
                    variable = entry.keeps[path].variable
                    said = f"the stored value is for another server or owner; set {variable} in the environment."
                    raise EntryError(path, said)
                header = {**header, "value": keep_secret(entry.keeps[path], there and there.value, path)}
            headers.append(header)
        return headers

    def _stored_headers(self, entry: Entry, account: Account) -> dict[str, Header]:
        """Return the stored headers by their names in lower case, merged by the same rules as a PATCH."""
        if entry.existing is None:
            return {}
        stored = configuration.keepable(
            entry.existing.row.full_config, entry.given, account.limits_at(entry.project_ref)
        )
        if account.owner_of(entry.project_ref) != account.owner_of(entry.existing.project_ref):
            stored = configuration.without_secrets(stored, moved=True)
        return {header.name.lower(): header for header in stored["request_headers"]}

    def exported(self, existing: Existing, names: ExportNames) -> dict[str, Any]:
        values = existing.values
        limits = names.account.limits_at(existing.project_ref)
        needed = _needed(existing.row.full_config, limits.preselected)
        found = {**self.non_defaults(values), **{name: values[name] for name in needed}}
        if "request_headers" in found:
            found["request_headers"] = [
                {**header, "value": names.variables.keep("monitor", existing.name, header["name"])}
                for header in values["request_headers"]
            ]
        if (policy := values["escalation_policy"]) is not None:
            found["escalation_policy"] = names.found("escalation_policies", policy, existing.project_ref)
        if parents := values[FIELD].monitor_refs:
            found[FIELD] = [names.monitor(monitor_ref, existing.project_ref) for monitor_ref in parents]
        return found


def _needed(config: MonitorConfig, preselected: Sequence[str]) -> list[str]:
    """Return the settings that an export must contain: those that differ from what would be applied without them."""
    usual = configuration.build({"type": config.type, "locations": preselected})
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


def _plain_settings(config: MonitorConfig) -> Values:
    return {name: _plain(config[name]) for name in types.settings()}


def _plain(value: Any) -> Any:
    """Return a setting in the format of a file. Secrets are wrapped."""
    if isinstance(value, Header):
        hint = {"type": value.type} if value.type else {}
        return {"name": value.name, **hint, "value": Secret(value.value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return msgspec.to_builtins(value)

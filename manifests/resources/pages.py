"""Status pages in manifests, identified by their slugs. Logos are not part of a manifest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.hashers import check_password
from django.db.models import QuerySet

from manifests.account import Account
from manifests.entries import Entry, Existing, MonitorRef, Values
from manifests.parsing import Item
from manifests.resources.base import (
    EntryError,
    ExportContext,
    InvalidReferenceError,
    Resolver,
    ServiceResource,
    WriteContext,
    non_defaults,
    resolve_secret,
)
from manifests.secrets import Secret
from projects.access import Caller
from statuspages import colours, selectors, services
from statuspages.models import StatusPage
from statuspages.names import check_domain

_DEFAULTS: dict[str, Any] = {
    "description": "",
    "published": True,
    "theme": "auto",
    "accent": None,
    "custom_domain": None,
    "show_window_names": False,
    "groups": [],
}


@dataclass(frozen=True, slots=True)
class HashedPassword:
    """A stored password. Only its hash is known."""

    hash: str = field(repr=False)

    def __str__(self) -> str:
        return "(secret)"


@dataclass(frozen=True, slots=True)
class Group:
    """A group of monitors. `monitors` are the monitors with their names on the page."""

    name: str
    monitors: tuple[tuple[MonitorRef, str], ...]

    def parts(self) -> dict[str, str]:
        heading = f"{self.name}: " if self.name else ""
        return {heading + monitor_ref.label: name for monitor_ref, name in self.monitors}

    def __str__(self) -> str:
        monitors = ", ".join(f"{monitor_ref.label} as {name!r}" for monitor_ref, name in self.monitors)
        return f"{self.name or 'no heading'} ({monitors})"


class Pages(ServiceResource):
    section, noun, identity = "status_pages", "status page", "slug"

    def rows(self, caller: Caller) -> QuerySet[StatusPage]:
        return selectors.list_pages(caller)

    def stored_values(self, row: StatusPage, account: Account, monitor_refs: Mapping[int, MonitorRef]) -> Values:
        groups = []
        for group in row.groups.all():
            shown = [one for one in group.monitors.all() if one.monitor_id in monitor_refs]
            groups.append(Group(group.name, tuple((monitor_refs[one.monitor_id], one.name) for one in shown)))
        return {
            "slug": row.slug,
            "project": account.project_ref(row.project_id),
            "name": row.name,
            "password": HashedPassword(row.password_hash) if row.password_hash else None,
            **{name: getattr(row, name) for name in _DEFAULTS if name != "groups"},
            "groups": groups,
        }

    def desired(self, item: Item, entry: Entry, names: Resolver) -> Values:
        given = item.given
        stored = entry.existing.values["password"] if entry.existing else None
        password = resolve_secret(item, "password", stored)
        if isinstance(password, Secret) and stored is not None and check_password(password.value, stored.hash):
            password = stored
        return {
            "slug": entry.name,
            "project": entry.project_ref,
            "name": given["name"],
            "password": password,
            **{name: given.get(name, default) for name, default in _DEFAULTS.items() if name != "groups"},
            "accent": _normalize(given.get("accent"), colours.check_accent),
            "custom_domain": _normalize(given.get("custom_domain"), lambda text: check_domain(text, own=())),
            "groups": self._groups(item, entry, names),
        }

    def _groups(self, item: Item, entry: Entry, names: Resolver) -> list[Group]:
        groups = []
        invalid: InvalidReferenceError | None = None
        seen: set[MonitorRef] = set()
        for i, group in enumerate(item.given.get("groups", [])):
            shown = []
            for j, one in enumerate(group["monitors"]):
                path = (*item.path, "groups", i, "monitors", j, "monitor")
                try:
                    monitor_ref = names.monitor(one["monitor"], entry.project_ref, path)
                except InvalidReferenceError as error:
                    invalid = error
                    continue
                if monitor_ref in seen:
                    raise EntryError(path, "is already on the page.")
                seen.add(monitor_ref)
                shown.append((monitor_ref, one["name"]))
            groups.append(Group(group.get("name", ""), tuple(shown)))
        if invalid is not None:
            raise invalid
        return groups

    def write(self, existing: Existing, context: ExportContext) -> dict[str, Any]:
        values = existing.values
        found: dict[str, Any] = {"slug": values["slug"], "name": values["name"]}
        if existing.project_ref is not None:
            found["project"] = context.project_ref(existing.project_ref)
        if values["password"] is not None:
            found["password"] = context.variables.keep("status_page", values["slug"], "password")
        found |= non_defaults(values, _DEFAULTS)
        if "groups" in found:
            found["groups"] = [
                {
                    **({"name": group.name} if group.name else {}),
                    "monitors": [
                        {"monitor": context.monitor(monitor_ref, existing.project_ref), "name": name}
                        for monitor_ref, name in group.monitors
                    ],
                }
                for group in values["groups"]
            ]
        return found

    def create(self, context: WriteContext, values: Values) -> None:
        services.create_page(context.account.caller, self._body(context, values, set(values)), now=context.now)

    def update(self, context: WriteContext, existing: Existing, values: Values, changed: set[str]) -> None:
        services.update_page(context.account.caller, existing.id, self._body(context, values, changed))

    def delete(self, context: WriteContext, existing: Existing) -> None:
        services.delete_page(context.account.caller, existing.id)

    def _body(self, context: WriteContext, values: Values, names: set[str]) -> dict[str, Any]:
        body = self.body(context, values, names)
        if "groups" in body:
            body["groups"] = [
                {
                    "name": group.name,
                    "monitors": [
                        {"monitor_id": context.monitor_id(monitor_ref), "name": name}
                        for monitor_ref, name in group.monitors
                    ],
                }
                for group in body["groups"]
            ]
        return body


def _normalize(value: str | None, check: Callable[[str], str]) -> str | None:
    """Return the value as the service stores it, or unchanged if the service will reject it."""
    try:
        return None if value is None else check(value)
    except ValueError:
        return value

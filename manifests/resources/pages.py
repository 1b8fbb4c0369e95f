"""Status pages in manifests, identified by their slugs. Logos are not part of a manifest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from django.contrib.auth.hashers import check_password

from core.errors import ValidationFailed
from manifests.account import Account, Entry, Existing, MonitorRef, Values
from manifests.naming import ExportNames, Names
from manifests.resources.base import Resource, monitor_id, resolve_monitors, resolve_secret
from monitors.types.tags import settle_tags
from projects.access import Caller
from pulsekeeper.manifest.problems import EntryError, Path
from pulsekeeper.manifest.secrets import Secret
from statuspages import selectors, services
from statuspages.models import PageGroup, StatusPage
from statuspages.validation import check_accent, check_domain


@dataclass(frozen=True, slots=True)
class Group:
    """A group of monitors. `monitors` are the monitors with their names on the page."""

    name: str
    monitors: tuple[tuple[MonitorRef, str], ...]
    monitor_tags: tuple[str, ...] = ()

    def parts(self) -> dict[str, str]:
        heading = f"{self.name}: " if self.name else ""
        tags = {f"{heading}tags": ", ".join(self.monitor_tags)} if self.monitor_tags else {}
        return {heading + monitor_ref.name: name for monitor_ref, name in self.monitors} | tags

    def __str__(self) -> str:
        monitors = ", ".join(f"{monitor_ref.name} as {name!r}" for monitor_ref, name in self.monitors)
        tags = [f"tags {', '.join(self.monitor_tags)}"] if self.monitor_tags else []
        return f"{self.name or 'no heading'} ({', '.join(filter(None, [monitors, *tags]))})"


class Pages(Resource):
    section, noun, identity = "status_pages", "status page", "slug"
    defaults: ClassVar[dict[str, Any]] = {
        "description": "",
        "published": True,
        "theme": "auto",
        "accent": None,
        "custom_domain": None,
        "show_window_names": False,
        "show_locations": False,
    }
    at_once = 1
    rows = staticmethod(selectors.list_pages)
    create = staticmethod(services.create_page)
    delete = staticmethod(services.delete_page)

    @staticmethod
    def update(caller: Caller, public_id: str, body: Mapping[str, Any], *, now: datetime) -> None:  # noqa: ARG004
        services.update_page(caller, public_id, body)

    def links(self, keys: Collection[int]) -> dict[int, list[tuple[PageGroup, list[tuple[int, str]]]]]:
        """Return the groups of each page, and the keys of their monitors with the names on the page."""
        monitors = defaultdict(list)
        shown = selectors.showable().filter(page__in=keys).order_by("pk")
        for group_id, key, name in shown.values_list("group", "monitor", "name"):
            monitors[group_id].append((key, name))
        found = defaultdict(list)
        groups = PageGroup.objects.filter(page__in=keys).order_by("pk")
        for group in groups:
            found[group.page_id].append((group, monitors[group.pk]))
        return found

    def stored(
        self, row: StatusPage, account: Account, links: Sequence[tuple[PageGroup, list[tuple[int, str]]]]
    ) -> Values:
        known = account.monitor_refs
        groups = [
            Group(
                group.name,
                tuple((known[key], name) for key, name in monitors if key in known),
                tuple(group.monitor_tags),
            )
            for group, monitors in links
        ]
        return {
            "name": row.name,
            "password": Secret(row.password_hash) if row.password_hash else None,
            **{name: getattr(row, name) for name in self.defaults},
            "groups": groups,
        }

    def desired(self, entry: Entry, names: Names) -> Values:
        given = entry.given
        stored = entry.existing.values["password"] if entry.existing else None
        password = resolve_secret(entry, "password", stored)  # only the hash of a stored one is known
        if isinstance(password, Secret) and stored is not None and check_password(password.value, stored.value):
            password = stored
        return {
            "slug": entry.name,
            "project": entry.project_ref,
            "name": given["name"],
            "password": password,
            **{name: given.get(name, default) for name, default in self.defaults.items()},
            "accent": _normalize(given.get("accent"), check_accent),
            "custom_domain": _normalize(given.get("custom_domain"), lambda text: check_domain(text, own=())),
            "groups": self._groups(entry, names),
        }

    def _groups(self, entry: Entry, names: Names) -> list[Group]:
        given = entry.given.get("groups", [])
        references = [
            ((*entry.path, "groups", i, "monitors", j, "monitor"), one["monitor"])
            for i, group in enumerate(given)
            for j, one in enumerate(group["monitors"])
        ]
        monitor_refs = resolve_monitors(references, entry, names)
        seen: set[MonitorRef] = set()
        for (path, _), monitor_ref in zip(references, monitor_refs, strict=True):
            if monitor_ref in seen:
                raise EntryError(path, "is already on the page.")
            seen.add(monitor_ref)
        left = iter(monitor_refs)
        return [
            Group(
                group.get("name", ""),
                tuple((next(left), one["name"]) for one in group["monitors"]),
                _tags((*entry.path, "groups", index, "monitor_tags"), group.get("monitor_tags", ())),
            )
            for index, group in enumerate(given)
        ]

    def monitor_refs(self, values: Values) -> set[MonitorRef]:
        return {monitor_ref for group in values["groups"] for monitor_ref, _ in group.monitors}

    def exported(self, existing: Existing, names: ExportNames) -> dict[str, Any]:
        values = existing.values
        found = self.non_defaults(values)
        if values["password"] is not None:
            found = {"password": names.variables.keep("status_page", values["slug"], "password"), **found}
        if values["groups"]:
            home = existing.project_ref
            found["groups"] = _plain(values["groups"], "monitor", lambda one: names.monitor(one, home))
        return found

    def body(self, values: Values, names: Collection[str], new_ids: Mapping[Entry, str]) -> dict[str, Any]:
        body = super().body(values, names, new_ids)
        if "groups" in body:
            body["groups"] = _plain(body["groups"], "monitor_id", lambda one: monitor_id(one, new_ids))
        return body


def _plain(groups: Sequence[Group], key: str, value_of: Callable[[MonitorRef], Any]) -> list[dict[str, Any]]:
    return [
        {
            **({"name": group.name} if group.name else {}),
            "monitors": [{key: value_of(monitor_ref), "name": name} for monitor_ref, name in group.monitors],
            **({"monitor_tags": [*group.monitor_tags]} if group.monitor_tags else {}),
        }
        for group in groups
    ]


def _tags(path: Path, given: Sequence[str]) -> tuple[str, ...]:
    try:
        return settle_tags(given, field="monitor_tags")
    except ValidationFailed as error:
        raise EntryError(path, error.reason.partition(": ")[2]) from None


def _normalize(value: str | None, check: Callable[[str], str]) -> str | None:
    """Return the value as the service stores it, or unchanged if the service will reject it."""
    try:
        return None if value is None else check(value)
    except ValueError:
        return value

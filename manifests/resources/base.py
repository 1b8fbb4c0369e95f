"""The interface of a resource: read, resolve, export, create, update and delete."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from django.db.models import Model, QuerySet

from core.errors import ValidationFailed
from manifests.account import Account, Entry, Existing, MonitorRef, ProjectRef, Values
from manifests.naming import ExportNames, Names
from monitors.types.tags import settle_tags
from pulsekeeper.manifest.problems import EntryError, InvalidReferenceError, Path
from pulsekeeper.manifest.secrets import Keep, Secret


class Resource(ABC):
    """One section of a manifest, with the defaults of its fields."""

    section: ClassVar[str]
    noun: ClassVar[str]
    identity: ClassVar[str] = "name"
    defaults: ClassVar[dict[str, Any]]
    rows: ClassVar[Callable[..., QuerySet[Any]]]  # (caller)
    """Return the rows that the caller may see."""
    outline: ClassVar[Sequence[str]] = ()
    """Columns that `is_over` reads."""
    at_once: ClassVar[int] = 20
    """How many objects are in memory with their values during an export."""
    # The services of the API, except of monitors, which are created, updated and deleted in bulk.
    create: ClassVar[Callable[..., Any]]  # (caller, body, *, now)
    update: ClassVar[Callable[..., Any]]  # (caller, public_id, body, *, now)
    delete: ClassVar[Callable[..., Any]]  # (caller, public_id)

    @abstractmethod
    def stored(self, row: Any, account: Account, links: Sequence[Any]) -> Values:
        """Return the values of a row, except its identity and project. `links` are those of `self.links` for it."""

    @abstractmethod
    def desired(self, entry: Entry, names: Names) -> Values:
        """Return all values of an entry. Raises EntryError, InvalidReferenceError or ValidationFailed."""

    def resolve(self, entry: Entry, names: Names) -> None:  # noqa: B027 - most sections refer to monitors only
        """Set the values that refer to the same section, after `desired` of all its entries. Raises the same errors."""

    @abstractmethod
    def exported(self, existing: Existing, names: ExportNames) -> dict[str, Any]:
        """Return the fields of an export except name and project, without defaults, in the order of the file."""

    def read(self, account: Account, *, now: datetime) -> list[Existing]:
        """Return all existing objects of the account, without their values: these may take many megabytes."""
        rows = self.rows(account.caller).order_by("pk").select_related(None).prefetch_related(None)
        return [
            Existing(
                row,
                getattr(row, self.identity),
                account.project_ref(row.project_id),
                is_over=self.is_over(row, now=now),
            )
            for row in rows.only("public_id", "owner", "project", self.identity, *self.outline)
            if account.knows(row.project_id)
        ]

    def load(self, account: Account, found: Collection[Existing]) -> None:
        """Read the values of these objects. Those of deleted objects stay empty."""
        keys = [one.row.pk for one in found]
        rows = self.rows(account.caller).prefetch_related(None).in_bulk(keys)
        links = self.links(keys)
        for one in found:
            if (row := rows.get(one.row.pk)) is not None:
                one.row = row
                identity = {self.identity: getattr(row, self.identity), "project": one.project_ref}
                one.values = {**identity, **self.stored(row, account, links.get(row.pk, ()))}

    def links(self, keys: Collection[int]) -> Mapping[int, Sequence[Any]]:
        """Return what links the rows with these keys to monitors, by key."""
        return {}

    def is_over(self, row: Any, *, now: datetime) -> bool:
        return False

    def non_defaults(self, values: Values) -> dict[str, Any]:
        """Return the values that differ from the defaults, in their order."""
        return {name: values[name] for name, default in self.defaults.items() if values[name] != default}

    def monitor_refs(self, values: Values) -> set[MonitorRef]:
        """Return the monitors to which the values refer."""
        scope = values.get("monitors")
        return set(scope.monitor_refs) if isinstance(scope, ChosenScope) else set()

    def new_refs(self, values: Values) -> Iterable[Entry]:
        """Return the entries, other than monitors, that are created before this one."""
        return ()

    def body(self, values: Values, names: Collection[str], new_ids: Mapping[Entry, str]) -> dict[str, Any]:
        """Return the input of the service that sets the fields `names`. `new_ids` are the ids of new monitors."""
        body = {name: values[name] for name in names}
        if "project" in body:
            body["project_id"] = _id_of(body.pop("project"))
        scope = body.get("monitors")
        if isinstance(scope, ProjectScope):
            body |= {"monitors": "project", "scope_project_id": _id_of(scope.project_ref)}
        elif isinstance(scope, ChosenScope):
            ids = sorted(monitor_id(monitor_ref, new_ids) for monitor_ref in scope.monitor_refs)
            body |= {"monitors": "chosen", "monitor_ids": ids}
        return {name: value.value if isinstance(value, Secret) else value for name, value in body.items()}


def monitor_id(monitor_ref: MonitorRef, new_ids: Mapping[Entry, str]) -> str:
    return monitor_ref.id if isinstance(monitor_ref, Existing) else new_ids[monitor_ref]


def _id_of(project_ref: ProjectRef | None) -> str | None:
    return None if project_ref is None else project_ref.id


@dataclass(frozen=True, slots=True)
class ProjectScope:
    """The monitors of a project. None stands for a deleted project."""

    project_ref: ProjectRef | None

    def __str__(self) -> str:
        return f"those of {self.project_ref or 'a deleted project'}"


@dataclass(frozen=True, slots=True)
class ChosenScope:
    monitor_refs: frozenset[MonitorRef]

    def parts(self) -> dict[str, str]:
        return dict.fromkeys(sorted(monitor_ref.name for monitor_ref in self.monitor_refs), "chosen")

    def __str__(self) -> str:
        return ", ".join(sorted(monitor_ref.name for monitor_ref in self.monitor_refs)) or "none"


Scope = str | ProjectScope | ChosenScope
"""The monitors that a channel or window applies to. The text is "all"."""


def chosen_monitors(through: type[Model], parent: str, keys: Collection[int]) -> dict[int, list[int]]:
    """Return the keys of the chosen monitors by the key of `parent`. Model instances would take much more memory."""
    found = defaultdict(list)
    links = through._default_manager.filter(**{f"{parent}__in": keys})
    for key, monitor_id in links.values_list(parent, "monitor"):
        found[key].append(monitor_id)
    return found


def chosen_scope(row: Any, monitor_ids: Iterable[int], account: Account) -> ChosenScope:
    """Return the scope of those monitors that the user can access and that have not left the row's project."""
    found = (account.monitor_refs[key] for key in monitor_ids if key in account.monitor_refs)
    return ChosenScope(frozenset(one for one in found if row.project_id in (None, one.row.project_id)))


def resolve_scope(entry: Entry, names: Names) -> Scope:
    """Return the scope for the value of a ScopeField. Raises EntryError or InvalidReferenceError."""
    value, path = entry.given.get("monitors", "all"), (*entry.path, "monitors")
    if isinstance(value, Mapping):
        return ProjectScope(names.project(value["project"], path))
    if value == "all":
        return "all"
    monitor_refs = resolve_monitors([((*path, index), one) for index, one in enumerate(value)], entry, names)
    if len(set(monitor_refs)) < len(monitor_refs):
        twice = next(one for index, one in enumerate(monitor_refs) if one in monitor_refs[:index])
        raise EntryError(path, f"{twice.name} is listed twice.")
    return ChosenScope(frozenset(monitor_refs))


def resolve_monitors(references: Collection[tuple[Path, Any]], entry: Entry, names: Names) -> list[MonitorRef]:
    """Return the monitors of an entry. Raises EntryError or, because it is less useful, InvalidReferenceError last."""
    found = []
    invalid: InvalidReferenceError | None = None
    for path, reference in references:
        try:
            found.append(names.monitor(reference, entry.project_ref, path))
        except InvalidReferenceError as error:
            invalid = error
    if invalid is not None:
        raise invalid
    return found


def resolve_tags(entry: Entry) -> list[str]:
    """Return the tags by which a channel or window selects monitors, as stored. Raises EntryError."""
    given, path = entry.given.get("monitor_tags", ()), (*entry.path, "monitor_tags")
    if given and not isinstance(entry.given.get("monitors"), list):
        raise EntryError(path, "applies only if monitors is a list, which may be empty.")
    try:
        return [*settle_tags(given, field="monitor_tags")]
    except ValidationFailed as error:
        raise EntryError(path, error.reason.partition(": ")[2]) from None


def export_scope(existing: Existing, names: ExportNames) -> Any:
    scope: Scope = existing.values["monitors"]
    if isinstance(scope, ProjectScope):
        return {"project": names.project(scope.project_ref)}
    if isinstance(scope, ChosenScope):
        chosen = sorted(scope.monitor_refs, key=lambda monitor_ref: (monitor_ref.name, monitor_ref.id or ""))
        return [names.monitor(monitor_ref, existing.project_ref) for monitor_ref in chosen]
    return scope


def keep_secret(keep: Keep, stored: Any, path: Path) -> Any:
    """Return the stored value for a ${keep:…} placeholder. Raises EntryError if nothing is stored."""
    if stored is None:
        raise EntryError(path, f"nothing is stored yet; set {keep.variable} in the environment.")
    return stored


def resolve_secret(entry: Entry, name: str, stored: Any) -> Any:
    """Return a Secret, the stored value, or None."""
    path = (*entry.path, name)
    if path in entry.keeps:
        return keep_secret(entry.keeps[path], stored, path)
    value = entry.given.get(name)
    return None if value is None else Secret(value)

"""The interface of a resource: read, resolve, export, create, update and delete."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from django.db.models import QuerySet

from manifests.account import Account, Entry, Existing, MonitorRef, ProjectRef, Values
from manifests.naming import ExportNames, Names
from manifests.problems import EntryError, InvalidReferenceError, Path
from manifests.secrets import Keep, Secret
from monitors.models import Monitor


class Resource(ABC):
    """One section of a manifest, with the defaults of its fields."""

    section: ClassVar[str]
    noun: ClassVar[str]
    identity: ClassVar[str] = "name"
    defaults: ClassVar[dict[str, Any]]
    rows: ClassVar[Callable[..., QuerySet[Any]]]  # (caller)
    """Return the rows that the caller may see."""
    # The services of the API, except of monitors, which are created, updated and deleted in bulk.
    create: ClassVar[Callable[..., Any]]  # (caller, body, *, now)
    update: ClassVar[Callable[..., Any]]  # (caller, public_id, body, *, now)
    delete: ClassVar[Callable[..., Any]]  # (caller, public_id)

    @abstractmethod
    def stored(self, row: Any, account: Account) -> Values:
        """Return the values of a row, except its identity and project."""

    @abstractmethod
    def desired(self, entry: Entry, names: Names) -> Values:
        """Return all values of an entry. Raises EntryError, InvalidReferenceError or ValidationFailed."""

    @abstractmethod
    def exported(self, existing: Existing, names: ExportNames) -> dict[str, Any]:
        """Return the fields of an export except name and project, without defaults, in the order of the file."""

    def read(self, account: Account, *, now: datetime) -> list[Existing]:
        """Return all existing objects of the account."""
        found = []
        for row in self.rows(account.caller).order_by("pk"):
            if account.knows(row.project_id):
                name, project_ref = getattr(row, self.identity), account.project_ref(row.project_id)
                values = {self.identity: name, "project": project_ref, **self.stored(row, account)}
                found.append(Existing(row, name, project_ref, values, is_over=self.is_over(row, now=now)))
        return found

    def is_over(self, row: Any, *, now: datetime) -> bool:
        return False

    def non_defaults(self, values: Values) -> dict[str, Any]:
        """Return the values that differ from the defaults, in their order."""
        return {name: values[name] for name, default in self.defaults.items() if values[name] != default}

    def monitor_refs(self, values: Values) -> set[MonitorRef]:
        """Return the monitors to which the values refer."""
        scope = values.get("monitors")
        return set(scope.monitor_refs) if isinstance(scope, ChosenScope) else set()

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


def chosen_scope(monitors: Iterable[Monitor], account: Account) -> ChosenScope:
    """Return the scope of those monitors that the user can access."""
    return ChosenScope(frozenset(account.monitor_refs[one.pk] for one in monitors if one.pk in account.monitor_refs))


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

"""The interface of a resource: read, resolve, export, and for most also create, update and delete."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from django.db.models import QuerySet

from manifests.account import Account
from manifests.entries import Entry, Existing, MonitorRef, ProjectRef, Reference, Values
from manifests.parsing import Item
from manifests.problems import Path
from manifests.secrets import Keep, Secret, Variables
from projects.access import Caller


class EntryError(Exception):
    """An entry is invalid, with its path and the reason."""

    def __init__(self, path: Path, message: str) -> None:
        self.path, self.message = path, message
        super().__init__(message)


class InvalidReferenceError(Exception):
    """An entry refers to an invalid entry, whose problem is already reported."""


@dataclass(frozen=True, slots=True)
class Resolver:
    """Look up projects and monitors by their names in the file. Raises EntryError or InvalidReferenceError."""

    project_ref: Callable[[str | None, Path], ProjectRef | None]
    monitor: Callable[[Reference, ProjectRef | None, Path], MonitorRef]


@dataclass(frozen=True, slots=True)
class ExportContext:
    """How an export names projects, monitors and placeholders of secrets."""

    project_ref: Callable[[ProjectRef | None], str | None]
    monitor: Callable[[MonitorRef, ProjectRef | None], Any]
    variables: Variables


@dataclass(frozen=True, slots=True)
class WriteContext:
    """The context of writes: the caller, the time, and the ids of monitors created in this run."""

    account: Account
    monitor_ids: Mapping[str, str]
    now: datetime

    def monitor_id(self, monitor_ref: MonitorRef) -> str:
        return self.monitor_ids.get(monitor_ref.key, monitor_ref.key)

    def project_id(self, project_ref: ProjectRef | None) -> str | None:
        return None if project_ref is None else project_ref.id


class Resource(ABC):
    """One section of a manifest. `fields` maps the names of fields in services to those in files."""

    section: ClassVar[str]
    noun: ClassVar[str]
    identity: ClassVar[str] = "name"
    fields: ClassVar[Mapping[str, str]] = {
        "project_id": "project",
        "monitor_id": "monitor",
        "monitor_ids": "monitors",
        "scope_project_id": "monitors",
    }

    @abstractmethod
    def read(self, account: Account, *, now: datetime) -> list[Existing]:
        """Return all existing objects of the account."""

    @abstractmethod
    def desired(self, item: Item, entry: Entry, names: Resolver) -> Values:
        """Return all values of an entry. Raises EntryError, InvalidReferenceError or ValidationFailed."""

    @abstractmethod
    def write(self, existing: Existing, context: ExportContext) -> dict[str, Any]:
        """Return the entry for an export, without defaults, in the order of the file."""


class ServiceResource(Resource):
    """A resource whose entries are created and updated one by one, by the services of the API."""

    @abstractmethod
    def rows(self, caller: Caller) -> QuerySet[Any]:
        """Return the rows that the caller may see."""

    @abstractmethod
    def stored_values(self, row: Any, account: Account, monitor_refs: Mapping[int, MonitorRef]) -> Values: ...

    def is_over(self, row: Any, *, now: datetime) -> bool:
        return False

    @abstractmethod
    def create(self, context: WriteContext, values: Values) -> None: ...

    @abstractmethod
    def update(self, context: WriteContext, existing: Existing, values: Values, changed: set[str]) -> None:
        """Set the fields `changed` to those of `values`."""

    @abstractmethod
    def delete(self, context: WriteContext, existing: Existing) -> None: ...

    def read(self, account: Account, *, now: datetime) -> list[Existing]:
        monitor_refs = account.monitor_refs()
        found = []
        for row in self.rows(account.caller).order_by("pk"):
            if account.knows(row.project_id):
                values = self.stored_values(row, account, monitor_refs)
                name, project_ref = values[self.identity], values["project"]
                is_over = self.is_over(row, now=now)
                found.append(Existing(self.section, row.public_id, row.pk, name, project_ref, values, is_over=is_over))
        return found

    def body(self, context: WriteContext, values: Values, names: Collection[str]) -> dict[str, Any]:
        """Return the input of the service that sets the fields `names`."""
        body = {name: values[name] for name in names}
        if "project" in body:
            body["project_id"] = context.project_id(body.pop("project"))
        scope = body.get("monitors")
        if isinstance(scope, ProjectScope):
            body |= {"monitors": "project", "scope_project_id": context.project_id(scope.project_ref)}
        elif isinstance(scope, ChosenScope):
            ids = sorted(context.monitor_id(monitor_ref) for monitor_ref in scope.monitor_refs)
            body |= {"monitors": "chosen", "monitor_ids": ids}
        return {name: value.value if isinstance(value, Secret) else value for name, value in body.items()}


@dataclass(frozen=True, slots=True)
class ProjectScope:
    """The monitors of a project. None stands for a deleted project."""

    project_ref: ProjectRef | None

    def __str__(self) -> str:
        return "those of a deleted project" if self.project_ref is None else f"those of {self.project_ref}"


@dataclass(frozen=True, slots=True)
class ChosenScope:
    monitor_refs: frozenset[MonitorRef]

    def parts(self) -> dict[str, str]:
        return {monitor_ref.label: "chosen" for monitor_ref in sorted(self.monitor_refs, key=str)}

    def __str__(self) -> str:
        return ", ".join(sorted(monitor_ref.label for monitor_ref in self.monitor_refs)) or "none"


Scope = str | ProjectScope | ChosenScope
"""The monitors that a channel or window applies to. The text is "all"."""


def resolve_scope(value: Any, project_ref: ProjectRef | None, path: Path, names: Resolver) -> Scope:
    """Return the scope for a value of ScopeField. Raises EntryError or InvalidReferenceError."""
    if isinstance(value, dict):
        return ProjectScope(None if value["project"] is None else names.project_ref(value["project"], path))
    if not isinstance(value, list):
        return "all"
    found = []
    invalid: InvalidReferenceError | None = None
    for index, reference in enumerate(value):
        try:
            found.append(names.monitor(reference, project_ref, (*path, index)))
        except InvalidReferenceError as error:  # raised last: other errors are more useful
            invalid = error
    if invalid is not None:
        raise invalid
    if len(set(found)) < len(found):
        twice = next(one for index, one in enumerate(found) if one in found[:index])
        raise EntryError(path, f"{twice.label} is listed twice.")
    return ChosenScope(frozenset(found))


def export_scope(scope: Scope, project_ref: ProjectRef | None, context: ExportContext) -> Any:
    if isinstance(scope, ProjectScope):
        return {"project": context.project_ref(scope.project_ref)}
    if isinstance(scope, ChosenScope):
        chosen = sorted(scope.monitor_refs, key=lambda monitor_ref: (monitor_ref.label, monitor_ref.key))
        return [context.monitor(monitor_ref, project_ref) for monitor_ref in chosen]
    return scope


def keep_secret(keep: Keep, stored: Any, path: Path) -> Any:
    """Return the stored value for a ${keep:…} placeholder. Raises EntryError if nothing is stored."""
    if stored is None:
        raise EntryError(path, f"nothing is stored yet; set {keep.variable} in the environment.")
    return stored


def resolve_secret(item: Item, name: str, stored: Any) -> Any:
    """Return a Secret, the stored value, or None."""
    path = (*item.path, name)
    if path in item.keeps:
        return keep_secret(item.keeps[path], stored, path)
    value = item.take(name)
    return None if value is None else Secret(value)


def non_defaults(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that differ from `defaults`, in their order."""
    return {name: values[name] for name, default in defaults.items() if values[name] != default}
